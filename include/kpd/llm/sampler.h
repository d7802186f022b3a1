// llm: the next token from logits.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kpd/text/tokenizer.h"

namespace kpd::llm {

struct SamplingOptions {
  double temperature = 0;  // 0: the largest logit
  size_t top_k = 0;        // 0: all
  double top_p = 1;
  double min_p = 0;           // of the largest probability
  double repeat_penalty = 1;  // logits of tokens that occurred: divided by it if positive, multiplied if negative
  // Subtracted from the logits of tokens that the answer has already (OpenAI's; the prompt does not count): once, and for each
  // time.
  double presence_penalty = 0, frequency_penalty = 0;
  std::vector<std::pair<text::TokenId, float>> logit_bias{};  // added to these tokens' logits; -infinity: never that one
  uint64_t seed = 0;
};

// Throws Error(kInvalidArgument) naming the value that makes no sense.
void check_sampling(const SamplingOptions& options);

// "greedy", or "temperature 0.8, top-k 40, top-p 0.95": what differs from drawing by the model's probabilities.
std::string describe_sampling(const SamplingOptions& options);

// Order: bias, repeat penalty, penalties by count, temperature, top-k, top-p, min-p, then one draw from what is left. The
// probabilities are those of float weights (relative error about 1e-6); of what a cut keeps nothing is left out but tokens less
// probable than 2^-53. The draws follow from the seed and their numbers, the same on every instruction set for the same logits.
// Thread-compatible. Movable; one that was moved from can only be destroyed or assigned to.
class Sampler {
 public:
  // The first draw has the number `first_draw`, the next ones follow: who continues a text gives the tokens there are, and
  // draws what was not drawn before.
  explicit Sampler(const SamplingOptions& options, uint64_t first_draw = 0);
  Sampler(Sampler&&) noexcept;
  Sampler& operator=(Sampler&&) noexcept;
  ~Sampler();

  // A token that was said before: it counts for the repeat penalty, as those that were picked do. Throws
  // Error(kInvalidArgument) for one that is negative or beyond any vocabulary (2^24 and more).
  void seen(text::TokenId token);
  // One logit a token; -infinity: never that one. Throws Error(kInvalidArgument) for none and for a bias of a token that there
  // is not, Error(kCorruptData) for NaN, infinity and nothing but -infinity, which damaged weights give; nothing has been drawn
  // then. After the first call, calls with as many logits allocate nothing.
  text::TokenId pick(std::span<const float> logits);

 private:
  struct Scratch;

  std::span<const float> adjust(std::span<const float> logits);
  text::TokenId draw(std::span<const float> logits, float largest);
  text::TokenId draw_from_all(std::span<const float> logits, float largest, float scale, double at);
  float kth_largest_at_least(size_t k);
  void picked(text::TokenId token, size_t n_vocabulary);

  SamplingOptions options_;
  uint64_t n_drawn_;
  std::vector<uint64_t> seen_, answered_;  // a bit a token
  std::vector<uint32_t> counts_;           // how often each was picked
  std::unique_ptr<Scratch> scratch_;
};

}  // namespace kpd::llm
