// tests: whether the mean of many equal clients is their vector. Every method whose row claims to be unbiased is asked, so a
// new one is asked too.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "gradient/eden.h"
#include "gradient/segment_codec.h"
#include "gradient/stream_format.h"
#include "kpd/base/error.h"
#include "kpd/base/rng.h"
#include "kpd/quant/gaussian_step.h"

namespace kpd::gradient::unbiased {

// The specs of all methods that claim to be unbiased, at these rates where they take them.
inline std::vector<std::string> specs_at(const std::vector<double>& rates) {
  std::vector<std::string> specs;
  for (const MethodEntry& m : registry()) {
    if (m.row.unbiased.starts_with("no")) continue;
    const std::string name(m.row.name);
    if (m.rates_per_bit == 0) specs.push_back(name);
    for (const double bits : rates) {
      const double on_grid = bits * m.rates_per_bit;
      if (m.rates_per_bit == 0 || bits > m.max_bits || std::fabs(on_grid - std::round(on_grid)) > 1e-9) continue;
      const std::string spec = str(name, ":bits=", bits);
      specs.push_back(spec);
      if (name != "eden") continue;
      specs.push_back(spec + ",code=entropy");
      if (bits >= 1) specs.push_back(spec + ",code=entropy,dither=shared");
      specs.push_back(spec + ",allocate=energy");
    }
  }
  return specs;
}

struct Bias {
  double bias2 = 0;  // |E x^ - x|^2 / |x|^2, its estimate free of the clients' variance
  double deviation =
      0;  // |mean error|^2 * clients / variance, 1 without bias, in standard errors of a chi-square by its cube root
  double shrinkage = 0, shrinkage_error = 0;  // E <x^, x> / |x|^2 - 1
};

// X = chi-square / degrees: X^(1/3) is close to normal (Wilson and Hilferty 1931). The degrees are tr(S)^2 / tr(S^2), S the
// covariance of a client's error; tr(S^2) = E <e, e'>^2 of two independent ones, here the means of groups.
inline double chi_square_deviation(double ratio, double variance, const std::vector<std::vector<double>>& groups, double size) {
  double products2 = 0, pairs = 0;
  for (size_t g = 0; g < groups.size(); ++g) {
    for (size_t h = 0; h < g; ++h) {
      double product = 0;
      for (size_t i = 0; i < groups[g].size(); ++i) product += groups[g][i] * groups[h][i];
      products2 += product / size * (product / size);
      ++pairs;
    }
  }
  if (products2 == 0) return 0;
  const double spread2 = 2.0 / 9 * (products2 / pairs) / (variance * variance);
  return (std::cbrt(ratio) - (1 - spread2)) / std::sqrt(spread2);
}

// The codec's own code (an entropy code too where a message of n elements would take the fixed code: blocks of this length
// occur in long tensors), n elements as one block, all clients alike but for their keys.
inline Bias measure(const std::string& spec, const std::vector<float>& x, int clients) {
  const WireParams wanted = Codec::parse(spec).params(), resolved = resolve_params(wanted, x.size());
  WireParams params = wanted;
  params.rounds = resolved.rounds;
  params.flags |= resolved.flags & kFlagSizedRounds;
  params.flags &= static_cast<uint16_t>(~kFlagJoin);
  const auto codec = method_by_id(params.method).make(params);
  const SegmentShape shape = segment_shape(x.size(), 1u << params.log2_block, 0);
  Scratch scratch;
  std::vector<uint8_t> bytes(codec->segment_bytes(shape));
  std::vector<float> decoded(x.size());
  constexpr int kGroups = 40;
  std::vector<std::vector<double>> sums(kGroups, std::vector<double>(x.size()));
  double norm2 = 0, error2 = 0, along = 0, along2 = 0;
  for (const float v : x) norm2 += static_cast<double>(v) * static_cast<double>(v);
  for (int c = 0; c < clients; ++c) {
    const bool shared = (params.flags & kFlagDither) != 0;
    const auto seed = static_cast<uint64_t>(c) + 1;
    const TensorKeys keys{shared ? 1 : seed * 0xD1B54A32D192ED03u, seed * 0x9E3779B97F4A7C15u + 77};
    SegmentStats stats;
    const uint64_t written = codec->encode(x, shape, keys, bytes, scratch, stats);
    codec->decode(std::span(bytes).first(written), shape, keys, 1, false, decoded, scratch);
    std::vector<double>& sum = sums[static_cast<size_t>(c % kGroups)];
    double own2 = 0, own_along = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const double e = static_cast<double>(decoded[i]) - static_cast<double>(x[i]);
      own2 += e * e;
      own_along += e * static_cast<double>(x[i]);
      sum[i] += e;
    }
    error2 += own2;
    along += own_along / norm2;
    along2 += own_along / norm2 * (own_along / norm2);
  }
  const double n = clients;
  double mean2 = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    double sum = 0;
    for (const std::vector<double>& group : sums) sum += group[i];
    mean2 += sum / n * (sum / n);
  }
  const double variance = (error2 - n * mean2) / (n - 1);
  Bias b;
  b.bias2 = (mean2 - variance / n) / norm2;
  if (variance > 0) b.deviation = chi_square_deviation(mean2 / (variance / n), variance, sums, n / kGroups);
  b.shrinkage = along / n;
  b.shrinkage_error = std::sqrt(std::max(0.0, along2 / n - b.shrinkage * b.shrinkage) / n);
  return b;
}

inline std::vector<float> normal_input(size_t n) {
  CounterRng rng(n, 5);
  std::vector<float> x(n);
  for (float& v : x) v = static_cast<float>(rng.next_normal());
  return x;
}
inline std::vector<float> lognormal_input(size_t n) {
  std::vector<float> x = normal_input(n);
  for (float& v : x) v = std::exp(v);
  return x;
}

// Five standard errors, and what float values and scale words of 22 bits round.
inline void expect_unbiased(const std::string& spec, const std::vector<float>& x, const std::string& what) {
  const Bias b = measure(spec, x, 4000);
  EXPECT_TRUE(b.deviation <= 5 || b.bias2 < 1e-12)
      << spec << ", " << x.size() << " " << what << ": bias^2 " << b.bias2 << ", " << b.deviation << " standard errors";
  EXPECT_LE(std::fabs(b.shrinkage), 5 * b.shrinkage_error + 1e-6)
      << spec << ", " << x.size() << " " << what << ": " << b.shrinkage << " +- " << b.shrinkage_error;
}

}  // namespace kpd::gradient::unbiased
