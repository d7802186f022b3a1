// kernels: Walsh-Hadamard transforms of many rows with Highway (hadamard.h): heads of attention, blocks of weights.
//
// Rows that the registers hold are one pass each, with the signs of both edges made once for all rows. Contiguous rows shorter
// than a vector share one. Longer rows take the passes of a single long transform.
#include "base/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/hadamard_rows.cc"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "kernels/hadamard-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kpd::kernels {
namespace HWY_NAMESPACE {

#if !KPD_TARGET_IS_SCALAR

namespace hn = hwy::HWY_NAMESPACE;
using namespace hadamard;

bool does_nothing(const HadamardEdge& edge) { return edge.signs == nullptr && edge.scale == 1.0f; }

void register_rows(size_t n, const ShortRows& rows) {
  const bool before = !does_nothing(rows.before), after = !does_nothing(rows.after);
  if (before && after) return short_rows<true, true>(n, rows);
  if (before) return short_rows<true, false>(n, rows);
  if (after) return short_rows<false, true>(n, rows);
  short_rows<false, false>(n, rows);
}

// Signs of a vector that holds kLanes / n rows.
HWY_INLINE VU repeated_signs(const HadamardEdge& edge, size_t n) {
  HWY_ALIGN uint32_t lanes[kLanes];
  for (size_t l = 0; l < kLanes; ++l) {
    const size_t bit = edge.first_bit + l % n;
    lanes[l] = edge.signs != nullptr && ((edge.signs[bit / 32] >> (bit % 32)) & 1) != 0 ? 0x80000000u : 0;
  }
  return hn::Load(DU(), lanes);
}

// [n_floats / n, n], contiguous; n_floats a multiple of kLanes.
template <size_t n>
HWY_NOINLINE void flat_rows(float* y, size_t n_floats, const HadamardEdge& before, const HadamardEdge& after) {
  const D d;
  const VU signs_before = repeated_signs(before, n), signs_after = repeated_signs(after, n);
  const V scale_before = hn::Set(d, before.scale), scale_after = hn::Set(d, after.scale);
  for (size_t i = 0; i < n_floats; i += kLanes) {
    const V v = lane_stages<n>(d, scale_flip(d, hn::LoadU(d, y + i), scale_before, signs_before));
    hn::StoreU(scale_flip(d, v, scale_after, signs_after), d, y + i);
  }
}

// Transforms the first rows that fill vectors; returns how many they are.
size_t flat_rows_of(float* y, size_t n_rows, size_t n, const HadamardEdge& before, const HadamardEdge& after) {
  const size_t n_floats = n_rows * n / kLanes * kLanes;
  if (n == 2) flat_rows<2>(y, n_floats, before, after);
  if constexpr (kLanes > 4) {
    if (n == 4) flat_rows<4>(y, n_floats, before, after);
  }
  if constexpr (kLanes > 8) {
    if (n == 8) flat_rows<8>(y, n_floats, before, after);
  }
  return n_floats / n;
}

// What fwht_rows does with rows too long for the registers.
void long_rows(float* y, size_t n_rows, size_t n, size_t stride, const HadamardEdge& before, const HadamardEdge& after) {
  const uint32_t* const signs_before = before.signs == nullptr ? nullptr : before.signs + before.first_bit / 32;
  const uint32_t* const signs_after = after.signs == nullptr ? nullptr : after.signs + after.first_bit / 32;
  for (size_t r = 0; r < n_rows; ++r) {
    float* const row = y + r * stride;
    const HadamardOut out{row, signs_after, after.scale, false};
    long_transform(row, n, {row, signs_before, before.scale}, does_nothing(after) ? nullptr : &out);
  }
}

void fwht_rows(float* y, size_t n_rows, size_t n, size_t stride, const HadamardEdge& before, const HadamardEdge& after) {
  if (n > kRegisterTransform) return long_rows(y, n_rows, n, stride, before, after);
  if (n > 1 && n < kLanes && stride == n) {
    const size_t done = flat_rows_of(y, n_rows, n, before, after);
    y += done * n;
    n_rows -= done;
  }
  if (n < kShortestVector) return scalar::fwht_rows(y, n_rows, n, stride, before, after);
  register_rows(n, {y, y, n_rows, stride, before, after, false});
}

#endif  // !KPD_TARGET_IS_SCALAR
}  // namespace HWY_NAMESPACE
}  // namespace kpd::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kpd::kernels {
KPD_DISPATCH(fwht_rows);
}  // namespace kpd::kernels
#endif
