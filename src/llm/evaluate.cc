// llm: perplexity and divergence. A window's logits are made in chunks and used at once; nothing of vocabulary size is kept per
// token.
#include "kpd/base/clock.h"
#include "kpd/llm/evaluate.h"

#include <algorithm>
#include <cmath>

#include "kernels/llm_ops.h"
#include "kpd/base/error.h"
#include "kpd/base/threads.h"
#include "kpd/text/text_file.h"
#include "llm/log_probability.h"

namespace kpd::llm {
namespace {

// What is known of one scored token.
struct Score {
  double loss = 0, reference_loss = 0, kld = 0;
  bool same_top1 = false;
};

size_t first_scored(Protocol protocol, size_t context) { return protocol == Protocol::kPaper ? 1 : context / 2 + 1; }

size_t top1(const float* logits, size_t n) { return static_cast<size_t>(std::max_element(logits, logits + n) - logits); }

// KL(reference || model) from logits and their log-sums.
double divergence(const float* reference, double reference_log_sum, const float* logits, double log_sum, size_t n) {
  double sum = 0;
  for (size_t i = 0; i < n; ++i) {
    const double log_p = static_cast<double>(reference[i]) - reference_log_sum;
    if (log_p < -40) continue;  // its weight is below the last bit of the sum
    sum += std::exp(log_p) * (log_p - (static_cast<double>(logits[i]) - log_sum));
  }
  return std::max(sum, 0.0);
}

class Run {
 public:
  Run(Model& model, Model* reference, const EvaluationPlan& plan) : model_(model), reference_(reference), plan_(plan) {
    cache_ = model.make_cache(plan.cache, plan.context, plan.cache_layers);
    if (reference != nullptr) reference_cache_ = reference->make_cache("f32", plan.context);
  }

  // Scores of the window's tokens from first_scored() on, appended.
  void window(std::span<const text::TokenId> tokens, std::vector<Score>& scores) {
    for (KvCache* cache : {cache_.get(), reference_cache_.get()}) {
      if (cache == nullptr) continue;
      cache->crop(0, 0);
      cache->set_plan(0, plan_context(tokens.size()));
    }
    const size_t first = first_scored(plan_.protocol, tokens.size());
    for (size_t at = 0; at < tokens.size(); at += plan_.chunk) {
      const size_t n = std::min(plan_.chunk, tokens.size() - at);
      BatchPart part{0,
                     {tokens.begin() + static_cast<std::ptrdiff_t>(at), tokens.begin() + static_cast<std::ptrdiff_t>(at + n)},
                     {},
                     BatchPart::Want::kList,
                     {}};
      // Row r predicts token r + 1.
      for (size_t r = 0; r < n; ++r) {
        if (at + r + 1 >= first && at + r + 1 < tokens.size()) part.rows.push_back(static_cast<uint32_t>(r));
      }
      const std::span<const BatchPart> batch(&part, 1);
      const std::span<const float> logits = model_.forward(batch, *cache_);
      const std::span<const float> other =
          reference_ == nullptr ? std::span<const float>() : reference_->forward(batch, *reference_cache_);
      score_rows(part, at, tokens, logits, other, scores);
    }
  }

 private:
  void score_rows(const BatchPart& part, size_t at, std::span<const text::TokenId> tokens, std::span<const float> logits,
                  std::span<const float> other, std::vector<Score>& scores) const {
    const size_t n = model_.description().n_vocabulary, base = scores.size();
    scores.resize(base + part.rows.size());
    parallel_for(part.rows.size(), model_.n_threads(), [&](size_t i, int) {
      const auto target = static_cast<size_t>(tokens[at + part.rows[i] + 1]);
      const float* row = logits.data() + i * n;
      Score& score = scores[base + i];
      const double log_sum = kernels::log_sum_exp(row, n);
      score.loss = log_sum - static_cast<double>(row[target]);
      check_log_probability(score.loss, tokens[at + part.rows[i] + 1]);
      if (other.empty()) return;
      const float* reference = other.data() + i * n;
      const double reference_log_sum = kernels::log_sum_exp(reference, n);
      score.reference_loss = reference_log_sum - static_cast<double>(reference[target]);
      score.kld = divergence(reference, reference_log_sum, row, log_sum, n);
      check_log_probability(score.reference_loss + score.kld, tokens[at + part.rows[i] + 1]);
      score.same_top1 = top1(row, n) == top1(reference, n);
    });
  }

