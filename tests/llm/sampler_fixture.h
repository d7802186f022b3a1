// tests: what a sampler should keep and how often, worked out by sorting in double, and whether counts follow a law.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "kpd/base/rng.h"
#include "kpd/llm/sampler.h"

namespace kpd::llm::testing {

// The probability of each token: temperature, then top-k, top-p, min-p over the tokens in descending order, of equals the
// smaller id first.
inline std::vector<double> expected_law(const std::vector<float>& logits, const SamplingOptions& o) {
  std::vector<size_t> order(logits.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return logits[a] > logits[b]; });
  const auto largest = static_cast<double>(logits[order[0]]);
  const auto weight = [&](size_t i) { return std::exp((static_cast<double>(logits[i]) - largest) / o.temperature); };
  size_t n = o.top_k == 0 ? order.size() : std::min(o.top_k, order.size());
  double total = 0, kept = 0;
  for (size_t r = 0; r < n; ++r) total += weight(order[r]);
  std::vector<double> law(logits.size());
  for (size_t r = 0; r < n; ++r) {
    const double w = weight(order[r]);
    if (r > 0 && (w < o.min_p || kept >= o.top_p * total * (1 - 1e-12))) break;
    law[order[r]] = w;
    kept += w;
  }
  for (double& p : law) p /= kept;
  return law;
}

// How many standard deviations Pearson's statistic lies above what it is expected to be (Wilson and Hilferty's approximation);
// bins expected to have fewer than 10 are taken together. A token without probability that was drawn gives infinity.
inline double deviation(const std::vector<uint64_t>& counts, const std::vector<double>& law) {
  const auto n = static_cast<double>(std::accumulate(counts.begin(), counts.end(), uint64_t{0}));
  double statistic = 0, rest_expected = 0, rest_count = 0;
  size_t bins = 0;
  const auto add = [&](double count, double expected) {
    statistic += (count - expected) * (count - expected) / expected;
    ++bins;
  };
  for (size_t i = 0; i < law.size(); ++i) {
    const auto count = static_cast<double>(counts[i]);
    if (law[i] == 0 && count > 0) return std::numeric_limits<double>::infinity();
    if (law[i] * n >= 10) {
      add(count, law[i] * n);
    } else {
      rest_expected += law[i] * n;
      rest_count += count;
    }
  }
  if (rest_expected > 1) add(rest_count, rest_expected);
  if (bins < 2) return 0;
  const double d = 2 / (9 * static_cast<double>(bins - 1));
  return (std::cbrt(statistic / static_cast<double>(bins - 1)) - (1 - d)) / std::sqrt(d);
}

inline std::vector<uint64_t> draw_counts(const std::vector<float>& logits, const SamplingOptions& o, size_t n_draws) {
  Sampler sampler(o);
  std::vector<uint64_t> counts(logits.size());
  for (size_t i = 0; i < n_draws; ++i) ++counts[static_cast<size_t>(sampler.pick(logits))];
  return counts;
}

// Rows as models give them and as they do not: a peak over a wide tail, many equals, flat, spread over 200, one far above.
inline std::vector<std::vector<float>> rows(size_t n) {
  CounterRng rng(7);
  std::vector<std::vector<float>> out(5, std::vector<float>(n));
  for (size_t i = 0; i < n; ++i) {
    const auto normal = static_cast<float>(rng.next_normal());
    out[0][i] = 2 * normal + (i % 97 == 5 ? 5.0f : 0.0f);
    out[1][i] = static_cast<float>(i % 7);
    out[2][i] = 0.05f * normal;
    out[3][i] = 200 * static_cast<float>(rng.next_double());
    out[4][i] = i == n / 2 ? 9.0f : i % 3 == 0 ? -std::numeric_limits<float>::infinity() : 0.3f * normal;
  }
  return out;
}

inline std::vector<SamplingOptions> laws() {
  std::vector<SamplingOptions> o(9);
  o[0].temperature = 0.7;
  o[1].temperature = 1;
  o[2] = {.temperature = 1, .top_p = 0.95};
  o[3] = {.temperature = 0.7, .top_p = 0.5};
  o[4] = {.temperature = 0.8, .top_k = 40, .top_p = 0.95, .min_p = 0.05};
  o[5] = {.temperature = 1.3, .min_p = 0.02};
  o[6] = {.temperature = 1, .top_k = 100};
  o[7] = {.temperature = 2, .top_p = 0.9, .min_p = 0.001};
  o[8] = {.temperature = 1, .top_k = 7, .top_p = 0.999};
  return o;
}

}  // namespace kpd::llm::testing
