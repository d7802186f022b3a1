// tools: `kpd eval`, how good a language model is: perplexity of a text, divergence from a reference, tasks (eval_task.cc).
#include <chrono>
#include <cmath>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli.h"
#include "commands.h"
#include "eval_task.h"
#include "files.h"
#include "kpd/io/file.h"
#include "kpd/llm/evaluate.h"
#include "model_options.h"
#include "progress.h"
#include "signals.h"
#include "table.h"

namespace kpd::tool {
namespace {

struct EvalArgs {
  CommonOptions common;
  ModelOptions model;
  TaskArgs task;
  ModelArgs which;
  std::vector<std::string> protocols, caches, kv_layers;
  std::string text, ctx, windows, reference;
};

struct Configuration {
  std::string model;
  llm::EvaluationPlan plan;
};

double tokens_per_second(const Configuration& c, const llm::Evaluation& e) {
  return static_cast<double>(e.windows * c.plan.context) / e.seconds;
}

nlohmann::ordered_json to_json(const Configuration& c, const llm::Evaluation& e, llm::Arithmetic arithmetic, int threads) {
  nlohmann::ordered_json object;
  object["model"] = c.model;
  object["protocol"] = llm::protocol_name(c.plan.protocol);
  object["ctx"] = c.plan.context;
  object["windows"] = e.windows;
  object["tokens"] = e.tokens;
  object["arithmetic"] = llm::arithmetic_name(arithmetic);
  object["kv"] = kv_text(c.plan.cache, c.plan.cache_layers);
  object["threads"] = threads;
  object["ppl"] = e.perplexity;
  object["ppl_stderr"] = e.perplexity_stderr;
  if (e.compared) {
    object["kld_mean"] = e.kld_mean;
    object["kld_stderr"] = e.kld_stderr;
    object["kld_median"] = e.kld_median;
    object["kld_p90"] = e.kld_p90;
    object["kld_p99"] = e.kld_p99;
    object["kld_p999"] = e.kld_p999;
    object["kld_max"] = e.kld_max;
    object["same_top1"] = e.same_top1;
    object["ln_ppl_ratio"] = e.ln_ppl_ratio;
  }
  object["buckets"] = nlohmann::ordered_json::array();
  for (const llm::Bucket& b : e.buckets) {
    const auto n = static_cast<double>(b.tokens);
    nlohmann::ordered_json bucket = {{"from", b.from}, {"to", b.to}, {"tokens", b.tokens}, {"ppl", std::exp(b.loss_sum / n)}};
    if (e.compared) bucket["kld_mean"] = b.kld_sum / n;
    object["buckets"].push_back(bucket);
  }
  object["seconds"] = e.seconds;
  object["tokens_per_s"] = tokens_per_second(c, e);
  return object;
}

void print_text(const Configuration& c, const llm::Evaluation& e, llm::Arithmetic arithmetic) {
  fmt::print("{}  kv {}, {} arithmetic\n  {}\n", c.model, kv_text(c.plan.cache, c.plan.cache_layers),
             llm::arithmetic_name(arithmetic), llm::protocol_definition(c.plan.protocol));
  fmt::print("  perplexity {:.4f} +- {:.4f}  ({} windows of {}, {} tokens scored, {:.1f} tokens/s)\n", e.perplexity,
             e.perplexity_stderr, e.windows, c.plan.context, e.tokens, tokens_per_second(c, e));
  if (e.compared) {
    fmt::print("  against the reference ({:.4f}): ln(ppl ratio) {:+.5f}, same top 1 {:.2f} %\n", e.reference_perplexity,
               e.ln_ppl_ratio, 100 * e.same_top1);
    fmt::print("  KL divergence: mean {:.5f} +- {:.5f}, median {:.5f}, 90 % {:.5f}, 99 % {:.5f}, 99.9 % {:.5f}, max {:.4f}\n",
               e.kld_mean, e.kld_stderr, e.kld_median, e.kld_p90, e.kld_p99, e.kld_p999, e.kld_max);
  }
  for (const llm::Bucket& b : e.buckets) {
    const auto n = static_cast<double>(b.tokens);
    fmt::print("    positions {:>5} to {:>5}: perplexity {:.3f}", b.from, b.to - 1, std::exp(b.loss_sum / n));
    fmt::print("{}\n", e.compared ? fmt::format(", KL {:.5f}", b.kld_sum / n) : "");
  }
}

// One row a model, protocol and cache. Quantiles, threads and seconds are in csv only.
Table make_table(bool compared) {
  std::vector<Column> columns = {{.key = "model", .head = "model", .left = true},
                                 {.key = "protocol", .head = "protocol", .left = true},
                                 {.key = "ctx", .head = "ctx"},
                                 {.key = "windows", .head = "windows"},
                                 {.key = "tokens", .head = "tokens"},
                                 {.key = "arithmetic", .head = "arithmetic", .left = true},
                                 {.key = "kv", .head = "kv", .left = true},
                                 {.key = "threads", .head = ""},
                                 {.key = "ppl", .head = "ppl"},
                                 {.key = "ppl_stderr", .head = "+-"}};
  if (compared) {
    for (const Column& column : std::vector<Column>{{.key = "kld_mean", .head = "KLD"},
                                                    {.key = "kld_stderr", .head = "+-"},
                                                    {.key = "kld_median", .head = ""},
                                                    {.key = "kld_p90", .head = ""},
                                                    {.key = "kld_p99", .head = "KLD 99 %"},
                                                    {.key = "kld_p999", .head = ""},
                                                    {.key = "kld_max", .head = "KLD max"},
                                                    {.key = "same_top1", .head = "same top 1"},
                                                    {.key = "ln_ppl_ratio", .head = "ln(ppl ratio)"}})
      columns.push_back(column);
  }
  columns.push_back({.key = "seconds", .head = ""});
  columns.push_back({.key = "tokens_per_s", .head = "t/s"});
  return Table(std::move(columns));
}

std::vector<Cell> table_row(const Configuration& c, const llm::Evaluation& e, llm::Arithmetic arithmetic, int threads) {
  std::vector<Cell> row = {c.model,
                           llm::protocol_name(c.plan.protocol),
                           count_cell(c.plan.context),
                           count_cell(e.windows),
                           count_cell(e.tokens),
                           llm::arithmetic_name(arithmetic),
                           kv_text(c.plan.cache, c.plan.cache_layers),
                           count_cell(static_cast<uint64_t>(threads)),
                           fixed_cell(e.perplexity, 4),
                           fixed_cell(e.perplexity_stderr, 4)};
  if (e.compared) {
    for (const double v : {e.kld_mean, e.kld_stderr, e.kld_median, e.kld_p90, e.kld_p99, e.kld_p999, e.kld_max, e.same_top1})
      row.push_back(fixed_cell(v, 5));
    row.push_back(fixed_cell(e.ln_ppl_ratio, 5));
  }
  row.push_back(fixed_cell(e.seconds, 2));
  row.push_back(fixed_cell(tokens_per_second(c, e), 1));
  return row;
}

std::vector<Configuration> make_configurations(const EvalArgs& args) {
  const std::vector<std::string> models = args.which.models();
  require(args.text, "--text", "FILE");
  llm::EvaluationPlan plan;
  plan.context = parse_context(args.ctx.empty() ? "2048" : args.ctx, 4);
  plan.max_windows = args.windows.empty() ? 0 : parse_count("--windows", args.windows, 1, 1 << 30);
  plan.chunk = args.model.chunk();
  const std::vector<std::string> protocols = args.protocols.empty() ? std::vector<std::string>{"paper"} : args.protocols;
  const std::vector<std::string> caches = args.caches.empty() ? std::vector<std::string>{"f32"} : args.caches;
  std::vector<Configuration> all;
  for (const std::string& model : models) {
    for (const std::string& protocol : protocols) {
      for (const std::string& cache : caches) {
        plan.protocol = as_usage("--protocol", [&] { return llm::parse_protocol(protocol); });
        plan.cache = cache;
        plan.cache_layers = args.kv_layers;
        check_kv_layers(cache, args.kv_layers);
        all.push_back({model, plan});
      }
    }
  }
  return all;
}

int run_eval_task(const EvalArgs& args) {
  const std::vector<std::string> models = args.which.models();
  if (!args.text.empty() || !args.reference.empty() || !args.protocols.empty() || !args.ctx.empty() || !args.windows.empty())
    usage("--task: --text, --protocol, --ctx, --windows and --reference belong to perplexity; give one or the other");
  return run_tasks(args.task, models, args.caches, args.kv_layers, args.model, args.common);
}

int run_eval(const EvalArgs& args) {
  if (args.task.chosen()) return run_eval_task(args);
  const std::vector<Configuration> all = make_configurations(args);
  const int threads = args.common.threads();
  const bool compares = !args.reference.empty() || !args.caches.empty() || !args.kv_layers.empty();
  const llm::Arithmetic arithmetic = args.model.arithmetic(compares ? llm::Arithmetic::kExact : llm::Arithmetic::kFast);
  const Format format = args.common.format();
  const Table table = make_table(!args.reference.empty());
  const io::MappedFile file = map_text(args.text);
  const std::string_view text = file.text();
  std::optional<LoadedModel> reference;
  if (!args.reference.empty()) reference = load_model(args.reference, llm::Arithmetic::kExact, threads);
  std::optional<LoadedModel> loaded;
  std::string loaded_path;
  std::optional<llm::Protocol> tokens_of;
  std::vector<text::TokenId> tokens;
  const DeferInterrupt defer(true);
  if (format != Format::kText) fmt::print("{}", table.head(format));
  for (const Configuration& c : all) {
    if (c.model != loaded_path) {
      loaded.reset();
      loaded = load_model(c.model, arithmetic, threads);
      check_interrupted();
      loaded_path = c.model;
      check_kv_layers(c.plan.cache, c.plan.cache_layers, loaded->model);
      tokens_of.reset();
    }
    if (tokens_of != c.plan.protocol) {
      const Progress progress("tokenize", 0, "");
      tokens = loaded->tokenizer.encode(llm::protocol_text(c.plan.protocol, text), llm::protocol_encoding(c.plan.protocol));
      tokens_of = c.plan.protocol;
    }
    const std::optional<text::TokenId> bos = loaded->tokenizer.adds_bos() ? loaded->tokenizer.bos() : std::nullopt;
    const auto windows = as_usage("--ctx", [&] { return llm::make_windows(c.plan, tokens, bos); });
    std::optional<Progress> progress(std::in_place, "eval", windows.size(), "windows");
    const llm::Evaluation e =
        llm::evaluate(loaded->model, reference ? &reference->model : nullptr, c.plan, windows, [&](size_t) {
          progress->tick();
          return !interrupted();
        });
    progress.reset();
    if (args.common.json) {
      fmt::print("{}\n", to_json(c, e, arithmetic, threads).dump());
    } else if (format != Format::kText) {
      fmt::print("{}", table.row(format, table_row(c, e, arithmetic, threads)));
    } else {
      print_text(c, e, arithmetic);
    }
    std::fflush(stdout);
    if (interrupted()) {
      if (e.windows < windows.size())
        fmt::print(stderr, "interrupted: {} of {} windows were evaluated\n", e.windows, windows.size());
      return kExitInterrupt;
    }
  }
  return kExitOk;
}

}  // namespace

Command eval_command() {
  return {"eval",
          "perplexity of a language model on a text, divergence from a reference, tasks",
          {"kpd eval MODEL.gguf --text wiki.txt --protocol llama.cpp --ctx 256 --windows 4"},
          [](CLI::App& app) {
            auto args = std::make_shared<EvalArgs>();
            args->which.add(app, "; several are evaluated one after the other");
            add(app, "--text", args->text, "FILE", "text to predict (UTF-8); -: standard input");
            add(app, "--protocol", args->protocols, "NAME", "paper (default) or llama.cpp; may be given twice");
            add(app, "-c,--ctx", args->ctx, "N", "tokens of a window (default 2048)");
            add(app, "--windows", args->windows, "K", "at most K windows (default: all)");
            add(app, "--reference", args->reference, "MODEL2",
                "also the KL divergence of MODEL from MODEL2 (exact, f32 cache)");
            add(app, "--kv", args->caches, "SPEC",
                str("cache of keys and values: ", kCacheNames, " (default f32); may be given several times"));
            add(app, "--kv-layer", args->kv_layers, "LAYERS=SPEC",
                "another cache for some layers, by number from 0: 0,29=f32 or 4-7=bf16; may be given several times");
            args->task.add_options(app);
            args->model.add_arithmetic(app, "exact with --reference, --kv or --kv-layer, else fast, also for several models");
            args->model.add_chunk(app);
            args->common.add_threads(app);
            args->common.add_json(app);
            args->common.add_format(app);
            return [args] { return run_eval(*args); };
          }};
}

}  // namespace kpd::tool
