#include "llm/text_scorer.h"

#include <algorithm>

#include "kernels/llm_ops.h"
#include "kpd/base/threads.h"
#include "llm/log_probability.h"

namespace kpd::llm {
namespace {

// A sequence's own blocks begin and end within one.
constexpr size_t kRounding = 2 * cache::kBlockTokens;

size_t common_tokens(std::span<const text::TokenId> a, std::span<const text::TokenId> b) {
  const size_t n = std::min(a.size(), b.size());
  return static_cast<size_t>(std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(n), b.begin()).first - a.begin());
}

}  // namespace

bool depends_on_context(const ModelDescription& description) {
  return std::any_of(description.ropes.begin(), description.ropes.end(), [](const RopeDescription& rope) {
    return rope.kind == RopeKind::kDynamic || rope.kind == RopeKind::kLongRope;
  });
}

size_t shared_tokens(const TextGroup& group) {
  size_t shared = group[0]->n_context - 1;
  for (const ScoredText* text : group) {
    shared = std::min(shared, text->n_context - 1);
    shared = common_tokens(std::span(group[0]->tokens).first(shared), text->tokens);
  }
  return shared;
}

size_t room_for(const TextGroup& group, size_t shared) {
  size_t tokens = shared + kRounding;
  for (const ScoredText* text : group) tokens += text->tokens.size() - shared + kRounding;
  return tokens;
}

TextScorer::TextScorer(Model& model, const ScoreOptions& options, size_t capacity)
    : model_(model),
      chunk_(options.chunk),
      plan_matters_(depends_on_context(model.description())),
      cache_(model.make_cache(options.cache, capacity + kRounding, options.cache_layers)) {
  if (chunk_ == 0) fail(ErrorCode::kInvalidArgument, "chunks of no token");
}

void TextScorer::forget() {
  cache_->crop(0, 0);
  held_.clear();
}

// Begins a sequence with what the held one has of the group's beginning: so many tokens.
size_t TextScorer::open(const TextGroup& group, SequenceId sequence, size_t shared) {
  size_t longest = 0;
  for (const ScoredText* text : group) longest = std::max(longest, text->tokens.size() - 1);
  const cache::Plan plan = plan_context(plan_matters_ ? longest : model_.description().max_context);
  size_t same = common_tokens(held_, std::span(group[0]->tokens).first(shared));
  if (same > 0 && cache_->plan(0) == plan) {
    same = cache_->fork(0, sequence, same).length;
  } else {
    same = 0;
  }
  if (same == 0) cache_->set_plan(sequence, plan);
  return same;
}

void TextScorer::add(SequenceId sequence, std::span<const text::TokenId> tokens, size_t first_wanted,
                     std::span<const text::TokenId> targets, TextScore* score) {
  for (size_t at = 0; at < tokens.size();) {
    const size_t n = std::min(chunk_ - n_batch_tokens_, tokens.size() - at);
    const auto some = tokens.subspan(at, n);
    BatchPart part{sequence, {some.begin(), some.end()}, {}, BatchPart::Want::kList, {}};
    for (size_t t = std::max(at, first_wanted); t < at + n; ++t) {
      part.rows.push_back(static_cast<uint32_t>(t - at));
      rows_.push_back({targets[t - first_wanted], score});
    }
    if (part.rows.empty()) part.want = BatchPart::Want::kNone;
    batch_.push_back(std::move(part));
    n_batch_tokens_ += n;
    at += n;
    if (n_batch_tokens_ == chunk_) step();
  }
}

void TextScorer::step() {
  if (batch_.empty()) return;
  const std::span<const float> logits = model_.forward(batch_, *cache_);
  n_tokens_ += n_batch_tokens_;
  const size_t n = model_.description().n_vocabulary;
  std::vector<TextScore> scores(rows_.size());
  parallel_for(rows_.size(), model_.n_threads(), [&](size_t i, int) {
    const float* row = logits.data() + i * n;
    const float value = row[static_cast<size_t>(rows_[i].target)];
    scores[i] = {static_cast<double>(value) - kernels::log_sum_exp(row, n), value >= kernels::max_value(row, n)};
  });
  for (size_t i = 0; i < rows_.size(); ++i) {
    check_log_probability(scores[i].log_likelihood, rows_[i].target);
    rows_[i].score->log_likelihood += scores[i].log_likelihood;
    rows_[i].score->greedy = rows_[i].score->greedy && scores[i].greedy;
  }
  batch_.clear();
  rows_.clear();
  n_batch_tokens_ = 0;
}

std::vector<TextScore> TextScorer::score(std::span<const TextGroup> groups) {
  batch_.clear();
  rows_.clear();
  n_batch_tokens_ = 0;
  SequenceId next = 1;
  std::vector<size_t> shared;
  for (const TextGroup& group : groups) {
    shared.push_back(shared_tokens(group));
    const size_t same = open(group, next, shared.back());
    add(next++, std::span(group[0]->tokens).first(shared.back()).subspan(same), shared.back(), {}, nullptr);
  }
  step();
  size_t n_texts = 0;
  for (const TextGroup& group : groups) n_texts += group.size();
  std::vector<TextScore> scores(n_texts);
  size_t at = 0;
  for (size_t g = 0; g < groups.size(); ++g) {
    const auto beginning = static_cast<SequenceId>(g + 1);
    for (const ScoredText* text : groups[g]) {
      const std::span<const text::TokenId> tokens = text->tokens;
      const cache::Plan plan = cache_->plan(beginning);
      cache_->fork(beginning, next, shared[g]);
      cache_->set_plan(next, plan);  // if nothing was shared, it has none yet
      add(next++, tokens.first(tokens.size() - 1).subspan(shared[g]), text->n_context - 1 - shared[g],
          tokens.subspan(text->n_context), &scores[at++]);
    }
  }
  step();
  if (!groups.empty()) {
    cache_->fork(static_cast<SequenceId>(groups.size()), 0, shared.back());
    held_.assign(groups.back()[0]->tokens.begin(),
                 groups.back()[0]->tokens.begin() + static_cast<std::ptrdiff_t>(shared.back()));
  }
  for (SequenceId sequence = 1; sequence < next; ++sequence) cache_->crop(sequence, 0);
  return scores;
}

}  // namespace kpd::llm
