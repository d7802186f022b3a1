// tools: `kpd export`, parts of a model in the forms that other programs read.
#include <filesystem>
#include <memory>

#include <fmt/format.h>

#include "cli.h"
#include "commands.h"
#include "files.h"
#include "kpd/io/gguf.h"
#include "kpd/text/tokenizer_export.h"

namespace kpd::tool {
namespace {

struct ExportArgs {
  std::string model, tokenizer;
  FileOptions files;
};

int run_export(const ExportArgs& args) {
  if (args.model.empty()) usage("MODEL is required: a GGUF file");
  require(args.tokenizer, "--tokenizer", "DIR");
  std::error_code ignored;
  const std::filesystem::path folder(args.tokenizer);
  if (std::filesystem::exists(folder, ignored) && !std::filesystem::is_directory(folder, ignored))
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

}  // namespace

Command export_command() {
  return {"export",
          "write a model's tokenizer as a Hugging Face folder",
          {"kpd export MODEL.gguf --tokenizer tokenizer"},
          [](CLI::App& app) {
            auto args = std::make_shared<ExportArgs>();
            add_positional(app, "MODEL", args->model, "GGUF file");
            add(app, "--tokenizer", args->tokenizer, "DIR", "folder for tokenizer.json and tokenizer_config.json");
            args->files.add_force(app);
            return [args] { return run_export(*args); };
          }};
}

}  // namespace kpd::tool
