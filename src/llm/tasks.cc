// llm: scores of endings (tasks.h). The conventions are lm-evaluation-harness's: TemplateLM._encode_pair,
// HFLM._loglikelihood_tokens, ConfigurableTask.process_results.
#include "kpd/base/clock.h"
#include "kpd/llm/tasks.h"

#include <algorithm>
#include <cmath>

#include "kernels/llm_ops.h"
#include "kpd/base/error.h"
#include "kpd/base/threads.h"
#include "llm/log_probability.h"

namespace kpd::llm {
namespace {

// A context and one ending, in tokens.
struct Line {
  std::vector<text::TokenId> tokens;
  size_t n_context = 0;  // at least 1
};

Line encode(const text::Tokenizer& tokenizer, const std::string& context, const std::string& ending, size_t max_tokens) {
  const size_t end = context.find_last_not_of(" \t\n\r\v\f");
  const std::string_view kept = std::string_view(context).substr(0, end == std::string::npos ? 0 : end + 1);
  Line line;
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

std::vector<Line> encode(const text::Tokenizer& tokenizer, const TaskItem& item, size_t max_tokens) {
  std::vector<Line> lines;
  for (const std::string& ending : item.endings) lines.push_back(encode(tokenizer, item.context, ending, max_tokens));
  return lines;
}

// Tokens that all lines begin with and of which none wants logits.
size_t shared_tokens(const std::vector<Line>& lines) {
  size_t shared = lines[0].n_context - 1;
  for (const Line& line : lines) {
    shared = std::min(shared, line.n_context - 1);
    const auto end = lines[0].tokens.begin() + static_cast<std::ptrdiff_t>(shared);
    shared =
        static_cast<size_t>(std::mismatch(lines[0].tokens.begin(), end, line.tokens.begin()).first - lines[0].tokens.begin());
  }
  return shared;
}

size_t characters(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

struct EndingScore {
  double log_likelihood = 0;
  bool greedy = true;
};

class Scorer {
 public:
  Scorer(Model& model, const TaskOptions& options, size_t capacity)
      : model_(model), chunk_(options.chunk), cache_(model.make_cache(options.cache, capacity, options.cache_layers)) {}

  std::vector<EndingScore> score(const std::vector<Line>& lines) {
    const size_t shared = shared_tokens(lines);
    size_t longest = 0;
    for (const Line& line : lines) longest = std::max(longest, line.tokens.size() - 1);
    cache_->crop(0, 0);
    cache_->set_plan(0, plan_context(longest));
    read(std::span(lines[0].tokens).first(shared));
    std::vector<BatchPart> batch;
    for (size_t i = 0; i < lines.size(); ++i) {
      const Line& line = lines[i];
      const auto sequence = static_cast<SequenceId>(i + 1);
      cache_->fork(0, sequence, shared);
      cache_->set_plan(sequence, plan_context(longest));  // if nothing was shared, it has none yet
      BatchPart part{sequence,
                     {line.tokens.begin() + static_cast<std::ptrdiff_t>(shared), line.tokens.end() - 1},
                     {},
                     BatchPart::Want::kList,
                     {}};
      for (size_t t = line.n_context - 1; t + 1 < line.tokens.size(); ++t)
        part.rows.push_back(static_cast<uint32_t>(t - shared));
      n_tokens_ += part.tokens.size();
      batch.push_back(std::move(part));
    }
    const std::vector<EndingScore> scores = score_rows(lines, model_.forward(batch, *cache_));
    for (size_t i = 0; i <= lines.size(); ++i) cache_->crop(static_cast<SequenceId>(i), 0);
    return scores;
  }
  size_t n_tokens() const { return n_tokens_; }

 private:
  void read(std::span<const text::TokenId> tokens) {
    n_tokens_ += tokens.size();
    for (size_t at = 0; at < tokens.size(); at += chunk_) {
      const auto some = tokens.subspan(at, std::min(chunk_, tokens.size() - at));
      const BatchPart part{0, {some.begin(), some.end()}, {}, BatchPart::Want::kNone, {}};
      model_.forward(std::span<const BatchPart>(&part, 1), *cache_);
    }
  }

  std::vector<EndingScore> score_rows(const std::vector<Line>& lines, std::span<const float> logits) const {
    const size_t n = model_.description().n_vocabulary;
    std::vector<text::TokenId> targets;
    for (const Line& line : lines) {
      targets.insert(targets.end(), line.tokens.begin() + static_cast<std::ptrdiff_t>(line.n_context), line.tokens.end());
    }
    std::vector<EndingScore> rows(targets.size());
    parallel_for(rows.size(), model_.n_threads(), [&](size_t i, int) {
      const float* row = logits.data() + i * n;
      const float value = row[static_cast<size_t>(targets[i])];
      rows[i] = {static_cast<double>(value) - kernels::log_sum_exp(row, n), value >= kernels::max_value(row, n)};
    });
    std::vector<EndingScore> scores;
    for (size_t at = 0; const Line& line : lines) {
      EndingScore& score = scores.emplace_back();
      for (size_t t = line.n_context; t < line.tokens.size(); ++t, ++at) {
        check_log_probability(rows[at].log_likelihood, targets[at]);
        score.log_likelihood += rows[at].log_likelihood;
        score.greedy = score.greedy && rows[at].greedy;
      }
    }
    return scores;
  }

  Model& model_;
  size_t chunk_, n_tokens_ = 0;
  std::unique_ptr<KvCache> cache_;
};

ItemScore judge(const TaskItem& item, const std::vector<EndingScore>& endings) {
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
  std::vector<std::vector<Line>> lines;
  size_t capacity = 0;
  constexpr size_t kRounding = 128;  // a sequence's own blocks begin and end within one
  for (const TaskItem& item : items) {
    lines.push_back(encode(tokenizer, item, model.description().max_context));
    size_t tokens = lines.back()[0].tokens.size() + kRounding;
    for (const Line& line : lines.back()) tokens += line.tokens.size() + kRounding;
    capacity = std::max(capacity, tokens);
  }
  Scorer scorer(model, options, capacity);
  TaskResult result;
  for (size_t i = 0; i < items.size(); ++i) {
    result.items.push_back(judge(items[i], scorer.score(lines[i])));
    if (progress && !progress(i + 1)) break;
  }
  summarize(task, items, result);
  result.tokens = scorer.n_tokens();
  result.seconds = seconds_since(start);
  return result;
}

}  // namespace kpd::llm
