// llm: scores of endings (tasks.h). The conventions are lm-evaluation-harness's: TemplateLM._encode_pair,
// HFLM._loglikelihood_tokens, ConfigurableTask.process_results.
#include "kpd/base/clock.h"
#include "kpd/llm/tasks.h"

#include <algorithm>
#include <cmath>

#include "kpd/base/error.h"
#include "llm/text_scorer.h"

namespace kpd::llm {
namespace {

ScoredText encode(const text::Tokenizer& tokenizer, const std::string& context, const std::string& ending, size_t max_tokens) {
  const size_t end = context.find_last_not_of(" \t\n\r\v\f");
  const std::string_view kept = std::string_view(context).substr(0, end == std::string::npos ? 0 : end + 1);
  ScoredText line;
  line.tokens = tokenizer.encode(context + " " + ending);
  line.n_context = tokenizer.encode(kept).size();
  if (line.n_context == 0) {
    const auto first = tokenizer.bos() ? tokenizer.bos() : tokenizer.eos();
    if (!first)
      fail(ErrorCode::kInvalidArgument, "an empty context, and the tokenizer has neither BOS nor EOS to stand for it");
    line.tokens.insert(line.tokens.begin(), *first);
    line.n_context = 1;
  }
  if (line.n_context >= line.tokens.size()) fail(ErrorCode::kInvalidArgument, "an ending adds no token to its context");
  // The last token is predicted and not read.
  if (line.tokens.size() > max_tokens + 1) {
    const size_t excess = line.tokens.size() - max_tokens - 1;
    if (excess >= line.n_context)
      fail(ErrorCode::kInvalidArgument, "an ending is longer than the model's context of ", max_tokens, " tokens");
    line.tokens.erase(line.tokens.begin(), line.tokens.begin() + static_cast<std::ptrdiff_t>(excess));
    line.n_context -= excess;
  }
  return line;
}

std::vector<ScoredText> encode(const text::Tokenizer& tokenizer, const TaskItem& item, size_t max_tokens) {
  std::vector<ScoredText> lines;
  for (const std::string& ending : item.endings) lines.push_back(encode(tokenizer, item.context, ending, max_tokens));
  return lines;
}

size_t characters(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

ItemScore judge(const TaskItem& item, const std::vector<TextScore>& endings) {
  ItemScore score;
  double best = -INFINITY, best_norm = -INFINITY;
  for (size_t i = 0; i < endings.size(); ++i) {
    const double sum = endings[i].log_likelihood;
    const double norm = sum / static_cast<double>(std::max<size_t>(characters(item.endings[i]), 1));
    score.log_likelihoods.push_back(sum);
    if (sum > best) best = sum, score.pick = i;
    if (norm > best_norm) best_norm = norm, score.pick_norm = i;
  }
  score.greedy = endings[item.right].greedy;
  return score;
}

// Of shares: the standard error of the mean of zeros and ones.
double stderr_of(double share, size_t n) { return n > 1 ? std::sqrt(share * (1 - share) / static_cast<double>(n - 1)) : 0; }

void summarize(Task task, std::span<const TaskItem> items, TaskResult& result) {
  const size_t n = result.items.size();
  size_t right = 0, right_norm = 0;
  double sum = 0;
  for (size_t i = 0; i < n; ++i) {
    const ItemScore& score = result.items[i];
    right += task == Task::kLambada ? score.greedy : score.pick == items[i].right;
    right_norm += score.pick_norm == items[i].right;
    sum += score.log_likelihoods[items[i].right];
  }
  const auto count = static_cast<double>(n);
  result.acc = static_cast<double>(right) / count;
  result.acc_stderr = stderr_of(result.acc, n);
  if (task == Task::kLambada) {
    result.perplexity = std::exp(-sum / count);
  } else {
    result.acc_norm = static_cast<double>(right_norm) / count;
    result.acc_norm_stderr = stderr_of(result.acc_norm, n);
  }
}

}  // namespace

const char* task_name(Task task) { return task == Task::kHellaswag ? "hellaswag" : task == Task::kPiqa ? "piqa" : "lambada"; }

Task parse_task(const std::string& name) {
  for (const Task task : {Task::kHellaswag, Task::kPiqa, Task::kLambada}) {
    if (name == task_name(task)) return task;
  }
  fail(ErrorCode::kInvalidArgument, "the task '", name.substr(0, 60), "' is unknown; there are hellaswag, piqa, lambada");
}

TaskResult run_task(Model& model, const text::Tokenizer& tokenizer, Task task, std::span<const TaskItem> items,
                    const TaskOptions& options, const std::function<bool(size_t)>& progress) {
  if (items.empty()) fail(ErrorCode::kInvalidArgument, "no item to score");
  for (size_t i = 0; i < items.size(); ++i) {
    const size_t n = items[i].endings.size();
    if (n == 0) fail(ErrorCode::kInvalidArgument, "item ", i, " has no ending");
    if (items[i].right >= n)
      fail(ErrorCode::kInvalidArgument, "item ", i, ": the right ending is number ", items[i].right, " of ", n, ", from 0 on");
  }
  const auto start = Clock::now();
  std::vector<std::vector<ScoredText>> lines;
  std::vector<TextGroup> groups;
  size_t capacity = 0;
  for (const TaskItem& item : items) {
    lines.push_back(encode(tokenizer, item, model.description().max_context));
    TextGroup& group = groups.emplace_back();
    for (const ScoredText& line : lines.back()) group.push_back(&line);
    capacity = std::max(capacity, room_for(group, shared_tokens(group)));
  }
  TextScorer scorer(model, {options.chunk, options.cache, options.cache_layers}, capacity);
  TaskResult result;
  for (size_t i = 0; i < items.size(); ++i) {
    result.items.push_back(judge(items[i], scorer.score({&groups[i], 1})));
    scorer.forget();
    if (progress && !progress(i + 1)) break;
  }
  summarize(task, items, result);
  result.tokens = scorer.n_tokens();
  result.seconds = seconds_since(start);
  return result;
}

}  // namespace kpd::llm
