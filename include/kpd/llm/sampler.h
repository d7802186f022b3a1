// llm: the next token from logits.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kpd/llm/tokenizer.h"

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
  std::vector<std::pair<TokenId, float>> logit_bias;  // added to these tokens' logits; -infinity: never that one
  uint64_t seed = 0;
};

// Throws Error(kInvalidArgument) naming the value that makes no sense.
void check_sampling(const SamplingOptions& options);

// What a Hugging Face folder's generation_config.json asks for, over `defaults`; a folder without the file gives them as they
// are. Throws Error(kCorruptData) naming file and key.
SamplingOptions sampling_of_folder(const std::string& folder, const SamplingOptions& defaults);

// Order: penalty, temperature, top-k, top-p, min-p, then one draw from what is left. The draws follow from the seed and the
// number of tokens drawn before. Thread-compatible.
class Sampler {
 public:
  explicit Sampler(const SamplingOptions& options);
  // A token that is part of what was said: prompt and answer count for the penalty. Throws Error(kInvalidArgument) for one that
  // is negative or beyond any vocabulary (2^24 and more).
  void seen(TokenId token);
  // One logit a token; -infinity: never that one. Throws Error(kInvalidArgument) for none, and Error(kCorruptData) for NaN,
  // infinity and nothing but -infinity, which damaged weights give; nothing has been drawn then.
  TokenId pick(std::span<const float> logits);

 private:
  void penalize(std::span<float> logits) const;
  TokenId draw(std::span<const float> logits, float largest);

  SamplingOptions options_;
  std::vector<bool> seen_;
  std::vector<float> adjusted_;
  std::vector<std::pair<float, TokenId>> candidates_;
  uint64_t drawn_ = 0;
};

}  // namespace kpd::llm
