// tools: `kpd export`, a model in the forms that other programs read: a Hugging Face folder or a GGUF file, or its tokenizer
// alone.
#include <array>
#include <filesystem>
#include <memory>

#include <fmt/format.h>

#include "cli.h"
#include "commands.h"
#include "files.h"
#include "kpd/io/gguf.h"
#include "kpd/llm/export.h"
#include "kpd/text/tokenizer_export.h"
#include "model_options.h"
#include "progress.h"
#include "signals.h"

namespace kpd::tool {
namespace {

namespace fs = std::filesystem;

struct ExportArgs {
  std::string model, out, tokenizer, to, dtype, shard;
  FileOptions files;
};

int export_tokenizer(const ExportArgs& args) {
  if (!args.out.empty() || !args.to.empty() || !args.dtype.empty() || !args.shard.empty())
    usage("--tokenizer writes the tokenizer alone; leave it out to export the model, whose tokenizer goes with it");
  std::error_code ignored;
  const fs::path folder(args.tokenizer);
  if (fs::exists(folder, ignored) && !fs::is_directory(folder, ignored))
    usage("--tokenizer ", args.tokenizer, ": is a file, expected a folder to write to");
  for (const char* name : {"tokenizer.json", "tokenizer_config.json"})
    check_output("--tokenizer", (folder / name).string(), args.files.force);
  {
    const io::MappedFile file = map_input(args.model);
    if (!io::looks_like_gguf(file.bytes()))
      fail(ErrorCode::kCorruptData, args.model, ": is no GGUF file; the tokenizer of a Hugging Face folder is there already");
  }
  text::write_tokenizer_directory(io::load_gguf_metadata(args.model), args.tokenizer);
  fmt::print("{}: tokenizer.json and tokenizer_config.json written\n", args.tokenizer);
  return kExitOk;
}

// --to, or what OUT's name says.
llm::CheckpointFormat format_of(const ExportArgs& args) {
  constexpr std::array<std::string_view, 2> kFormats = {"safetensors", "gguf"};
  if (!args.to.empty())
    return parse_choice("--to", args.to, kFormats) == 0 ? llm::CheckpointFormat::kSafetensors : llm::CheckpointFormat::kGguf;
  if (fs::path(args.out).extension() == ".gguf") return llm::CheckpointFormat::kGguf;
  usage("--to safetensors|gguf is required: OUT's name does not say it");
}

// --dtype, or that of the model's embedding where it is a plain one.
BlockType type_of(const ExportArgs& args, const llm::Checkpoint& checkpoint) {
  constexpr std::array<std::string_view, 3> kTypes = {"f32", "f16", "bf16"};
  constexpr std::array<BlockType, 3> kBlockTypes = {BlockType::kF32, BlockType::kF16, BlockType::kBF16};
  if (!args.dtype.empty()) return kBlockTypes[parse_choice("--dtype", args.dtype, kTypes)];
  for (const io::WeightEntry& e : checkpoint.weights().tensors()) {
    if (e.shape.size() < 2) continue;
    for (const BlockType type : kBlockTypes) {
      if (e.type == type) return type;
    }
    break;
  }
  usage("--dtype f32|f16|bf16 is required: the model's own types are others");
}

// Of sizes such as 5GB: decimal, as Hugging Face counts shards.
uint64_t shard_bytes(const std::string& text) {
  std::string number = text;
  uint64_t unit = 1;
  for (const auto& [name, bytes] :
       {std::pair{"GB", uint64_t{1'000'000'000}}, {"MB", uint64_t{1'000'000}}, {"kB", uint64_t{1000}}}) {
    if (!number.ends_with(name)) continue;
    number.resize(number.size() - 2);
    unit = bytes;
    break;
  }
  return parse_count("--shard", number, 1, UINT64_MAX / unit) * unit;
}

void check_target(const ExportArgs& args, llm::CheckpointFormat format) {
  std::error_code ignored;
  if (format == llm::CheckpointFormat::kGguf) {
    if (fs::is_directory(args.out, ignored)) usage("OUT ", args.out, ": is a folder, expected a file to write");
    check_output("OUT", args.out, args.files.force);
  } else if (fs::exists(args.out, ignored)) {
    if (!fs::is_directory(args.out, ignored)) usage("OUT ", args.out, ": is a file, expected a folder to write to");
    if (!fs::is_empty(args.out, ignored) && !args.files.force)
      usage("OUT ", args.out, ": is there already; --force replaces it");
  }
  if (fs::exists(args.out, ignored) && fs::equivalent(args.out, args.model, ignored))
    usage("OUT ", args.out, ": is MODEL, of which this would take the only copy");
}

int run_export(const ExportArgs& args) {
  if (args.model.empty()) usage("MODEL is required: a GGUF file or a Hugging Face folder");
  if (!args.tokenizer.empty()) return export_tokenizer(args);
  if (args.out.empty()) usage("OUT is required: where to write, or --tokenizer DIR for the tokenizer alone");
  llm::ExportOptions options;
  options.format = format_of(args);
  if (!args.shard.empty()) options.shard_bytes = shard_bytes(args.shard);
  check_target(args, options.format);
  const llm::Checkpoint checkpoint = llm::Checkpoint::open(args.model);
  options.type = type_of(args, checkpoint);
  const llm::CheckpointExport plan(checkpoint, options);
  for (const std::string& note : plan.notes()) fmt::print(stderr, "note: {}\n", note);
  {
    const DeferInterrupt defer;
    Progress progress("export", plan.bytes() >> 20, "MiB");
    uint64_t done = 0;
    as_usage("OUT", [&] {
      plan.write(args.out, args.files.existing(), [&](uint64_t bytes) {
        check_interrupted();
        progress.tick(((done + bytes) >> 20) - (done >> 20));
        done += bytes;
      });
    });
  }
  fmt::print("{}: written, {} of tensors in {}\n", args.out, binary_size(plan.bytes()), block_type_info(options.type).name);
  return kExitOk;
}

}  // namespace

Command export_command() {
  return {"export",
          "write a model as a Hugging Face folder or a GGUF file, or its tokenizer alone",
          {"kpd export MODEL.gguf exported --to safetensors --dtype f16", "kpd export exported model.gguf --dtype f32",
           "kpd export MODEL.gguf --tokenizer tokenizer"},
          [](CLI::App& app) {
            auto args = std::make_shared<ExportArgs>();
            add_positional(app, "MODEL", args->model, kModelHelp);
            add_positional(app, "OUT", args->out, "folder (safetensors) or file (GGUF) to write");
            add(app, "--to", args->to, "FORMAT", "safetensors or gguf; an OUT that ends in .gguf says it");
            add(app, "--dtype", args->dtype, "TYPE",
                "f32, f16 or bf16; unless given, the model's own where it is one of these");
            add(app, "--shard", args->shard, "SIZE", "most bytes of tensors in one .safetensors file: 5GB (default), 500MB");
            add(app, "--tokenizer", args->tokenizer, "DIR",
                "write tokenizer.json and tokenizer_config.json of a GGUF file here, no model");
            args->files.add_force(app);
            return [args] { return run_export(*args); };
          }};
}

}  // namespace kpd::tool
