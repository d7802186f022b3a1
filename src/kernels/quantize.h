// kernels: nearest-level quantization to sign and magnitude bit planes, and back. Private.
//
// A code of b bits is a sign (plane 0, 1 = negative: the float's sign bit) and a magnitude code m of b - 1 bits (planes 1..,
// most significant first): m = number of thresholds T_k <= |y|. A plane is ceil(n/8) bytes, bit i % 8 of byte i / 8 for element
// i, unused bits 0. Results are equal on every instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dispatch.h"

namespace kpd::kernels {

inline constexpr int kMaxPlaneBits = 8;
inline constexpr size_t kBucketCount = 384;
inline constexpr size_t kMaxSteps = 2;

struct QuantizeTable {
  int bits = 1;
  const float* thresholds = nullptr;  // [2^(bits-1) - 1] ascending, in y's units
  const float* levels = nullptr;      // [2^(bits-1)] ascending, positive
  // Only for bits > 4: m is bucket_start[min(trunc(|y| * bucket_scale), kBucketCount - 1)] or up to kMaxSteps more.
  const uint8_t* bucket_start = nullptr;
  float bucket_scale = 0;
};

struct QuantizeSums {
  double dot = 0;         // sum of |y_i| level(m_i): products exact in double, 16-lane fixed tree (hadamard.h)
  double q2 = 0;          // sum over m ascending of count(m) * level(m)^2
  bool has_zero = false;  // some y_i == 0: its sign is a tie
};

KPD_KERNEL(quantize_planes, QuantizeSums(const float* y, size_t n, const QuantizeTable& table, uint8_t* planes));
// y[i] = sign * levels[m]
KPD_KERNEL(dequantize_planes, void(const uint8_t* planes, size_t n, int bits, const float* levels, float* y));

inline size_t plane_bytes(size_t n) { return (n + 7) / 8; }

// The end of every fixed tree: lanes l and l + 8, then 4, 2, 1.
inline double sum_lanes(double* lanes) {
  for (size_t step = 8; step > 0; step /= 2) {
    for (size_t l = 0; l < step; ++l) lanes[l] += lanes[l + step];
  }
  return lanes[0];
}

// sum over m of count(m) level(m)^2, in that order.
inline double sum_level_squares(const uint32_t* counts, const float* levels, size_t n_levels) {
  double sum = 0;
  for (size_t m = 0; m < n_levels; ++m) {
    const double level = levels[m];
    sum += static_cast<double>(counts[m]) * (level * level);
  }
  return sum;
}

}  // namespace kpd::kernels
