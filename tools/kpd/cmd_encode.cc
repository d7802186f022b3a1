// tools: `kpd encode`, tensors to one compressed file (docs/format/gradient.md, file form).
#include <memory>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli.h"
#include "codec_options.h"
#include "commands.h"
#include "files.h"
#include "kpd/base/clock.h"
#include "kpd/base/cpu.h"
#include "kpd/gradient/stream_info.h"
#include "progress.h"
#include "signals.h"

namespace kpd::tool {
namespace {

struct EncodeArgs {
  CommonOptions common;
  FileOptions files;
  std::vector<std::string> codecs;
  std::string in, out, client, round, nonfinite = "refuse";
};

void report_json(const EncodeArgs& args, const gradient::CodecPolicy& codec, const gradient::EncodeReport& report,
                 const gradient::FileIds& ids, double bits, double seconds) {
  nlohmann::ordered_json object;
  object["codec"] = codec.text();
  object["bits"] = codec.base.bits();
  object["elements"] = report.elements;
  object["bytes"] = report.stream_bytes;
  object["wire_bits_per_coordinate"] = bits;
  object["vnmse"] = report.vnmse();
  object["blocks"] = report.blocks;
  object["nonfinite"] = report.nonfinite;
  object["exact_elements"] = report.exact_elements;
  object["seed"] = ids.seed;
  object["round"] = ids.round;
  object["client"] = ids.client;
  object["seconds"] = seconds;
  object["threads"] = args.common.threads();
  object["isa"] = active_isa();
  fmt::print(report_stream(args.out), "{}\n", object.dump());
}

void report_text(const EncodeArgs& args, const gradient::EncodeReport& report, size_t tensors, const gradient::FileIds& ids,
                 double bits, double seconds) {
  FILE* to = report_stream(args.out);
  fmt::print(to,
             "{}: {} number{} in {} tensor{}, {} bytes, {:.4f} bits per number (all bytes), vnmse {:.5g}, seed {}, round {}, "
             "client {}, {:.3f} s\n",
             is_stream_name(args.out) ? "standard output" : args.out, report.elements, report.elements == 1 ? "" : "s", tensors,
             tensors == 1 ? "" : "s", report.stream_bytes, bits, report.vnmse(), ids.seed, ids.round, ids.client, seconds);
  if (report.nonfinite != 0) fmt::print(to, "  NaN or Inf: {} numbers ({})\n", report.nonfinite, args.nonfinite);
  if (report.exact_elements != 0)
    fmt::print(to, "  no floating point: {} numbers, {} bytes, as they are\n", report.exact_elements, report.exact_bytes);
}

gradient::FileIds file_ids(const EncodeArgs& args) {
  gradient::FileIds ids(0);
  if (!args.client.empty()) ids.client = parse_count("--client", args.client, 0, ~uint64_t{0});
  if (!args.round.empty()) ids.round = parse_count("--round", args.round, 0, ~uint64_t{0});
  ids.seed = args.common.seed();
  return ids;
}

int run_encode(EncodeArgs args) {
  require(args.in, "IN", "");
  require(args.out, "OUT", "");
  const gradient::CodecPolicy codec = parse_one_codec(args.codecs);
  constexpr std::string_view kPolicies[] = {"refuse", "zero", "pass"};
  gradient::EncodeOptions options;
  options.nonfinite = static_cast<gradient::NonFinite>(parse_choice("--nonfinite", args.nonfinite, kPolicies));
  options.threads = args.common.threads();
  args.in = input_path(args.in);
  args.out = output_path(args.out);
  const auto format = args.files.input("IN", args.in);
  refuse_same_file("OUT", args.out, args.in);
  // As `kpd encode *.npy` of a shell would have it, which takes the second file for OUT.
  for (const std::string_view name : {".npy", ".safetensors", ".f32"}) {
    if (args.out.ends_with(name))
      usage("OUT ", args.out, ": would hold compressed bytes, no ", name, " file; expected another name, e.g. ", args.out,
            ".kpdg");
  }
  check_output("OUT", args.out, args.files.force);
  const gradient::FileIds ids = file_ids(args);

  std::optional<Progress> progress(std::in_place, "encode", 0, "");  // a pipe is read to its end here
  const TensorInput input = open_tensors(args.in, format);
  options.metadata = input.file.metadata;
  options.on_progress = [&progress](uint64_t elements) { progress->tick(elements); };
  note_idle_patterns(codec, input.manifest);
  const auto start = Clock::now();
  gradient::EncodeReport report;
  try {
    gradient::Encoder encoder(input.manifest, codec, gradient::RunSecret{}, options);
    progress.emplace("encode", element_count(input.manifest), "numbers");
    io::MappedOutput output(args.out, encoder.max_bytes(), scratch_folder(), args.files.existing());
    const uint64_t bytes = encoder.encode_file(input.views, ids, output.bytes(), &report);
    // What a reader would refuse must not be written.
    gradient::read_stream_info(output.bytes().first(bytes), "encoded");
    const DeferInterrupt defer;
    check_interrupted();
    output.commit(bytes);
  } catch (const Error& e) {
    if (e.code() == ErrorCode::kIo || e.code() == ErrorCode::kCancelled) throw;
    const bool refused = std::string_view(e.what()).ends_with("is not finite");
    fail(e.code(), args.in, ": ", e.what(), refused ? " (--nonfinite zero or pass takes it)" : "");
  }
  const double seconds = seconds_since(start);
  progress.reset();

  const double bits =
      report.elements == 0 ? 0.0 : 8.0 * static_cast<double>(report.stream_bytes) / static_cast<double>(report.elements);
  if (args.common.json) {
    report_json(args, codec, report, ids, bits, seconds);
  } else {
    report_text(args, report, input.manifest.size(), ids, bits, seconds);
  }
  return kExitOk;
}

}  // namespace

Command encode_command() {
  return {"encode",
          "compress a .npy, .safetensors or .f32 file",
          {"kpd mean --synthetic lognormal --dim 100000 --clients 1 --codec float32 --seed 1 --out gradient-0.npy",
           "kpd mean --synthetic lognormal --dim 100000 --clients 1 --codec float32 --seed 2 --out gradient-1.npy",
           "kpd encode gradient-0.npy gradient-0.kpdg --codec eden:bits=2 --seed 1 --client 0",
           "kpd encode gradient-1.npy gradient-1.kpdg --codec eden:bits=2 --seed 1 --client 1"},
          [](CLI::App& app) {
            auto args = std::make_shared<EncodeArgs>();
            add_positional(app, "IN", args->in,
                           "tensors: .npy, .safetensors or .f32 (raw little-endian float32), or a pipe, or -");
            add_positional(app, "OUT", args->out, "the compressed file, e.g. gradient.kpdg, or a pipe, or -");
            add(app, "--codec", args->codecs, "SPEC",
                str("how to compress (default eden:bits=1; `kpd codecs` lists them); ", kPatternHelp, "; may be repeated"));
            add(app, "--nonfinite", args->nonfinite, "refuse|zero|pass",
                "NaN and Inf: refuse (default), send as 0, or send their tensors raw");
            args->common.add_seed(app);
            add(app, "--client", args->client, "N",
                "whose vector this is (default 0): files that will be averaged need different ones, or different seeds");
            add(app, "--round", args->round, "R", "which of a client's vectors this is (default 0)");
            args->files.add_as(app, "IN");
            args->files.add_force(app);
            args->common.add_threads(app);
            args->common.add_json(app);
            return [args] { return run_encode(*args); };
          }};
}

}  // namespace kpd::tool
