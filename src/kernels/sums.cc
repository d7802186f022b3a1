// kernels: sums by a fixed tree with Highway (sums.h).
#include "base/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/sums.cc"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "kernels/sums-inl.h"
#include "kernels/sums.h"

HWY_BEFORE_NAMESPACE();
namespace kpd::kernels {
namespace HWY_NAMESPACE {

#if !KPD_TARGET_IS_SCALAR

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::CappedTag<float, 16>;
using DU = hn::RebindToUnsigned<D>;
using VU = hn::Vec<DU>;
inline constexpr size_t kLanes = hn::MaxLanes(D());

Magnitude magnitude(const float* x, size_t n) {
  const D d;
  const DU du;
  const DD dd;
  const DH dh;
  VD sums[kSums];
  zero_sums(sums);
  VU most = hn::Zero(du);
  size_t i = 0;
  for (; i + kSumLanes <= n; i += kSumLanes) {
    HWY_UNROLL(8)
    for (size_t s = 0; s < kSums; ++s) {
      const VD v = hn::PromoteTo(dd, hn::LoadU(dh, x + i + s * kDoubles));
      sums[s] = hn::MulAdd(v, v, sums[s]);  // the square is exact
    }
    HWY_UNROLL(4)
    for (size_t l = 0; l < kSumLanes; l += kLanes) {
      const VU bits = hn::And(hn::BitCast(du, hn::LoadU(d, x + i + l)), hn::Set(du, 0x7fffffffu));
      most = hn::BitCast(du, hn::Max(hn::BitCast(hn::RebindToSigned<DU>(), most), hn::BitCast(hn::RebindToSigned<DU>(), bits)));
    }
  }
  double lanes[kSumLanes];
  store_sums(sums, lanes);
  uint32_t maxes[kLanes];
  hn::StoreU(most, du, maxes);
  uint32_t max_bits = 0;
  for (size_t l = 0; l < kLanes; ++l) max_bits = maxes[l] > max_bits ? maxes[l] : max_bits;
  for (; i < n; ++i) {
    uint32_t bits;
    __builtin_memcpy(&bits, x + i, 4);
    bits &= 0x7fffffffu;
    max_bits = bits > max_bits ? bits : max_bits;
    const double v = x[i];
    lanes[i % kSumLanes] += v * v;
  }
  return {max_bits, sum_lanes(lanes)};
}

// Lane i % 16 of `sums` gets the products of the numbers i; those beyond the last sixteen are added at the end.
double sum_products(const VD (&sums)[kSums], const float* a, const float* b, size_t i, size_t n) {
  double lanes[kSumLanes];
  store_sums(sums, lanes);
  for (; i < n; ++i) lanes[i % kSumLanes] += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum_lanes(lanes);
}

// bb stays 0 without kSquares.
template <bool kSquares>
Dots sum_dots(const float* a, const float* b, size_t n) {
  const DD dd;
  const DH dh;
  VD ab[kSums], bb[kSums];
  zero_sums(ab);
  zero_sums(bb);
  size_t i = 0;
  for (; i + kSumLanes <= n; i += kSumLanes) {
    HWY_UNROLL(8)
    for (size_t s = 0; s < kSums; ++s) {
      const VD x = hn::PromoteTo(dd, hn::LoadU(dh, a + i + s * kDoubles));
      const VD z = hn::PromoteTo(dd, hn::LoadU(dh, b + i + s * kDoubles));
      ab[s] = hn::Add(ab[s], hn::Mul(x, z));
      if constexpr (kSquares) bb[s] = hn::Add(bb[s], hn::Mul(z, z));
    }
  }
  Dots dots{sum_products(ab, a, b, i, n), 0};
  if constexpr (kSquares) dots.bb = sum_products(bb, b, b, i, n);
  return dots;
}

double dot(const float* a, const float* b, size_t n) { return sum_dots<false>(a, b, n).ab; }
Dots dots(const float* a, const float* b, size_t n) { return sum_dots<true>(a, b, n); }
#endif  // !KPD_TARGET_IS_SCALAR
}  // namespace HWY_NAMESPACE
}  // namespace kpd::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kpd::kernels {
KPD_DISPATCH(magnitude);
KPD_DISPATCH(dot);
KPD_DISPATCH(dots);
}  // namespace kpd::kernels
#endif
