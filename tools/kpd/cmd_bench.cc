// tools: `kpd bench`, tokens per second of a language model, measured and named as llama-bench does it.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli.h"
#include "commands.h"
#include "kpd/base/cpu.h"
#include "kpd/base/rng.h"
#include "model_options.h"

namespace kpd::tool {
namespace {

struct BenchArgs {
  CommonOptions common;
  ModelOptions model;
  std::string path, prompt, generate, depth, repetitions, kv;
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
  Bench(const BenchArgs& args, llm::Model& model, size_t depth, size_t capacity)
      : model_(model),
        chunk_(args.model.chunk()),
        depth_(depth),
        cache_(as_usage("--kv", [&] { return model.make_cache(args.kv.empty() ? "f16" : args.kv, capacity); })) {}

  // Tokens per second of `prompt` tokens read in chunks, or of `generated` tokens one by one, behind `depth` tokens.
  Measured run(size_t prompt, size_t generated, size_t repetitions) {
    if (cache_->length(0) < depth_) read(depth_ - cache_->length(0));
    std::vector<double> speeds;
    for (size_t i = 0; i < repetitions + 1; ++i) {
      cache_->crop(0, depth_);
      const auto start = std::chrono::steady_clock::now();
      read(prompt);
      for (size_t t = 0; t < generated; ++t) step(1, llm::BatchPart::Want::kLast);
      const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      // The first warms up caches and threads.
      if (i > 0) speeds.push_back(static_cast<double>(prompt + generated) / seconds);
    }
    return summarize(speeds);
  }

 private:
  void step(size_t n, llm::BatchPart::Want want) {
    llm::BatchPart part{0, {}, {}, want, {}};
    for (size_t i = 0; i < n; ++i)
      part.tokens.push_back(static_cast<llm::TokenId>(rng_.next_below(model_.description().n_vocabulary)));
    model_.forward(std::span<const llm::BatchPart>(&part, 1), *cache_);
  }
  void read(size_t n) {
    for (size_t at = 0; at < n; at += chunk_)
      step(std::min(chunk_, n - at), at + chunk_ >= n ? llm::BatchPart::Want::kLast : llm::BatchPart::Want::kNone);
  }

  llm::Model& model_;
  size_t chunk_, depth_;
  std::unique_ptr<llm::KvCache> cache_;
  CounterRng rng_{1};
};

int run_bench(const BenchArgs& args) {
  if (args.path.empty()) usage("MODEL is required: a GGUF file or a Hugging Face folder");
  const size_t prompt = parse_count("--prompt", args.prompt.empty() ? "512" : args.prompt, 0, 1 << 20);
  const size_t generate = parse_count("--generate", args.generate.empty() ? "64" : args.generate, 0, 1 << 20);
  const size_t depth = parse_count("--depth", args.depth.empty() ? "0" : args.depth, 0, 1 << 20);
  const size_t repetitions = parse_count("--repetitions", args.repetitions.empty() ? "5" : args.repetitions, 1, 1000);
  if (prompt == 0 && generate == 0) usage("--prompt and --generate are both 0: nothing to measure");
  const int threads = args.common.threads();
  LoadedModel loaded = load_model(args.path, args.model.arithmetic(llm::Arithmetic::kFast), threads);
  Bench bench(args, loaded.model, depth, depth + std::max(prompt, generate) + 64);
  for (const auto& [p, g] : {std::pair(prompt, size_t{0}), std::pair(size_t{0}, generate)}) {
    if (p + g == 0) continue;
    const Measured m = bench.run(p, g, repetitions);
    if (args.common.json) {
      const nlohmann::ordered_json object = {{"model_filename", args.path},
                                             {"model_size", loaded.model.file_bytes()},
                                             {"model_n_params", loaded.model.n_parameters()},
                                             {"n_batch", args.model.chunk()},
                                             {"n_threads", threads},
                                             {"type_k", args.kv.empty() ? "f16" : args.kv},
                                             {"arithmetic", llm::arithmetic_name(loaded.model.arithmetic())},
                                             {"isa", active_isa()},
                                             {"n_prompt", p},
                                             {"n_gen", g},
                                             {"n_depth", depth},
                                             {"avg_ts", m.mean},
                                             {"stddev_ts", m.deviation}};
      fmt::print("{}\n", object.dump());
    } else {
      fmt::print("{:>8} {:>10.2f} +- {:.2f} tokens/s  (depth {}, {} threads)\n",
                 p > 0 ? fmt::format("pp{}", p) : fmt::format("tg{}", g), m.mean, m.deviation, depth, threads);
    }
    std::fflush(stdout);
  }
  return kExitOk;
}

}  // namespace

Command bench_command() {
  return {"bench",
          "speed of a language model: reading a prompt, generating",
          {"kpd bench MODEL.gguf --prompt 512 --generate 64 --threads 2"},
          [](CLI::App& app) {
            auto args = std::make_shared<BenchArgs>();
            add_positional(app, "MODEL", args->path, "GGUF file or Hugging Face folder");
            add(app, "--prompt", args->prompt, "N", "read N tokens (default 512; 0: leave out)");
            add(app, "--generate", args->generate, "N", "generate N tokens (default 64; 0: leave out)");
            add(app, "--depth", args->depth, "D", "behind D tokens that are in the cache already (default 0)");
            add(app, "--repetitions", args->repetitions, "R", "measure R times (default 5)");
            add(app, "--kv", args->kv, "SPEC", "cache of keys and values: f16 (default), bf16, f32");
            args->model.add_arithmetic(app, "fast");
            args->model.add_chunk(app);
            args->common.add_threads(app);
            args->common.add_json(app);
            return [args] { return run_bench(*args); };
          }};
}

}  // namespace kpd::tool
