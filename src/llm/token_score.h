// llm: the score of a token in a row of logits. Private.
#pragma once

#include "kpd/llm/scheduler.h"

namespace kpd::llm {

// Log-probability of `token`, which lies below n_vocabulary, and the n_top most probable tokens. O(n_vocabulary (1 + n_top)).
TokenScore score_of(const float* row, size_t n_vocabulary, text::TokenId token, size_t n_top);

}  // namespace kpd::llm
