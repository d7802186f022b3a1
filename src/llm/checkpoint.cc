// llm: from files to a checkpoint: finds every tensor that the description asks for, checks its shape, and refuses those that
// nothing reads. Lays nothing out.
#include "kpd/llm/checkpoint.h"

#include <filesystem>
#include <unordered_set>

#include "kpd/base/error.h"
#include "kpd/io/file.h"
#include "kpd/quant/blocks.h"
#include "llm/checkpoint_parts.h"
#include "llm/known_names.h"

namespace kpd::llm {

std::string shape_text(std::span<const uint64_t> shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += str(i > 0 ? ", " : "", shape[i]);
  return text + "]";
}

void check_shape(const io::Weights& weights, const io::WeightEntry& entry, const TensorSpec& spec) {
  if (entry.shape == spec.shape) return;
  fail(ErrorCode::kCorruptData, weights.name(), ": the tensor ", entry.name, " has the shape ", shape_text(entry.shape),
       ", expected ", shape_text(spec.shape));
}

std::vector<float> read_floats(const io::Weights& weights, const io::WeightEntry& e) {
  const size_t block = block_type_info(e.type).block_values;
  std::vector<float> values(e.count());
  if (values.size() % block != 0)
    fail(ErrorCode::kCorruptData, weights.name(), ": the tensor ", e.name, " is not whole blocks");
  std::vector<uint8_t> bytes(e.bytes.size());
  if (!bytes.empty()) weights.read(e.bytes.data(), bytes);
  quant::dequantize_blocks(e.type, bytes, 0, values);
  return values;
}

namespace {

std::string config_path(const io::Weights& weights) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const fs::path file = fs::path(weights.name()) / "config.json";
  return fs::is_directory(weights.name(), ignored) && fs::exists(file, ignored) ? file.string() : std::string();
}

class Opener {
 public:
  explicit Opener(Checkpoint::Parts& parts) : parts_(parts), d_(parts.description) {}

  void open() {
    parts_.metadata = parts_.weights.release_gguf();
    // What was opened decides: a GGUF file has its own names and shapes, also beside the config.json that it was made from.
    parts_.gguf = parts_.metadata != nullptr;
    if (parts_.gguf) {
      d_ = describe_gguf(*parts_.metadata);
    } else {
      read_config();
    }
    const NamingScheme naming = find_naming(parts_.weights, parts_.gguf);
    parts_.table = TensorTable(d_, naming);
    for (const TensorSpec& spec : parts_.table.specs()) check(spec);
    read_rope_factors();
    settle();
    parts_.table = TensorTable(d_, naming);
    refuse_unused();
  }

 private:
  void read_config() {
    const std::string file = config_path(parts_.weights);
    if (file.empty()) {
      fail(ErrorCode::kIo, parts_.weights.name(),
           ": not a model that kpd reads: expected a GGUF file, or a folder with config.json and model.safetensors");
    }
    parts_.configuration = io::map_file(file).text();
    d_ = describe_config(parts_.configuration, file);
  }

  const io::WeightEntry* entry(TensorRole role, size_t layer, TensorPart part = TensorPart::kWeight) const {
    const TensorSpec* spec = parts_.table.find(role, layer, part);
    return spec == nullptr ? nullptr : parts_.weights.find(spec->name);
  }

  [[noreturn]] void missing(const std::string& name) const {
    for (const io::SafetensorsRecord& other : parts_.weights.others()) {
      if (other.name != name) continue;
      fail(ErrorCode::kUnsupported, parts_.weights.name(), ": the tensor ", other.name, " has the type ", other.type,
           ", expected F32, F16 or BF16");
    }
    fail(ErrorCode::kCorruptData, parts_.weights.name(), ": the tensor ", name, " is missing; the family ", d_.family,
         " needs it");
  }

  void check(const TensorSpec& spec) {
    const io::WeightEntry* found = parts_.weights.find(spec.name);
    if (found == nullptr && spec.needed) missing(spec.name);
    if (found == nullptr) return;
    used_.insert(found);
    check_shape(parts_.weights, *found, spec);
    const size_t block = block_type_info(found->type).block_values;
    if (spec.shape.size() > 1 && spec.shape.back() % block != 0) {
      fail(ErrorCode::kCorruptData, parts_.weights.name(), ": the tensor ", found->name, " has rows of ", spec.shape.back(),
           " values, not whole blocks");
    }
  }

