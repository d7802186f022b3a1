// kernels: the plain reference of sums.h.
#include "kernels/sums.h"

#include <bit>

namespace kpd::kernels::scalar {

Magnitude magnitude(const float* x, size_t n) {
  uint32_t max_bits = 0;
  double lanes[kSumLanes] = {};
  for (size_t i = 0; i < n; ++i) {
    const uint32_t bits = std::bit_cast<uint32_t>(x[i]) & 0x7fffffffu;
    max_bits = bits > max_bits ? bits : max_bits;
    const double v = x[i];
    lanes[i % kSumLanes] += v * v;
  }
  return {max_bits, sum_lanes(lanes)};
}

double dot(const float* a, const float* b, size_t n) {
  double lanes[kSumLanes] = {};
  for (size_t i = 0; i < n; ++i) lanes[i % kSumLanes] += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum_lanes(lanes);
}

Dots dots(const float* a, const float* b, size_t n) { return {dot(a, b, n), dot(b, b, n)}; }

}  // namespace kpd::kernels::scalar
