// kernels: the Walsh-Hadamard butterflies, the hot loop of every rotation. Private.
//
// All results are equal, bit for bit, on every instruction set: an output is a fixed tree of float adds and subtracts, h = 1,
// 2, 4, ...
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "base/dispatch.h"

namespace kpd::kernels {

// What is done to a value before the first butterfly and after the last.
struct HadamardIn {
  const float* src;       // [n], may be the same memory as y
  const uint32_t* signs;  // bit i of word i/32 set: negate element i; null: none
  float scale = 1.0f;     // multiplied in; 1 is skipped
};
struct HadamardOut {
  float* dst;             // [n]
  const uint32_t* signs;  // applied after the transform; null: none
  float scale = 1.0f;
  bool accumulate = false;  // dst += instead of dst =
};

// y[n] = H (signs * scale * src), unnormalised; n a power of two, 2 <= n <= 2^24. If out is not null the last pass writes
// out->dst = (or +=) out->scale * signs * result instead of y (y is then undefined).
KPD_KERNEL(fwht, void(float* y, size_t n, const HadamardIn& in, const HadamardOut* out));

// A length cut in powers of two, largest first: 80 = 64 + 16, 112 = 64 + 32 + 16, 576 = 512 + 64. fn(first, power) for each, in
// order of `first`, which is a multiple of 2 * power (or 0): no block's sign bits cross a word unless they fill words.
template <class Fn>
void for_each_power_block(size_t n, Fn&& fn) {
  for (size_t first = 0; first < n;) {
    const size_t power = std::bit_floor(n - first);
    fn(first, power);
    first += power;
  }
}

// What is done to every row at an edge of fwht_rows: scaled, then negated by bit first_bit + i for element i.
struct HadamardEdge {
  const uint32_t* signs = nullptr;  // null: none
  size_t first_bit = 0;             // a multiple of min(n, 32)
  float scale = 1.0f;
};

// Many rows in place: y[r * stride .. + n) = after(H before(...)) for each of n_rows rows, unnormalised; n a power of two, 1 <=
// n <= 2^24, stride >= n. What lies between rows is neither read nor written. Bits of a row depend on that row alone.
KPD_KERNEL(fwht_rows,
           void(float* y, size_t n_rows, size_t n, size_t stride, const HadamardEdge& before, const HadamardEdge& after));

// dst[i] = signs * scale * src[i], or += (the two edges of fwht alone; may be in place).
KPD_KERNEL(flip_scale, void(const HadamardIn& in, size_t n, float* dst, bool accumulate));

// For i < floor(n/2), with c = float(1/sqrt(2)): (y[i], y[n-1-i]) = ((y[i] + y[n-1-i]) * c, (y[i] - y[n-1-i]) * c). The middle
// one of an odd n stays. Symmetric and orthogonal, so it is its own inverse.
inline constexpr float kSqrtHalf = 0.70710678118654752440f;
KPD_KERNEL(mirror_butterfly, void(float* y, size_t n));

}  // namespace kpd::kernels