  // GGUF keeps the stretching of llama3 and longrope as tensors.
  void read_rope_factors() {
    if (!parts_.gguf || d_.ropes.empty()) return;
    RopeDescription& rope = d_.ropes[0];
    const auto values = [&](TensorRole role) {
      const io::WeightEntry* e = entry(role, 0);
      if (e == nullptr) missing(parts_.table.at(role, 0).name);
      return read_floats(parts_.weights, *e);
    };
    if (entry(TensorRole::kRopeFactors, 0) != nullptr && rope.kind != RopeKind::kLongRope)
      rope.short_factor = values(TensorRole::kRopeFactors);
    if (entry(TensorRole::kRopeLong, 0) == nullptr) return;
    rope.kind = RopeKind::kLongRope;
    rope.long_factor = values(TensorRole::kRopeLong);
    rope.short_factor = values(TensorRole::kRopeShort);
  }

  // What only the tensors say.
  void settle() {
    d_.tied_head = entry(TensorRole::kHead, 0) == nullptr;
    if (!parts_.gguf) return;
    for (size_t i = 0; i < d_.layers.size(); ++i) {
      const auto has = [&](TensorRole role) { return entry(role, i, TensorPart::kBias) != nullptr; };
      d_.qkv_bias = d_.qkv_bias || has(TensorRole::kQuery) || has(TensorRole::kKey) || has(TensorRole::kValue);
      d_.o_bias = d_.o_bias || has(TensorRole::kOutput);
      d_.mlp_bias = d_.mlp_bias || has(TensorRole::kGate) || has(TensorRole::kUp) || has(TensorRole::kDown);
    }
  }

  // A tensor that nothing reads belongs to a model that computes more than this one.
  void refuse_unused() const {
    const auto refuse = [&](const std::string& tensor, std::span<const uint64_t> shape) {
      if (is_harmless_tensor(tensor)) return;
      fail(ErrorCode::kUnsupported, parts_.weights.name(), ": the tensor ", tensor, " ", shape_text(shape),
           " is none that a model of the family ", d_.family, " of ", d_.n_file_layers,
           " layers has here; kpd would leave it out");
    };
    for (const io::WeightEntry& e : parts_.weights.tensors()) {
      if (!used_.contains(&e)) refuse(e.name, e.shape);
    }
    for (const io::SafetensorsRecord& other : parts_.weights.others()) refuse(other.name, other.shape);
  }

  Checkpoint::Parts& parts_;
  ModelDescription& d_;
  std::unordered_set<const io::WeightEntry*> used_;
};

}  // namespace

std::optional<ModelDescription> describe_weights(const io::Weights& weights) {
  std::optional<ModelDescription> d;
  if (weights.gguf()) {
    d = describe_gguf(*weights.gguf());
  } else if (const std::string file = config_path(weights); !file.empty()) {
    const io::MappedFile mapped = io::map_file(file);
    d = describe_config(mapped.text(), file);
  }
  if (!d) return d;
  const TensorTable table(*d, find_naming(weights, weights.gguf() != nullptr));
  if (weights.find(table.at(TensorRole::kHead, 0).name) != nullptr) d->tied_head = false;
  return d;
}

Checkpoint Checkpoint::open(const std::string& path, const Limits& limits) {
  // Those that no kernel reads may belong to what a model has beside its text half.
  return Checkpoint(io::Weights::open(path, limits, io::OtherTensors::kKeep));
}

Checkpoint::Checkpoint(io::Weights weights) : parts_(std::make_unique<Parts>(std::move(weights))) { Opener(*parts_).open(); }
Checkpoint::Checkpoint(Checkpoint&&) noexcept = default;
Checkpoint& Checkpoint::operator=(Checkpoint&&) noexcept = default;
Checkpoint::~Checkpoint() = default;

const std::string& Checkpoint::name() const { return parts_->weights.name(); }
const io::Weights& Checkpoint::weights() const { return parts_->weights; }
const ModelDescription& Checkpoint::description() const { return parts_->description; }
bool Checkpoint::is_gguf() const { return parts_->gguf; }
const std::string& Checkpoint::configuration() const { return parts_->configuration; }
const std::shared_ptr<const io::GgufMetadata>& Checkpoint::metadata() const { return parts_->metadata; }

}  // namespace kpd::llm
