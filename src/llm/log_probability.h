// llm: what a damaged model's log-probabilities are. Private.
#pragma once

#include <cmath>

#include "kpd/base/error.h"
#include "kpd/text/tokenizer.h"

namespace kpd::llm {

// Throws Error(kCorruptData) for NaN: `value` is, or comes from, the log-probability of the token.
inline void check_log_probability(double value, text::TokenId token) {
  if (std::isnan(value))
    fail(ErrorCode::kCorruptData, "the model gave token ", token, " a log-probability that is no number (is it damaged?)");
}

}  // namespace kpd::llm
