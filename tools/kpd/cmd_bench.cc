// tools: `kpd bench`, tokens per second of a language model, measured and named as llama-bench does it.
#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli.h"
#include "commands.h"
#include "kpd/base/clock.h"
#include "kpd/base/cpu.h"
#include "kpd/base/rng.h"
#include "kpd/base/version.h"
#include "model_options.h"
#include "progress.h"
#include "table.h"

namespace kpd::tool {
namespace {

struct BenchArgs {
  CommonOptions common;
  ModelOptions model;
  ModelArgs which;
  std::string prompt, generate, depth, repetitions;
  CacheOptions cache;
};

struct Measured {
  double mean = 0, deviation = 0;
};

Measured summarize(const std::vector<double>& values) {
  Measured m;
  for (const double v : values) m.mean += v / static_cast<double>(values.size());
  for (const double v : values) m.deviation += (v - m.mean) * (v - m.mean);
  m.deviation = values.size() > 1 ? std::sqrt(m.deviation / static_cast<double>(values.size() - 1)) : 0;
  return m;
}

class Bench {
 public:
  Bench(const BenchArgs& args, llm::Model& model, const std::string& kv, size_t depth, size_t capacity)
      : model_(model), chunk_(args.model.chunk()), depth_(depth), cache_(model.make_cache(kv, capacity)) {}

  // Tokens per second of `prompt` tokens read in chunks, or of `generated` tokens one by one, behind `depth` tokens.
  Measured run(size_t prompt, size_t generated, size_t repetitions) {
    const size_t missing = depth_ - std::min(depth_, cache_->length(0));
    progress_.emplace("bench", missing + (repetitions + 1) * (prompt + generated), "tokens");
    if (cache_->length(0) < depth_) read(depth_ - cache_->length(0));
    std::vector<double> speeds;
    for (size_t i = 0; i < repetitions + 1; ++i) {
      cache_->crop(0, depth_);
      const auto start = Clock::now();
      read(prompt);
      for (size_t t = 0; t < generated; ++t) step(1, llm::BatchPart::Want::kLast);
      const double seconds = seconds_since(start);
      // The first warms up caches and threads.
      if (i > 0) speeds.push_back(static_cast<double>(prompt + generated) / seconds);
    }
    progress_.reset();
    return summarize(speeds);
  }

 private:
  void step(size_t n, llm::BatchPart::Want want) {
    llm::BatchPart part{0, {}, {}, want, {}};
    for (size_t i = 0; i < n; ++i)
      part.tokens.push_back(static_cast<text::TokenId>(rng_.next_below(model_.description().n_vocabulary)));
    model_.forward(std::span<const llm::BatchPart>(&part, 1), *cache_);
    progress_->tick(n);
  }
  void read(size_t n) {
    for (size_t at = 0; at < n; at += chunk_)
      step(std::min(chunk_, n - at), at + chunk_ >= n ? llm::BatchPart::Want::kLast : llm::BatchPart::Want::kNone);
  }

  llm::Model& model_;
  size_t chunk_, depth_;
  std::unique_ptr<llm::KvCache> cache_;
  CounterRng rng_{1};
  std::optional<Progress> progress_;
};

// What was measured, in llama-bench's terms.
struct Row {
  size_t prompt, generated, depth;
  Measured speed;

