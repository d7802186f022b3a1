// kernels: the sixteen lanes of sums.h as vectors of doubles, one target at a time.
#include "base/targets.h"

#include <hwy/highway.h>

#include "kernels/sums.h"

#if defined(KPD_SUMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KPD_SUMS_INL_H_
#undef KPD_SUMS_INL_H_
#else
#define KPD_SUMS_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace kpd::kernels {
namespace HWY_NAMESPACE {
#if !KPD_TARGET_IS_SCALAR

using DD = hwy::HWY_NAMESPACE::CappedTag<double, 8>;
using DH = hwy::HWY_NAMESPACE::Rebind<float, DD>;  // as many floats
using VD = hwy::HWY_NAMESPACE::Vec<DD>;
inline constexpr size_t kDoubles = hwy::HWY_NAMESPACE::MaxLanes(DD());
inline constexpr size_t kSums = kSumLanes / kDoubles;  // vectors that hold the lanes, in order

HWY_INLINE void zero_sums(VD* sums) {
  for (size_t s = 0; s < kSums; ++s) sums[s] = hwy::HWY_NAMESPACE::Zero(DD());
}

HWY_INLINE void store_sums(const VD* sums, double* lanes) {
  for (size_t s = 0; s < kSums; ++s) hwy::HWY_NAMESPACE::StoreU(sums[s], DD(), lanes + s * kDoubles);
}

#endif  // !KPD_TARGET_IS_SCALAR
}  // namespace HWY_NAMESPACE
}  // namespace kpd::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
