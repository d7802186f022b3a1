// kernels: sums in double by a fixed tree, so that every instruction set gives the same bits: magnitudes and dot products, and
// what other kernels' sums have in common. Private.
//
// Element i is added to lane i % 16 in increasing order of i; then lanes l and l + 8, l + 4, l + 2, l + 1 are added.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dispatch.h"

namespace kpd::kernels {

inline constexpr size_t kSumLanes = 16;

// The end of the tree; lanes[kSumLanes] are overwritten.
inline double sum_lanes(double* lanes) {
  for (size_t step = kSumLanes / 2; step > 0; step /= 2) {
    for (size_t l = 0; l < step; ++l) lanes[l] += lanes[l + step];
  }
  return lanes[0];
}

// Over x[n]: the largest |x| as raw bits (>= 0x7f800000 means NaN or Inf is present) and the sum of squares.
struct Magnitude {
  uint32_t max_abs_bits;
  double sum_squares;
};
KPD_KERNEL(magnitude, Magnitude(const float* x, size_t n));

// sum of a_i b_i, products exact in double.
KPD_KERNEL(dot, double(const float* a, const float* b, size_t n));
struct Dots {
  double ab = 0, bb = 0;
};
// dot(a, b) and dot(b, b), the same bits, in one pass.
KPD_KERNEL(dots, Dots(const float* a, const float* b, size_t n));

}  // namespace kpd::kernels
