// kernels: the Walsh-Hadamard butterflies with Highway (hadamard.h).
//
// A transform is a few passes over a block that fits the first-level cache. The first pass does the stages inside a vector by
// shuffles and three (or four) stages across vectors; each later pass does as many stages as the registers hold. Signs and
// scales ride on the first loads and the last stores. Only adds and subtracts, some as multiply-adds with 1 or -1, which are
// exact, and sign flips, so no vector width changes a result.
#include "base/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/hadamard.cc"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "kernels/hadamard-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kpd::kernels {
namespace HWY_NAMESPACE {

#if !KPD_TARGET_IS_SCALAR

namespace hn = hwy::HWY_NAMESPACE;
using namespace hadamard;

void fwht(float* y, size_t n, const HadamardIn& in, const HadamardOut* out) {
  if (n < kShortestVector) return scalar::fwht(y, n, in, out);
  if (n <= kRegisterTransform) {
    const HadamardEdge before{in.signs, 0, in.scale};
    if (out == nullptr) return short_rows<true, false>(n, {in.src, y, 1, n, before, {}, false});
    return short_rows<true, true>(n, {in.src, out->dst, 1, n, before, {out->signs, 0, out->scale}, out->accumulate});
  }
  long_transform(y, n, in, out);
}

void flip_scale(const HadamardIn& in, size_t n, float* dst, bool accumulate) {
  const D d;
  const V scale = hn::Set(d, in.scale);
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    V v = hn::Mul(hn::LoadU(d, in.src + i), scale);
    if (in.signs != nullptr) v = hn::BitCast(d, hn::Xor(hn::BitCast(DU(), v), sign_mask(d, in.signs, i, sign_shifts(d, i))));
    if (accumulate) v = hn::Add(hn::LoadU(d, dst + i), v);
    hn::StoreU(v, d, dst + i);
  }
  for (; i < n; ++i) {
    float v = in.src[i] * in.scale;
    if (in.signs != nullptr && ((in.signs[i / 32] >> (i % 32)) & 1) != 0) v = -v;
    dst[i] = accumulate ? dst[i] + v : v;
  }
}

void mirror_butterfly(float* y, size_t n) {
  const D d;
  const V c = hn::Set(d, kSqrtHalf);
  const size_t half = n / 2;
  size_t i = 0;
  for (; i + kLanes <= half; i += kLanes) {
    float* const mirror = y + (n - i - kLanes);
    const V a = hn::LoadU(d, y + i), b = hn::Reverse(d, hn::LoadU(d, mirror));
    hn::StoreU(hn::Mul(hn::Add(a, b), c), d, y + i);
    hn::StoreU(hn::Reverse(d, hn::Mul(hn::Sub(a, b), c)), d, mirror);
  }
  for (; i < half; ++i) {
    const float a = y[i], b = y[n - 1 - i];
    y[i] = (a + b) * kSqrtHalf;
    y[n - 1 - i] = (a - b) * kSqrtHalf;
  }
}

#endif  // !KPD_TARGET_IS_SCALAR
}  // namespace HWY_NAMESPACE
}  // namespace kpd::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kpd::kernels {
KPD_DISPATCH(fwht);
KPD_DISPATCH(flip_scale);
KPD_DISPATCH(mirror_butterfly);
}  // namespace kpd::kernels
#endif
