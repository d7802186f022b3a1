// llm: planning and writing a checkpoint anew.
#include "kpd/llm/export.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "kpd/base/bytes.h"
#include "kpd/base/error.h"
#include "kpd/io/gguf.h"
#include "kpd/io/model_writer.h"
#include "kpd/io/output_folder.h"
#include "kpd/io/safetensors.h"
#include "llm/export_files.h"
#include "llm/family_files.h"
#include "llm/known_names.h"
#include "llm/same_network.h"
#include "llm/tensor_copy.h"

namespace kpd::llm {
namespace {

namespace fs = std::filesystem;

}  // namespace

struct CheckpointExport::Plan {
  Plan(const Checkpoint::Parts& parts, const ExportOptions& o) : from(parts), options(o) {}

  const Checkpoint::Parts& from;
  ExportOptions options;
  std::vector<TensorCopy> copies;
  io::GgufMetadata metadata;    // of a GGUF file
  std::vector<TextFile> files;  // beside the tensors of a folder
  std::vector<std::string> notes;

  void plan_gguf();
  void plan_folder();
  void check_same(const ModelDescription& target, const std::string& what) const;
  void keep_others();
};

namespace {

// What is left out is said before anything is written.
void check_options(const ExportOptions& options) {
  const BlockType t = options.type;
  if (t != BlockType::kF32 && t != BlockType::kF16 && t != BlockType::kBF16)
    fail(ErrorCode::kInvalidArgument, "tensors are written as F32, F16 or BF16, not as ", block_type_info(t).name);
  if (options.shard_bytes == 0) fail(ErrorCode::kInvalidArgument, "a shard of 0 bytes holds no tensor");
}

}  // namespace

void CheckpointExport::Plan::check_same(const ModelDescription& target, const std::string& what) const {
  const std::string difference = network_difference(from.description, target);
  if (difference.empty()) return;
  fail(ErrorCode::kUnsupported, from.weights.name(), ": ", what, " has no key that says ", difference, " of this model");
}

void CheckpointExport::Plan::plan_gguf() {
  const ModelDescription& d = from.description;
  const std::string& name = from.weights.name();
  GgufNetwork network = write_gguf_network(d, name);
  const std::string what = str("GGUF's ", network.architecture);
  metadata.name = name;
  metadata.values = general_keys(from, network.architecture, options.type);
  metadata.values.insert(metadata.values.end(), network.keys.begin(), network.keys.end());
  add_tokenizer_keys(from, network.architecture, metadata, notes);
  ModelDescription target = describe_gguf(metadata);
  for (const FactorTensor& f : network.factors) {
    (f.name == "rope_factors_long.weight" ? target.ropes[0].long_factor : target.ropes[0].short_factor) = f.values;
    copies.push_back({.name = f.name, .shape = {f.values.size()}, .values = f.values});
  }
  check_same(target, what);
  const Family& family = written_family(d);
  target.tied_head = d.tied_head && family.gguf_head != HeadInGguf::kNeeded;
  const TensorTable table(target, {.gguf = true});
  if (!d.tied_head && family.gguf_head == HeadInGguf::kNever)
    fail(ErrorCode::kUnsupported, name, ": ", what, " has no name for a head that is not the embedding");
  for (TensorCopy& copy : plan_copies(from, target, table, what)) {
    if (copy.shape.size() > 1) copy.type = options.type;
    copies.push_back(std::move(copy));
  }
}

// Tensors that no model computes with, of a folder that becomes a folder: as they are.
void CheckpointExport::Plan::keep_others() {
  if (from.gguf || from.description.text_half) return;
  for (const io::WeightEntry& e : from.weights.tensors()) {
    if (!is_harmless_tensor(e.name)) continue;
    const bool known =
        std::any_of(from.table.specs().begin(), from.table.specs().end(), [&](const auto& s) { return s.name == e.name; });
    if (known || e.shape.empty()) continue;
    TensorCopy copy{.name = e.name, .shape = e.shape, .type = e.type};
    copy.pieces.push_back({&e, 0, e.shape[0]});
    copies.push_back(std::move(copy));
  }
  for (const io::SafetensorsRecord& record : from.weights.others()) {
    if (record.dtype) {
      copies.push_back({.name = record.name, .shape = record.shape, .record = &record});
    } else {
      notes.push_back(str("the tensor ", record.name, " of type ", record.type, ", which no model reads, is left out"));
    }
  }
}

void CheckpointExport::Plan::plan_folder() {
  const io::Json config = new_config(from, options.type);
  const std::string text = config.dump(2) + "\n";
  ModelDescription target = describe_config(text, str(from.weights.name(), ": as config.json"));
  const std::string what = str("transformers' ", config["architectures"][0].get<std::string>());
  check_same(target, what);
  target.tied_head = from.description.tied_head;
  for (TensorCopy& copy : plan_copies(from, target, TensorTable(target, {}), what)) {
    copy.type = options.type;
    copies.push_back(std::move(copy));
  }
  keep_others();
  files.push_back({"config.json", text});
  add_other_files(from, files, notes);
}

CheckpointExport::CheckpointExport(const Checkpoint& checkpoint, const ExportOptions& options)
    : plan_(std::make_unique<Plan>(checkpoint.parts(), options)) {
  check_options(options);
  if (options.format == CheckpointFormat::kGguf) {
    plan_->plan_gguf();
  } else {
    plan_->plan_folder();
  }
  if (plan_->from.description.text_half)
    plan_->notes.emplace_back("the text half of the model; what sees and hears is left out");
}

CheckpointExport::~CheckpointExport() = default;

const std::vector<std::string>& CheckpointExport::notes() const { return plan_->notes; }

uint64_t CheckpointExport::bytes() const {
  uint64_t sum = 0;
  for (const TensorCopy& copy : plan_->copies) sum += copied_bytes(copy);
  return sum;
}

namespace {

// Copies through `writer`, in the order given.
template <class Writer>
void write_copies(const Checkpoint::Parts& from, std::span<const TensorCopy> copies, std::span<const size_t> order,
                  Writer& writer, const std::function<void(uint64_t)>& on_progress) {
  const std::function<void(std::span<const uint8_t>)> write = [&](std::span<const uint8_t> bytes) {
    writer.write(bytes);
    if (on_progress) on_progress(bytes.size());
  };
  for (const size_t i : order) copy_tensor(from, copies[i], write);
}

}  // namespace

void CheckpointExport::write(const std::string& out, io::Existing existing,
                             const std::function<void(uint64_t)>& on_progress) const {
  const Plan& plan = *plan_;
  std::vector<size_t> order(plan.copies.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  if (plan.options.format == CheckpointFormat::kGguf) {
    std::vector<io::GgufTensor> tensors;
    for (const TensorCopy& copy : plan.copies) tensors.push_back({copy.name, copy.type, copy.shape});
    io::GgufWriter writer(out, plan.metadata, std::move(tensors), existing);
    write_copies(plan.from, plan.copies, order, writer, on_progress);
    return writer.commit();
  }
  io::OutputFolder folder(out, existing, is_checkpoint_file);
  std::vector<io::TensorEntry> tensors;
  for (const TensorCopy& copy : plan.copies) {
    const DType dtype = copy.record != nullptr ? *copy.record->dtype : float_dtype(copy.type);
    tensors.push_back({copy.name, dtype, copy.shape, nullptr, copied_bytes(copy) / dtype_bytes(dtype)});
  }
  io::SafetensorsWriter writer(folder.path(), std::move(tensors), {{"format", "pt"}}, plan.options.shard_bytes);
  write_copies(plan.from, plan.copies, writer.order(), writer, on_progress);
  writer.commit();
  for (const TextFile& file : plan.files) {
    const io::MappedFile copied = file.from.empty() ? io::MappedFile() : io::map_file(file.from);
    io::write_file((fs::path(folder.path()) / file.name).string(), file.from.empty() ? text_bytes(file.text) : copied.bytes());
  }
  folder.commit();
}

bool is_checkpoint_file(std::string_view name) {
  if (name == "config.json") return true;
  if (name.starts_with("model") && (name.ends_with(".safetensors") || name == "model.safetensors.index.json")) return true;
  const auto all = copied_files();
  return std::find(all.begin(), all.end(), name) != all.end();
}

}  // namespace kpd::llm
