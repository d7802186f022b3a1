// tools: `kpd decode`, a compressed file back to tensors.
#include <chrono>
#include <memory>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli.h"
#include "commands.h"
#include "files.h"
#include "progress.h"

namespace kpd::tool {
namespace {

struct DecodeArgs {
  CommonOptions common;
  std::string in, out;
};

int run_decode(const DecodeArgs& args) {
  require(args.in, "IN", "");
  require(args.out, "OUT", "");
  tensor_format("OUT", args.out);
  refuse_same_file("OUT", args.out, args.in);
  const int threads = args.common.threads();

  const io::MappedFile file = map_input(args.in);
  const std::span<const uint8_t> stream = file.bytes();
  const auto start = std::chrono::steady_clock::now();
  const gradient::StreamInfo info = gradient::read_stream_info(stream, args.in);
  if (!info.is_file) {
    fail(ErrorCode::kUnsupported, args.in,
         ": byte 0: a message between machines; expected the file form, which carries its tensors' names and its seed");
  }
  check_holds("OUT", args.out, info.manifest);
  std::vector<float> values(info.elements());
  const auto spans = tensor_spans<float>(info.manifest, values);
  Progress progress("decode", values.size(), "numbers");
  gradient::DecodeReport report;
  uint64_t saturated = 0;
  for (size_t i = 0; i < spans.size(); ++i) {
    gradient::decode_file_tensor(stream, info, i, spans[i], threads, &report, args.in);
    saturated += report.saturated;
    progress.tick(spans[i].size());
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  saturated += write_tensors(args.out, info.manifest, values);
  progress.clear();

  if (args.common.json) {
    nlohmann::ordered_json object;
    object["elements"] = values.size();
    object["tensors"] = info.manifest.size();
    object["bytes"] = stream.size();
    object["saturated"] = saturated;
    object["seconds"] = seconds;
    object["threads"] = threads;
    fmt::print("{}\n", object.dump());
    return kExitOk;
  }
  fmt::print("{}: {} numbers in {} tensor{}, {:.3f} s\n", args.out, values.size(), info.manifest.size(),
             info.manifest.size() == 1 ? "" : "s", seconds);
  if (saturated != 0) fmt::print("  {} numbers beyond the range of their type were clamped\n", saturated);
  return kExitOk;
}

}  // namespace

Command decode_command() {
  return {"decode",
          "restore a compressed file to .npy, .safetensors or .f32",
          {"kpd mean --synthetic lognormal --dim 100000 --clients 1 --codec float32 --seed 1 --no-speed --out gradient.npy",
           "kpd encode gradient.npy gradient.kpdg --codec eden:bits=2 --seed 1", "kpd decode gradient.kpdg restored.npy"},
          [](CLI::App& app) {
            auto args = std::make_shared<DecodeArgs>();
            add_positional(app, "IN", args->in, "a file made by `kpd encode`");
            add_positional(app, "OUT", args->out, ".npy (one tensor), .safetensors (keeps names and types) or .f32");
            args->common.add_threads(app);
            args->common.add_json(app);
            return [args] { return run_decode(*args); };
          }};
}

}  // namespace kpd::tool