  Model& model_;
  Model* reference_;
  const EvaluationPlan& plan_;
  std::unique_ptr<KvCache> cache_, reference_cache_;
};

struct Mean {
  double value = 0, stderror = 0;
};

Mean mean_of(std::span<const double> x) {
  double sum = 0, squares = 0;
  for (const double v : x) sum += v;
  const auto n = static_cast<double>(x.size());
  const double mean = sum / n;
  for (const double v : x) squares += (v - mean) * (v - mean);
  return {mean, x.size() > 1 ? std::sqrt(squares / (n - 1) / n) : 0.0};
}

std::vector<double> column(std::span<const Score> scores, double Score::*field) {
  std::vector<double> values(scores.size());
  for (size_t i = 0; i < scores.size(); ++i) values[i] = scores[i].*field;
  return values;
}

double quantile(std::span<const double> sorted, double q) {
  const double at = q * static_cast<double>(sorted.size() - 1);
  const auto i = static_cast<size_t>(at);
  const double part = at - static_cast<double>(i);
  return i + 1 < sorted.size() ? sorted[i] * (1 - part) + sorted[i + 1] * part : sorted[i];
}

// The paper's protocol averages windows; all windows have the same number of tokens, so that the mean over tokens is the same
// number.
void summarize(const EvaluationPlan& plan, std::span<const Score> scores, size_t windows, bool compared, Evaluation& e) {
  e.windows = windows;
  e.tokens = scores.size();
  const Mean loss = mean_of(column(scores, &Score::loss));
  e.loss = loss.value;
  e.perplexity = std::exp(loss.value);
  e.perplexity_stderr = e.perplexity * loss.stderror;
  e.compared = compared;
  const size_t first = first_scored(plan.protocol, plan.context), per_window = scores.size() / windows;
  constexpr size_t kBuckets = 4;
  for (size_t b = 0; b < kBuckets; ++b) {
    Bucket bucket{first + per_window * b / kBuckets, first + per_window * (b + 1) / kBuckets, 0, 0, 0};
    for (size_t i = 0; i < scores.size(); ++i) {
      const size_t position = first + i % per_window;
      if (position < bucket.from || position >= bucket.to) continue;
      ++bucket.tokens;
      bucket.loss_sum += scores[i].loss;
      bucket.kld_sum += scores[i].kld;
    }
    if (bucket.tokens > 0) e.buckets.push_back(bucket);
  }
  if (!compared) return;
  e.reference_perplexity = std::exp(mean_of(column(scores, &Score::reference_loss)).value);
  e.ln_ppl_ratio = std::log(e.perplexity / e.reference_perplexity);
  std::vector<double> kld = column(scores, &Score::kld);
  const Mean mean = mean_of(kld);
  e.kld_mean = mean.value;
  e.kld_stderr = mean.stderror;
  std::sort(kld.begin(), kld.end());
  e.kld_median = quantile(kld, 0.5);
  e.kld_p90 = quantile(kld, 0.9);
  e.kld_p99 = quantile(kld, 0.99);
  e.kld_p999 = quantile(kld, 0.999);
  e.kld_max = kld.back();
  e.same_top1 = static_cast<double>(std::count_if(scores.begin(), scores.end(), [](const Score& s) { return s.same_top1; })) /
                static_cast<double>(scores.size());
}

}  // namespace

const char* protocol_name(Protocol protocol) { return protocol == Protocol::kPaper ? "paper" : "llama.cpp"; }

Protocol parse_protocol(const std::string& name) {
  for (const Protocol p : {Protocol::kPaper, Protocol::kLlamaCpp}) {
    if (name == protocol_name(p)) return p;
  }
  fail(ErrorCode::kInvalidArgument, "the protocol '", name.substr(0, 60), "' is unknown; there are paper, llama.cpp");
}

const char* protocol_definition(Protocol protocol) {
  return protocol == Protocol::kPaper ? "paper: the text tokenized once as a whole, disjoint windows, tokens 2 to ctx of each "
                                        "window scored, mean over windows"
                                      : "llama.cpp: disjoint windows, the first token of each replaced by BOS if the model "
                                        "adds one, tokens after the first half scored, "
                                        "mean over tokens; special tokens in the text are text";
}

text::EncodeOptions protocol_encoding(Protocol protocol) {
  return {.add_special = true, .parse_special = protocol == Protocol::kPaper};
}

std::string protocol_text(Protocol protocol, std::string_view bytes) {
  if (protocol == Protocol::kPaper) return text::with_unix_lines(bytes);
  if (bytes.ends_with('\n')) bytes.remove_suffix(1);
  return std::string(bytes);
}

std::vector<std::vector<text::TokenId>> make_windows(const EvaluationPlan& plan, std::span<const text::TokenId> text,
                                                     std::optional<text::TokenId> bos) {
  if (plan.context < 4) fail(ErrorCode::kInvalidArgument, "windows of ", plan.context, " tokens; expected 4 or more");
  size_t n = text.size() / plan.context;
  if (n == 0)
    fail(ErrorCode::kInvalidArgument, "the text has ", text.size(), " tokens, less than one window of ", plan.context);
  if (plan.max_windows > 0) n = std::min(n, plan.max_windows);
  std::vector<std::vector<text::TokenId>> windows;
  for (size_t i = 0; i < n; ++i) {
    const auto part = text.subspan(i * plan.context, plan.context);
    windows.emplace_back(part.begin(), part.end());
    if (plan.protocol == Protocol::kLlamaCpp && bos) windows.back()[0] = *bos;
  }
  return windows;
}

Evaluation evaluate(Model& model, Model* reference, const EvaluationPlan& plan,
                    std::span<const std::vector<text::TokenId>> windows, const std::function<bool(size_t)>& progress) {
  if (windows.empty()) fail(ErrorCode::kInvalidArgument, "no window to evaluate");
  if (reference != nullptr && reference->description().n_vocabulary != model.description().n_vocabulary) {
    fail(ErrorCode::kInvalidArgument, "the reference has a vocabulary of ", reference->description().n_vocabulary,
         ", the model one of ", model.description().n_vocabulary);
  }
  const Clock::time_point start = Clock::now();
  Run run(model, reference, plan);
  std::vector<Score> scores;
  size_t done = 0;
  for (const std::vector<text::TokenId>& window : windows) {
    run.window(window, scores);
    ++done;
    if (progress && !progress(done)) break;
  }
  Evaluation e;
  summarize(plan, scores, done, reference != nullptr, e);
  e.seconds = seconds_since(start);
  return e;
}

}  // namespace kpd::llm
