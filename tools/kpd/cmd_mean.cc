// tools: `kpd mean`, the average of many clients' vectors through a codec: on files, or as an experiment on synthetic vectors.
#include <algorithm>
#include <memory>
#include <optional>

#include <fmt/format.h>

#include "cli.h"
#include "codec_options.h"
#include "commands.h"
#include "files.h"
#include "kpd/base/ascii.h"
#include "kpd/gradient/aggregate.h"
#include "mean/mean.h"
#include "progress.h"

namespace kpd::tool {
namespace {

constexpr uint64_t kMaxDim = uint64_t{1} << 36;
constexpr uint64_t kMaxClients = uint64_t{1} << 24;

struct MeanArgs {
  CommonOptions common;
  FileOptions options;
  std::vector<std::string> files, codecs, originals;
  std::string synthetic, dim, clients, trials, correlation, loss, link, weights, out, repeats, pattern, second, integers;
  bool speed = false;
  EngineOptions engine;
};

// "1Gbit", "100Mbit/s": gigabytes a second.
double parse_link(std::string_view text) {
  std::string lower = ascii_lower(text);
  if (lower.ends_with("/s")) lower.resize(lower.size() - 2);
  constexpr std::pair<std::string_view, double> kUnits[] = {{"kbit", 1e-6}, {"mbit", 1e-3}, {"gbit", 1}, {"tbit", 1e3}};
  for (const auto& [unit, gbit] : kUnits) {
    if (!lower.ends_with(unit)) continue;
    const std::string number = lower.substr(0, lower.size() - unit.size());
    return parse_real("--link", number, 1e-6, 1e9) * gbit / 8;
  }
  usage("--link ", text, ": expected a speed such as 1Gbit or 100Mbit (units: kbit, Mbit, Gbit, Tbit)");
}

LossPlan parse_loss(const std::string& text) {
  const std::vector<std::string> parts = split(text, ',');
  LossPlan plan;
  plan.fraction = parse_real("--loss", parts[0], 0, 1);
  plan.burst = parts.size() == 2 && parts[1] == "burst";
  if (parts.size() > 2 || (parts.size() == 2 && !plan.burst)) usage("--loss ", text, ": expected P or P,burst");
  return plan;
}

std::vector<double> parse_weights(const std::string& text, uint64_t clients) {
  std::vector<double> weights(clients, 1.0);
  if (!text.empty()) {
    const std::vector<std::string> parts = split(text, ',');
    if (parts.size() != clients) usage("--weights: ", parts.size(), " weights for ", clients, " clients");
    for (size_t i = 0; i < parts.size(); ++i) weights[i] = parse_real("--weights", parts[i], 0, 1e18);
  }
  double sum = 0;
  for (const double w : weights) sum += w;
  if (sum == 0) usage("--weights: all are 0");
  for (double& w : weights) w /= sum;
  return weights;
}

void check_packets(const gradient::CodecPolicy& policy) {
  if (!policy.by_name.empty()) usage("--loss: packets carry one codec; leave out --codec ", policy.by_name[0].first, "=SPEC");
  const gradient::Codec& codec = policy.base;
  const bool splits =
      codec.row().name == "eden" && (codec.params().flags & (gradient::kFlagDither | gradient::kFlagAllocate)) == 0;
  if (!splits) usage("--loss: ", codec.text(), " is not sent in packets; only eden without dither and allocate is");
}

void refuse_with_files(const std::string& value, const char* option) {
  if (!value.empty()) usage(option, " belongs to --synthetic; with files their own sizes and number count");
}

gradient::SyntheticSpec parse_synthetic(const MeanArgs& args, uint64_t seed) {
  gradient::SyntheticSpec spec = as_usage("--synthetic", [&] { return gradient::SyntheticSpec::parse(args.synthetic); });
  spec.seed = seed;
  if (!args.correlation.empty()) spec.correlation = parse_real("--correlation", args.correlation, 0, 1);
  if (spec.marginal == gradient::Marginal::kSparse && !args.correlation.empty() && spec.correlation != 1) {
    usage("--correlation ", args.correlation, ": sparse:K is the same vector for every client, so its correlation is 1");
  }
  if (spec.marginal == gradient::Marginal::kSparse) spec.correlation = 0;
  return spec;
}

std::unique_ptr<ClientSource> make_source(const MeanArgs& args, const std::shared_ptr<const ClientFiles>& files,
                                          uint64_t seed) {
  if (files) return file_source(files);
  const gradient::SyntheticSpec spec = parse_synthetic(args, seed);
  const uint64_t dim = parse_count("--dim", args.dim.empty() ? "65536" : args.dim, 1, kMaxDim);
  const uint64_t clients = parse_count("--clients", args.clients.empty() ? "10" : args.clients, 1, kMaxClients);
  return synthetic_source(spec, args.synthetic, dim, clients);
}

Integers parse_integers(const MeanArgs& args) {
  constexpr std::string_view kChoices[] = {"first", "mean"};
  if (args.integers.empty()) return Integers::kFirst;
  if (args.out.empty()) usage("--integers says what --out holds; give --out FILE");
  return static_cast<Integers>(parse_choice("--integers", args.integers, kChoices));
}

// Everything that the command line alone decides is checked before any file is read.
void check_options(const MeanArgs& args) {
  args.common.format();
  if (args.files.empty() && args.synthetic.empty()) usage("FILE... or --synthetic NAME is required");
  if (!args.files.empty() && !args.synthetic.empty())
    usage("--synthetic makes its own vectors; FILE... cannot be given with it");
  if (args.synthetic.empty()) {
    refuse_with_files(args.dim, "--dim");
    refuse_with_files(args.clients, "--clients");
    refuse_with_files(args.correlation, "--correlation");
    for (const std::string& file : args.files) {
      if (!file.ends_with(".kpdg")) args.options.input("FILE", input_path(file));
    }
  }
  parse_integers(args);
  if (!args.out.empty()) {
    args.options.output("--out", args.out);
    if (parse_codecs(args.codecs).size() != 1) usage("--out holds one mean; give one --codec");
    for (const std::string& file : args.files) refuse_same_file("--out", args.out, file);
    check_output("--out", args.out, args.options.force);
    if (!is_stream_name(args.out)) check_writable("--out", args.out);
  }
  if (!args.loss.empty()) {
    for (const gradient::CodecPolicy& policy : parse_codecs(args.codecs)) check_packets(policy);
  }
  if (!args.repeats.empty() && !args.speed && args.link.empty()) usage("--repeats belongs to --speed or --link");
}

MeanPlan make_plan(const MeanArgs& args, std::shared_ptr<const ClientFiles> files) {
  MeanPlan plan;
  plan.files = std::move(files);
  plan.codecs = parse_codecs(args.codecs);
  for (const gradient::CodecPolicy& policy : plan.codecs) plan.codec_texts.push_back(policy.text());
  const std::string default_trials = args.synthetic.empty() || !args.out.empty() ? "1" : "10";
  plan.trials = parse_count("--trials", args.trials.empty() ? default_trials : args.trials, 1, uint64_t{1} << 32);
  plan.keep_mean = !args.out.empty();
  if (plan.keep_mean && plan.trials != 1) usage("--out writes the mean of one trial; leave out --trials");
  plan.threads = args.common.threads();
  if (!args.loss.empty()) plan.loss = parse_loss(args.loss);
  if (!args.link.empty()) plan.link_gb_per_s = parse_link(args.link);
  // --link is computed from the speed.
  if (args.speed || !args.link.empty())
    plan.repeats = static_cast<int>(parse_count("--repeats", args.repeats.empty() ? "9" : args.repeats, 9, 999));
  if (args.synthetic.empty()) plan.weights = parse_weights(args.weights, args.files.size());
  plan.seed = args.common.seed();
  plan.source = make_source(args, plan.files, plan.seed);
  if (!args.synthetic.empty()) plan.weights = parse_weights(args.weights, plan.source->clients());
  plan.clients = plan.source->clients();
  note_idle_patterns(plan.codecs[0], plan.source->manifest());  // all have the same patterns
  if (plan.keep_mean) {
    check_holds("--out", args.out, args.options.output("--out", args.out),
                plan.files ? plan.files->manifest() : plan.source->manifest());
  }
  plan.dim = element_count(plan.source->manifest());
  return plan;
}

RankPlan make_rank_plan(const MeanArgs& args) {
  const std::pair<const char*, const std::string*> kNotThere[] = {
      {"--clients", &args.clients}, {"--loss", &args.loss}, {"--link", &args.link}, {"--repeats", &args.repeats}};
  for (const auto& [option, value] : kNotThere) {
    if (!value->empty()) usage(option, " does not belong to --comm");
  }
  if (args.speed) usage("--speed does not belong to --comm");
  if (!args.originals.empty()) usage("--original does not belong to --comm");
  if (!args.integers.empty()) usage("--integers does not belong to --comm");
  check_options(args);
  if (is_stream_name(args.out)) usage("--out -: with --comm name a file");
  RankPlan plan;
  for (const gradient::CodecPolicy& policy : parse_codecs(args.codecs)) {
    if (!policy.by_name.empty())
      usage("--codec ", policy.by_name[0].first, "=SPEC does not belong to --comm: all tensors have one codec");
    plan.codecs.push_back(policy.base);
    plan.codec_texts.push_back(policy.base.text());
  }
  plan.pattern = args.pattern.empty() ? "allgather" : args.pattern;
  as_usage("--pattern", [&] { return gradient::parse_pattern(plan.pattern); });
  if (!args.second.empty()) {
    if (plan.pattern != "sra") usage("--second belongs to --pattern sra");
    plan.second = as_usage("--second", [&] { return gradient::Codec::parse(args.second); });
  }
  plan.files = args.files;
  if (!args.synthetic.empty()) {
    plan.synthetic_text = args.synthetic;
    plan.dim = parse_count("--dim", args.dim.empty() ? "65536" : args.dim, 1, kMaxDim);
  }
  plan.trials = parse_count("--trials", args.trials.empty() ? "1" : args.trials, 1, 1 << 20);
  // All ranks need the same.
  plan.seed = args.common.seed_text.empty() ? 1 : args.common.seed();
  if (!args.synthetic.empty()) plan.synthetic = parse_synthetic(args, plan.seed);
  if (!args.weights.empty()) {
    for (const std::string& w : split(args.weights, ',')) plan.weights.push_back(parse_count("--weights", w, 1, 1u << 31));
  }
  plan.out = args.out;
  plan.existing = args.options.existing();
  // Ranks on one machine share its processors.
  plan.threads = args.common.threads_text.empty() ? 1 : args.common.threads();
  plan.json = args.common.json;
  plan.format = args.common.format();
  return plan;
}

void write_mean(const MeanArgs& args, const MeanPlan& plan, const CodecFigures& figures) {
  const io::TensorFormat format = args.options.output("--out", args.out);
  const std::span<const double> mean = figures.mean->as<double>();
  if (plan.files) {
    const uint64_t exact = plan.files->exact_elements();
    if (exact > 0 && args.integers.empty())
      fmt::print(stderr, "note: {} numbers are no floating point: {}'s are kept (--integers mean averages them)\n", exact,
                 plan.files->path(0));
    note_limited(args.out,
                 plan.files->write_mean(args.out, format, args.options.existing(), mean, plan.weights, parse_integers(args)));
  } else {
    TensorOutput output(args.out, format, plan.source->manifest(), {}, args.options.existing());
    const std::span<float> values = output.floats(0);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(mean[i]);
    output.commit();
  }
  if (is_stream_name(args.out)) send_reports_to_stderr();
}

// Files that are compressed already are decoded and averaged.
int mean_of_compressed(const MeanArgs& args, const ClientFiles& files) {
  const std::pair<const char*, bool> kOfCodecs[] = {{"--codec", !args.codecs.empty()},
                                                    {"--trials", !args.trials.empty()},
                                                    {"--loss", !args.loss.empty()},
                                                    {"--link", !args.link.empty()},
                                                    {"--speed", args.speed}};
  for (const auto& [option, given] : kOfCodecs) {
    if (given) usage(option, ": ", files.path(0), " is compressed already");
  }
  CompressedPlan plan;
  plan.weights = parse_weights(args.weights, files.size());
  plan.originals = args.originals;
  plan.options = args.options;
  plan.out = args.out;
  if (!args.out.empty()) plan.out_format = args.options.output("--out", args.out);
  plan.integers = parse_integers(args);
  plan.threads = args.common.threads();
  plan.json = args.common.json;
  plan.format = args.common.format();
  return run_compressed(plan, files);
}

int run_mean(MeanArgs args) {
  args.out = output_path(args.out);
  if (args.engine.used()) {
    choose_engine_program(args.engine, "mean");
    return run_ranks(make_rank_plan(args), args.engine);
  }
  args.engine.refuse_others();
  if (!args.pattern.empty()) usage("--pattern belongs to --comm ENGINE");
  if (!args.second.empty()) usage("--second belongs to --comm ENGINE");
  check_options(args);
  std::optional<Progress> reading;  // the trials and the speed have their own
  std::shared_ptr<const ClientFiles> files;
  if (!args.files.empty()) {
    reading.emplace("read", 0, "");
    parse_weights(args.weights, args.files.size());
    files = std::make_shared<const ClientFiles>(args.files, args.options);
  }
  reading.reset();
  if (files && files->compressed()) return mean_of_compressed(args, *files);
  if (!args.originals.empty()) usage("--original belongs to compressed files");
  const MeanPlan plan = make_plan(args, files);
  std::vector<CodecFigures> figures = run_trials(plan);
  if (plan.keep_mean) write_mean(args, plan, figures[0]);
  for (size_t k = 0; k < figures.size(); ++k) {
    if (plan.repeats > 0) {
      Progress progress("speed of " + plan.codec_texts[k], 0, "");
      figures[k].speed = measure_speed(plan, plan.codecs[k]);
    }
    if (args.common.json) print_mean_json(plan, k, figures[k]);
  }
  if (!args.common.json) print_mean_table(plan, figures, args.common.format());
  return kExitOk;
}

void add_options(CLI::App& app, MeanArgs& args) {
  add_positional(app, "FILE", args.files,
                 "one file a client: .npy, .safetensors or .f32, all of the same shapes, or a pipe, or -; or files of `kpd "
                 "encode`, which are decoded and averaged; with --comm one a rank, or one for "
                 "all, where {rank} in its name stands for the rank's number");
  add(app, "--codec", args.codecs, "SPEC",
      str("how to compress (default eden:bits=1; `kpd codecs` lists them); may be repeated: a row each; ", kPatternHelp));
  add(app, "--weights", args.weights, "W1,W2,...",
      "one weight a client (default: equal); with --comm one a rank, whole numbers from 1");
  add(app, "--out", args.out, "FILE", "write the decoded mean (.npy, .safetensors or .f32, or a pipe, or -)");
  args.options.add_as(app, "FILE and --out");
  args.options.add_force(app);
  add(app, "--integers", args.integers, "first|mean",
      "what --out holds of tensors that are no floating point: the first file's (default), or the rounded mean");
  add(app, "--original", args.originals, "FILE",
      "what a compressed FILE was made of, once for each of them in their order: shows their errors");
  add(app, "--synthetic", args.synthetic, "NAME",
      "make the vectors: lognormal, normal, exponential, sparse:K, halves:R (normal, the second half times R) or "
      "blocks:R1,R2,... (normal, equal parts times R1, R2, ...)");
  add(app, "--dim", args.dim, "D", "numbers in each synthetic vector (default 65536)");
  add(app, "--clients", args.clients, "N", "synthetic clients (default 10); not with --comm");
  add(app, "--correlation", args.correlation, "R", "of the synthetic clients, 0 to 1 (default 0; 1: identical)");
  add(app, "--trials", args.trials, "T",
      "rounds with new rotations and new synthetic vectors (default 10; 1 for files, --out and --comm; with --comm the vectors "
      "stay the same)");
  add(app, "--loss", args.loss, "P[,burst]",
      "send packets and drop this fraction of them, at random or in bursts; not with --comm");
  add(app, "--speed", args.speed, "measure the speed of the codecs too; not with --comm");
  add(app, "--link", args.link, "SPEED", "--speed, and when compression pays on a link, e.g. 1Gbit; not with --comm");
  add(app, "--repeats", args.repeats, "N", "turns of the speed measurement (default and least 9); not with --comm");
  args.engine.add(app);
  add(app, "--pattern", args.pattern, "NAME", "with --comm: gather, allgather (default) or sra (scatter-reduce-allgather)");
  add(app, "--second", args.second, "SPEC",
      "codec of the second hop of sra (default: the codec, with more bits if vectors agree)");
  args.common.add_seed(app, "; with --comm 1, for all ranks need the same");
  args.common.add_threads(app);
  args.common.add_json(app);
  args.common.add_format(app);
}

}  // namespace

Command mean_command() {
  return {"mean",
          "average many clients' vectors through a codec and measure it",
          {"kpd mean --synthetic lognormal --dim 2^16 --clients 10 --trials 5 --codec eden:bits=1 --codec float32 --seed 1",
           "kpd mean --synthetic normal --dim 100000 --clients 1 --codec float32 --seed 1 --out gradient-0.npy",
           "kpd mean --synthetic normal --dim 100000 --clients 1 --codec float32 --seed 2 --out gradient-1.npy",
           "kpd encode gradient-0.npy gradient-0.kpdg --seed 1 --client 0",
           "kpd encode gradient-1.npy gradient-1.kpdg --seed 1 --client 1",
           "kpd mean gradient-0.kpdg gradient-1.kpdg --out mean.npy"},
          [](CLI::App& app) {
            auto args = std::make_shared<MeanArgs>();
            add_options(app, *args);
            return [args] { return run_mean(*args); };
          }};
}

}  // namespace kpd::tool
