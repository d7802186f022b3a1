// tools: `kpd decode`, a compressed file back to tensors.
#include <memory>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "kpd/base/clock.h"

#include "cli.h"
#include "commands.h"
#include "files.h"
#include "kpd/gradient/file_decoder.h"
#include "progress.h"

namespace kpd::tool {
namespace {

struct DecodeArgs {
  CommonOptions common;
  FileOptions files;
  std::string in, out;
};

struct DecodeFigures {
  uint64_t elements = 0, exact = 0, tensors = 0, bytes = 0, saturated = 0;
  double seconds = 0;
  int threads = 1;
};

void report(const DecodeArgs& args, const DecodeFigures& f) {
  FILE* to = report_stream(args.out);
  if (args.common.json) {
    nlohmann::ordered_json object;
    object["elements"] = f.elements;
    object["exact_elements"] = f.exact;
    object["tensors"] = f.tensors;
    object["bytes"] = f.bytes;
    object["saturated"] = f.saturated;
    object["seconds"] = f.seconds;
    object["threads"] = f.threads;
    fmt::print(to, "{}\n", object.dump());
    return;
  }
  fmt::print(to, "{}: {} number{} in {} tensor{}, {:.3f} s\n", is_stream_name(args.out) ? "standard output" : args.out,
             f.elements, f.elements == 1 ? "" : "s", f.tensors, f.tensors == 1 ? "" : "s", f.seconds);
  if (f.saturated != 0) fmt::print(to, "  {} numbers beyond the range of their type were clamped\n", f.saturated);
}

int run_decode(DecodeArgs args) {
  require(args.in, "IN", "");
  require(args.out, "OUT", "");
  args.in = input_path(args.in);
  args.out = output_path(args.out);
  const io::TensorFormat format = args.files.output("OUT", args.out);
  refuse_same_file("OUT", args.out, args.in);
  check_output("OUT", args.out, args.files.force);
  DecodeFigures figures;
  figures.threads = args.common.threads();

  const io::MappedFile file = map_input(args.in);
  const std::span<const uint8_t> stream = file.bytes();
  const auto start = Clock::now();
  const gradient::StreamInfo info = gradient::read_stream_info(stream, args.in);
  if (!info.is_file) {
    fail(ErrorCode::kUnsupported, args.in,
         ": byte 0: a message between machines; expected the file form, which carries its tensors' names and its seed");
  }
  check_holds("OUT", args.out, format, info.manifest);
  figures.bytes = stream.size();
  figures.tensors = info.manifest.size();
  TensorOutput output(args.out, format, info.manifest, info.metadata, args.files.existing());
  gradient::FileDecoder decoder(stream, info, figures.threads, args.in);
  Progress progress("decode", info.elements(), "numbers");
  for (size_t i = 0; i < info.manifest.size(); ++i) {
    figures.elements += info.manifest[i].count();
    if (dtype_is_exact(info.manifest[i].dtype)) {
      const std::span<const uint8_t> bytes = gradient::decode_file_exact(stream, info, i);
      std::copy(bytes.begin(), bytes.end(), output.bytes(i).begin());
      figures.exact += info.manifest[i].count();
      continue;
    }
    gradient::DecodeReport decoded;
    decoder.decode(i, output.floats(i), &decoded);
    output.store(i);
    figures.saturated += decoded.saturated;
    progress.tick(info.manifest[i].count());
  }
  output.commit();
  progress.clear();
  figures.saturated += output.limited();
  figures.seconds = seconds_since(start);
  report(args, figures);
  return kExitOk;
}

}  // namespace

Command decode_command() {
  return {"decode",
          "restore a compressed file to .npy, .safetensors or .f32",
          {"kpd mean --synthetic lognormal --dim 100000 --clients 1 --codec float32 --seed 1 --out gradient.npy",
           "kpd encode gradient.npy gradient.kpdg --codec eden:bits=2 --seed 1", "kpd decode gradient.kpdg restored.npy"},
          [](CLI::App& app) {
            auto args = std::make_shared<DecodeArgs>();
            add_positional(app, "IN", args->in, "a file made by `kpd encode`, or a pipe, or -");
            add_positional(app, "OUT", args->out,
                           ".npy (one tensor), .safetensors (keeps names and all types) or .f32, or a pipe, or -");
            args->files.add_as(app, "OUT");
            args->files.add_force(app);
            args->common.add_threads(app);
            args->common.add_json(app);
            return [args] { return run_decode(*args); };
          }};
}

}  // namespace kpd::tool
