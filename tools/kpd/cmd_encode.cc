// tools: `kpd encode`, tensors to one compressed file (docs/format/gradient.md, file form).
#include <chrono>
#include <memory>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli.h"
#include "codec_options.h"
#include "commands.h"
#include "files.h"
#include "kpd/base/cpu.h"
#include "progress.h"

namespace kpd::tool {
namespace {

struct EncodeArgs {
  CommonOptions common;
  std::vector<std::string> codecs;
  std::string in, out, nonfinite = "refuse";
};

void report_json(const EncodeArgs& args, const gradient::CodecPolicy& codec, const gradient::EncodeReport& report,
                 uint64_t seed, double bits, double seconds) {
  nlohmann::ordered_json object;
  object["codec"] = codec.text();
  object["bits"] = codec.base.bits();
  object["elements"] = report.elements;
  object["bytes"] = report.stream_bytes;
  object["wire_bits_per_coordinate"] = bits;
  object["vnmse"] = report.vnmse();
  object["blocks"] = report.blocks;
  object["reseeded"] = report.reseeded;
  object["over_limit"] = report.over_limit;
  object["nonfinite"] = report.nonfinite;
  object["seed"] = seed;
  object["seconds"] = seconds;
  object["threads"] = args.common.threads();
  object["isa"] = active_isa();
  fmt::print("{}\n", object.dump());
}

int run_encode(const EncodeArgs& args) {
  require(args.in, "IN", "");
  require(args.out, "OUT", "");
  const gradient::CodecPolicy codec = parse_one_codec(args.codecs);
  constexpr std::string_view kPolicies[] = {"refuse", "zero", "pass"};
  gradient::EncodeOptions options;
  options.nonfinite = static_cast<gradient::NonFinite>(parse_choice("--nonfinite", args.nonfinite, kPolicies));
  options.threads = args.common.threads();
  tensor_format("IN", args.in);
  refuse_same_file("OUT", args.out, args.in);
  // As `kpd encode *.npy` of a shell would have it, which takes the second file for OUT.
  for (const std::string_view name : {".npy", ".safetensors", ".f32"}) {
    if (args.out.ends_with(name))
      usage("OUT ", args.out, ": would hold compressed bytes, no ", name, " file; expected another name, e.g. ", args.out,
            ".kpdg");
  }
  const uint64_t seed = args.common.seed();

  Progress progress("encode", 0, "");
  const Tensors tensors = read_tensors(args.in);
  const auto start = std::chrono::steady_clock::now();
  std::vector<uint8_t> stream;
  gradient::EncodeReport report;
  try {
    gradient::Encoder encoder(tensors.manifest, codec, gradient::RunSecret{}, options);
    stream.resize(encoder.max_bytes());
    stream.resize(encoder.encode_file(tensor_views(tensors.manifest, tensors.values), seed, stream, &report));
    // What a reader would refuse must not be written.
    gradient::read_stream_info(stream, "encoded");
  } catch (const Error& e) {
    const bool refused = std::string_view(e.what()).ends_with("is not finite");
    fail(e.code(), args.in, ": ", e.what(), refused ? " (--nonfinite zero or pass takes it)" : "");
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  write_bytes(args.out, stream);
  progress.clear();

  const double bits =
      report.elements == 0 ? 0.0 : 8.0 * static_cast<double>(stream.size()) / static_cast<double>(report.elements);
  if (args.common.json) {
    report_json(args, codec, report, seed, bits, seconds);
    return kExitOk;
  }
  fmt::print("{}: {} numbers in {} tensor{}, {} bytes, {:.4f} bits per number (all bytes), vnmse {:.5g}, seed {}, {:.3f} s\n",
             args.out, report.elements, tensors.manifest.size(), tensors.manifest.size() == 1 ? "" : "s", stream.size(), bits,
             report.vnmse(), seed, seconds);
  if (report.reseeded != 0 || report.over_limit != 0) {
    fmt::print("  rotations drawn again: {} of {} blocks; {} stay beyond 4 x the error limit\n", report.reseeded, report.blocks,
               report.over_limit);
  }
  if (report.nonfinite != 0) fmt::print("  NaN or Inf: {} numbers ({})\n", report.nonfinite, args.nonfinite);
  return kExitOk;
}

}  // namespace

Command encode_command() {
  return {"encode",
          "compress a .npy, .safetensors or .f32 file",
          {"kpd mean --synthetic lognormal --dim 100000 --clients 1 --codec float32 --seed 1 --no-speed --out gradient.npy",
           "kpd encode gradient.npy gradient.kpdg --codec eden:bits=2 --seed 1"},
          [](CLI::App& app) {
            auto args = std::make_shared<EncodeArgs>();
            add_positional(app, "IN", args->in, "tensors: .npy, .safetensors or .f32 (raw little-endian float32)");
            add_positional(app, "OUT", args->out, "the compressed file, e.g. gradient.kpdg");
            add(app, "--codec", args->codecs, "SPEC",
                str("how to compress (default eden:bits=1; `kpd codecs` lists them); ", kPatternHelp, "; may be repeated"));
            add(app, "--nonfinite", args->nonfinite, "refuse|zero|pass",
                "NaN and Inf: refuse (default), send as 0, or send their tensors raw");
            args->common.add_seed(app);
            args->common.add_threads(app);
            args->common.add_json(app);
            return [args] { return run_encode(*args); };
          }};
}

}  // namespace kpd::tool
