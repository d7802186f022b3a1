// llm: scores of texts that begin alike: the common beginning goes through the model once. Private.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "kpd/llm/score.h"

namespace kpd::llm {

// Texts that share what stands before the first token that wants a score in any of them, as far as it is the same.
using TextGroup = std::vector<const ScoredText*>;

// Whether rotations are those of the length that is planned, which the longest text of a group decides.
bool depends_on_context(const ModelDescription& description);
// Tokens that all texts of a group begin with and of which none wants logits.
size_t shared_tokens(const TextGroup& group);
// Of the cache, for a group whose texts share so many tokens.
size_t room_for(const TextGroup& group, size_t shared);

class TextScorer {
 public:
  // `capacity`: the room of all groups of a call together, and that of the longest common beginning.
  TextScorer(Model& model, const ScoreOptions& options, size_t capacity);

  // The scores of all texts in order. What the last group had in common stays for the next call.
  std::vector<TextScore> score(std::span<const TextGroup> groups);
  void forget();  // what stays
  size_t n_tokens() const { return n_tokens_; }

 private:
  struct Row {
    text::TokenId target;
    TextScore* score;
  };

  size_t open(const TextGroup& group, SequenceId sequence, size_t shared);
  void add(SequenceId sequence, std::span<const text::TokenId> tokens, size_t first_wanted,
           std::span<const text::TokenId> targets, TextScore* score);
  void step();

  Model& model_;
  size_t chunk_, n_tokens_ = 0;
  bool plan_matters_;  // rotations depend on the length that is planned
  std::unique_ptr<KvCache> cache_;
  std::vector<text::TokenId> held_;  // by sequence 0
  // The step that is being put together.
  std::vector<BatchPart> batch_;
  size_t n_batch_tokens_ = 0;
  std::vector<Row> rows_;
};

}  // namespace kpd::llm