  std::string name() const { return prompt > 0 ? fmt::format("pp{}", prompt) : fmt::format("tg{}", generated); }
  std::string test() const { return depth > 0 ? fmt::format("{} @ d{}", name(), depth) : name(); }
};

// GGUF's general.file_type: the mix of formats that the file was made as.
const char* file_type_name(uint64_t type) {
  static const std::map<uint64_t, const char*> kNames = {
      {0, "all F32"},       {1, "F16"},           {2, "Q4_0"},           {3, "Q4_1"},          {7, "Q8_0"},
      {8, "Q5_0"},          {9, "Q5_1"},          {10, "Q2_K - Medium"}, {11, "Q3_K - Small"}, {12, "Q3_K - Medium"},
      {13, "Q3_K - Large"}, {14, "Q4_K - Small"}, {15, "Q4_K - Medium"}, {16, "Q5_K - Small"}, {17, "Q5_K - Medium"},
      {18, "Q6_K"},         {21, "Q2_K - Small"}, {25, "IQ4_NL"},        {30, "IQ4_XS"},       {32, "BF16"}};
  const auto found = kNames.find(type);
  return found == kNames.end() ? nullptr : found->second;
}

// "135M", "1.5B".
std::string short_count(double n) {
  const bool billions = n >= 0.9995e9;
  const double value = n / (billions ? 1e9 : 1e6);
  return fmt::format("{:.{}f}{}", value, value < 10 && value != std::round(value) ? 1 : 0, billions ? "B" : "M");
}

// "qwen2 1.5B Q4_K - Medium". A file that does not say its type is of the one that most bytes have.
std::string model_type(const OpenedModel& model) {
  double parameters = 0;
  std::map<std::string, uint64_t> bytes;
  for (const io::WeightEntry& tensor : model.weights.tensors()) {
    parameters += static_cast<double>(tensor.count());
    bytes[block_type_info(tensor.type).name] += tensor.bytes.size();
  }
  std::string type;
  const io::GgufMetadata* const gguf = model.weights.gguf().get();
  if (gguf != nullptr && gguf->find("general.file_type") != nullptr) {
    if (const char* const name = file_type_name(gguf->number("general.file_type"))) type = name;
  }
  const auto most =
      std::max_element(bytes.begin(), bytes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  if (type.empty() && most != bytes.end()) type = most->first;
  return fmt::format("{} {} {}", model.description.family, short_count(parameters), type);
}

// What does not change from row to row.
struct Report {
  std::string path, type, kv;
  uint64_t size, parameters;
  size_t chunk;
  int threads;
  const char* arithmetic;

  nlohmann::ordered_json json(const Row& row) const {
    return {{"model_filename", path},
            {"model_type", type},
            {"model_size", size},
            {"model_n_params", parameters},
            {"n_batch", chunk},
            {"n_threads", threads},
            {"type_k", kv},
            {"arithmetic", arithmetic},
            {"isa", active_isa()},
            {"n_prompt", row.prompt},
            {"n_gen", row.generated},
            {"n_depth", row.depth},
            {"avg_ts", row.speed.mean},
            {"stddev_ts", row.speed.deviation}};
  }
  std::string text(const Row& row) const {
    return fmt::format("{:>8} {:>10.2f} +- {:.2f} tokens/s  (depth {}, {} threads)\n", row.name(), row.speed.mean,
                       row.speed.deviation, row.depth, threads);
  }
  // The columns of llama-bench in markdown; those of --json in csv.
  Table table() const {
    return Table({{.key = "model_filename", .head = ""},
                  {.key = "model_type", .head = "model", .left = true},
                  {.key = "model_size", .head = "size"},
                  {.key = "model_n_params", .head = "params"},
                  {.key = "n_batch", .head = ""},
                  {.key = "backend", .head = "backend", .left = true},
                  {.key = "n_threads", .head = "threads"},
                  {.key = "type_k", .head = ""},
                  {.key = "arithmetic", .head = ""},
                  {.key = "isa", .head = ""},
                  {.key = "n_prompt", .head = ""},
                  {.key = "n_gen", .head = ""},
                  {.key = "n_depth", .head = ""},
                  {.key = "test", .head = "test"},
                  {.key = "avg_ts", .head = "t/s"},
                  {.key = "stddev_ts", .head = ""}});
  }
  std::vector<Cell> cells(const Row& row) const {
    const auto n = static_cast<double>(parameters);
    return {path,
            type,
            {binary_size(size), fmt::format("{}", size)},
            {n < 1e9 ? fmt::format("{:.2f} M", n / 1e6) : fmt::format("{:.2f} B", n / 1e9), fmt::format("{}", parameters)},
            count_cell(chunk),
            "CPU",
            count_cell(static_cast<uint64_t>(threads)),
            kv,
            arithmetic,
            active_isa(),
            count_cell(row.prompt),
            count_cell(row.generated),
            count_cell(row.depth),
            row.test(),
            {fmt::format("{:.2f} ± {:.2f}", row.speed.mean, row.speed.deviation), row.speed.mean},
            {fmt::format("{:.2f}", row.speed.deviation), row.speed.deviation}};
  }
};

int run_bench(const BenchArgs& args) {
  const std::string path = args.which.model();
  const size_t prompt = parse_count("--prompt", args.prompt.empty() ? "512" : args.prompt, 0, 1 << 20);
  const size_t generate = parse_count("--generate", args.generate.empty() ? "64" : args.generate, 0, 1 << 20);
  const size_t depth = parse_count("--depth", args.depth.empty() ? "0" : args.depth, 0, 1 << 20);
  const size_t repetitions = parse_count("--repetitions", args.repetitions.empty() ? "5" : args.repetitions, 1, 1000);
  if (prompt == 0 && generate == 0) usage("--prompt and --generate are both 0: nothing to measure");
  const Format format = args.common.format();
  const int threads = args.common.threads();
  const std::string kv = args.cache.spec();
  OpenedModel opened = open_model(path);
  Report report{path, model_type(opened), kv, 0, 0, args.model.chunk(), threads, ""};
  LoadedModel loaded = load_model(std::move(opened), args.model.arithmetic(llm::Arithmetic::kFast), threads);
  report.size = loaded.model.file_bytes();
  report.parameters = loaded.model.n_parameters();
  report.arithmetic = llm::arithmetic_name(loaded.model.arithmetic());
  Bench bench(args, loaded.model, kv, depth, depth + std::max(prompt, generate) + 64);
  const Table table = report.table();
  if (format != Format::kText) fmt::print("{}", table.head(format));
  for (const auto& [p, g] : {std::pair(prompt, size_t{0}), std::pair(size_t{0}, generate)}) {
    if (p + g == 0) continue;
    const Row row{p, g, depth, bench.run(p, g, repetitions)};
    if (args.common.json) {
      fmt::print("{}\n", report.json(row).dump());
    } else {
      fmt::print("{}", format == Format::kText ? report.text(row) : table.row(format, report.cells(row)));
    }
    std::fflush(stdout);
  }
  if (format == Format::kMarkdown)
    fmt::print("\nbuild: kpd {} ({}, {} arithmetic, {} cache)\n", kVersion, active_isa(), report.arithmetic, report.kv);
  return kExitOk;
}

}  // namespace

Command bench_command() {
  return {"bench",
          "speed of a language model: reading a prompt, generating",
          {"kpd bench MODEL.gguf --prompt 128 --generate 64 --threads 2",
           "kpd bench -m MODEL.gguf -p 128 -n 64 -t 2 --format markdown"},
          [](CLI::App& app) {
            auto args = std::make_shared<BenchArgs>();
            args->which.add(app);
            add(app, "-p,--prompt", args->prompt, "N", "read N tokens (default 512; 0: leave out)");
            add(app, "-n,--generate", args->generate, "N", "generate N tokens (default 64; 0: leave out)");
            add(app, "-d,--depth", args->depth, "D", "behind D tokens that are in the cache already (default 0)");
            add(app, "-r,--repetitions", args->repetitions, "R", "measure R times (default 5)");
            args->cache.add(app);
            args->model.add_arithmetic(app, "fast");
            args->model.add_chunk(app);
            args->common.add_threads(app);
            args->common.add_json(app);
            args->common.add_format(app, ": llama-bench's columns in markdown");
            return [args] { return run_bench(*args); };
          }};
}

}  // namespace kpd::tool
