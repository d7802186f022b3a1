// tools: see eval_task.h.
#include "eval_task.h"

#include <filesystem>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "files.h"
#include "kpd/llm/tasks.h"
#include "kpd/llm/task_files.h"
#include "progress.h"
#include "signals.h"
#include "table.h"

namespace kpd::tool {
namespace {

using Json = nlohmann::ordered_json;

// PIQA comes as NAME.jsonl and NAME-labels.lst.
std::string labels_beside(const std::string& data) {
  std::filesystem::path path(data);
  path.replace_filename(path.stem().string() + "-labels.lst");
  std::error_code ignored;
  return std::filesystem::exists(path, ignored) ? path.string() : "";
}

std::vector<llm::TaskItem> read_items(const TaskArgs& args, llm::Task task) {
  const size_t limit = args.limit.empty() ? 0 : parse_count("--limit", args.limit, 1, 1 << 30);
  const io::MappedFile data = map_input(args.data);
  const std::string labels = !args.labels.empty() ? args.labels : task == llm::Task::kPiqa ? labels_beside(args.data) : "";
  io::MappedFile label_file;
  if (!labels.empty()) label_file = map_input(labels);
  return llm::read_task(task, data.text(), label_file.text(), args.data, limit);
}

Json to_json(const std::string& model, llm::Task task, const llm::TaskResult& r, const std::string& cache,
             const LoadedModel& loaded, bool items) {
  Json object = {{"model", model},
                 {"task", llm::task_name(task)},
                 {"items", r.items.size()},
                 {"arithmetic", llm::arithmetic_name(loaded.model.arithmetic())},
                 {"kv", cache},
                 {"threads", loaded.model.n_threads()},
                 {"acc", r.acc},
                 {"stderr", r.acc_stderr}};
  if (task == llm::Task::kLambada) {
    object["ppl"] = r.perplexity;
  } else {
    object["acc_norm"] = r.acc_norm;
    object["acc_norm_stderr"] = r.acc_norm_stderr;
  }
  object["tokens"] = r.tokens;
  object["seconds"] = r.seconds;
  object["tokens_per_s"] = static_cast<double>(r.tokens) / r.seconds;
  if (!items) return object;
  object["scores"] = Json::array();
  for (const llm::ItemScore& score : r.items) {
    object["scores"].push_back({{"pick", score.pick},
                                {"pick_norm", score.pick_norm},
                                {"greedy", score.greedy},
                                {"log_likelihoods", score.log_likelihoods}});
  }
  return object;
}

void print_text(const std::string& model, llm::Task task, const llm::TaskResult& r, const std::string& cache,
                const LoadedModel& loaded) {
  fmt::print("{}  kv {}, {} arithmetic\n  {}, {} items: acc {:.4f} +- {:.4f}", model, cache,
             llm::arithmetic_name(loaded.model.arithmetic()), llm::task_name(task), r.items.size(), r.acc, r.acc_stderr);
  if (task == llm::Task::kLambada) {
    fmt::print(", perplexity of the last word {:.3f}", r.perplexity);
  } else {
    fmt::print(", acc_norm {:.4f} +- {:.4f}", r.acc_norm, r.acc_norm_stderr);
  }
  fmt::print("  ({} tokens, {:.1f} tokens/s)\n", r.tokens, static_cast<double>(r.tokens) / r.seconds);
}

// Lambada has a perplexity where the others have an accuracy by length.
Table make_table(llm::Task task) {
  std::vector<Column> columns = {{.key = "model", .head = "model", .left = true},
                                 {.key = "task", .head = "task", .left = true},
                                 {.key = "items", .head = "items"},
                                 {.key = "arithmetic", .head = "arithmetic", .left = true},
                                 {.key = "kv", .head = "kv", .left = true},
                                 {.key = "threads", .head = ""},
                                 {.key = "acc", .head = "acc"},
                                 {.key = "stderr", .head = "+-"}};
  if (task == llm::Task::kLambada) {
    columns.push_back({.key = "ppl", .head = "ppl"});
  } else {
    columns.push_back({.key = "acc_norm", .head = "acc_norm"});
    columns.push_back({.key = "acc_norm_stderr", .head = "+-"});
  }
  columns.push_back({.key = "tokens", .head = "tokens"});
  columns.push_back({.key = "seconds", .head = ""});
  columns.push_back({.key = "tokens_per_s", .head = "t/s"});
  return Table(std::move(columns));
}

std::vector<Cell> table_row(const std::string& model, llm::Task task, const llm::TaskResult& r, const std::string& cache,
                            const LoadedModel& loaded) {
  std::vector<Cell> row = {model,
                           llm::task_name(task),
                           count_cell(r.items.size()),
                           llm::arithmetic_name(loaded.model.arithmetic()),
                           cache,
                           count_cell(static_cast<uint64_t>(loaded.model.n_threads())),
                           fixed_cell(r.acc, 4),
                           fixed_cell(r.acc_stderr, 4)};
  if (task == llm::Task::kLambada) {
    row.push_back(fixed_cell(r.perplexity, 3));
  } else {
    row.push_back(fixed_cell(r.acc_norm, 4));
    row.push_back(fixed_cell(r.acc_norm_stderr, 4));
  }
  row.push_back(count_cell(r.tokens));
  row.push_back(fixed_cell(r.seconds, 2));
  row.push_back(fixed_cell(static_cast<double>(r.tokens) / r.seconds, 1));
  return row;
}

}  // namespace

void TaskArgs::add_options(CLI::App& app) {
  add(app, "--task", task, "NAME", "instead of --text: hellaswag, piqa or lambada, scored as lm-eval does");
  add(app, "--data", data, "FILE", "the task's items: llama.cpp's hellaswag text, or JSON lines");
  add(app, "--labels", labels, "FILE", "piqa's labels (default: NAME-labels.lst beside NAME.jsonl)");
  add(app, "--limit", limit, "N", "the first N items (default: all)");
  add(app, "--items", items, "with --json: every item's scores too");
}

bool TaskArgs::chosen() const {
  if (!task.empty()) return true;
  if (!data.empty()) usage("--data belongs to --task");
  if (!labels.empty()) usage("--labels belongs to --task");
  if (!limit.empty()) usage("--limit belongs to --task; --windows limits a text");
  if (items) usage("--items belongs to --task");
  return false;
}

int run_tasks(const TaskArgs& args, const std::vector<std::string>& models, const std::vector<std::string>& caches,
              const std::vector<std::string>& kv_layers, const ModelOptions& options, const CommonOptions& common) {
  const llm::Task task = as_usage("--task", [&] { return llm::parse_task(args.task); });
  require(args.data, "--data", "FILE");
  if (!args.labels.empty() && task != llm::Task::kPiqa) usage("--labels belongs to --task piqa");
  if (args.items && !common.json) usage("--items belongs to --json");
  const bool compares = !caches.empty() || !kv_layers.empty();
  const llm::Arithmetic arithmetic = options.arithmetic(compares ? llm::Arithmetic::kExact : llm::Arithmetic::kFast);
  const std::vector<std::string> specs = caches.empty() ? std::vector<std::string>{"f32"} : caches;
  for (const std::string& cache : specs) check_kv_layers(cache, kv_layers);
  const size_t chunk = options.chunk();
  const int threads = common.threads();
  const Format format = common.format();
  const Table table = make_table(task);
  const std::vector<llm::TaskItem> items = read_items(args, task);
  const DeferInterrupt defer(true);
  if (format != Format::kText) fmt::print("{}", table.head(format));
  for (const std::string& path : models) {
    LoadedModel loaded = load_model(path, arithmetic, threads);
    check_kv_layers(specs[0], kv_layers, loaded.model);
    for (const std::string& cache : specs) {
      const std::string shown = kv_text(cache, kv_layers);
      std::optional<Progress> progress(std::in_place, "eval", items.size(), "items");
      const llm::TaskResult result = llm::run_task(loaded.model, loaded.tokenizer, task, items,
                                                   {.chunk = chunk, .cache = cache, .cache_layers = kv_layers}, [&](size_t) {
                                                     progress->tick();
                                                     return !interrupted();
                                                   });
      progress.reset();
      if (common.json) {
        fmt::print("{}\n", to_json(path, task, result, shown, loaded, args.items).dump());
      } else if (format != Format::kText) {
        fmt::print("{}", table.row(format, table_row(path, task, result, shown, loaded)));
      } else {
        print_text(path, task, result, shown, loaded);
      }
      std::fflush(stdout);
      if (interrupted()) {
        fmt::print(stderr, "interrupted: {} of {} items were scored\n", result.items.size(), items.size());
        return kExitInterrupt;
      }
    }
  }
  return kExitOk;
}

}  // namespace kpd::tool
