// llm: see token_score.h.
#include "llm/token_score.h"

#include <algorithm>

#include "kernels/llm_ops.h"

namespace kpd::llm {
namespace {

// The n largest, descending; of equals the smaller id first, as the sampler takes it.
std::vector<std::pair<text::TokenId, float>> most_probable(const float* row, size_t n_vocabulary, size_t n, double log_sum) {
  std::vector<std::pair<text::TokenId, float>> best;
  for (size_t i = 0; i < n_vocabulary; ++i) {
    if (best.size() == n && (n == 0 || !(row[i] > best.back().second))) continue;
    if (best.size() == n) best.pop_back();
    const auto after = [&](const auto& other) { return other.second < row[i]; };
    best.insert(std::find_if(best.begin(), best.end(), after), {static_cast<text::TokenId>(i), row[i]});
  }
  for (auto& entry : best) entry.second = static_cast<float>(static_cast<double>(entry.second) - log_sum);
  return best;
}

}  // namespace

TokenScore score_of(const float* row, size_t n_vocabulary, text::TokenId token, size_t n_top) {
  const double log_sum = kernels::log_sum_exp(row, n_vocabulary);
  return {token, static_cast<float>(static_cast<double>(row[token]) - log_sum),
          most_probable(row, n_vocabulary, n_top, log_sum)};
}

}  // namespace kpd::llm
