// kernels: 16-bit floats to 32 bits, one target at a time.
#include "base/targets.h"

#include <hwy/highway.h>

#if defined(KPD_WIDEN_F16_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KPD_WIDEN_F16_INL_H_
#undef KPD_WIDEN_F16_INL_H_
#else
#define KPD_WIDEN_F16_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace kpd::kernels {
namespace HWY_NAMESPACE {
#if !KPD_TARGET_IS_SCALAR

// As many halves as DF has lanes, from any address.
template <class DF>
HWY_INLINE hwy::HWY_NAMESPACE::Vec<DF> widen_f16(DF df, const uint16_t* p) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::Rebind<uint16_t, DF> du16;
  const hn::Rebind<hwy::float16_t, DF> dh;
  const auto halves = hn::LoadU(du16, p);
  const auto wide = hn::PromoteTo(df, hn::BitCast(dh, halves));
#if HWY_TARGET == HWY_SSE4
  // Without an instruction for it Highway takes infinities and NaN for numbers: the exponent is not made the highest.
  const hn::RebindToUnsigned<DF> du32;
  const auto top = hn::Set(du32, 0x7c00u);
  const auto special = hn::Eq(hn::And(hn::PromoteTo(du32, halves), top), top);
  return hn::BitCast(df, hn::Or(hn::BitCast(du32, wide), hn::And(hn::VecFromMask(du32, special), hn::Set(du32, 0x7f800000u))));
#else
  return wide;
#endif
}

template <class DF>
HWY_INLINE hwy::HWY_NAMESPACE::Vec<DF> widen_bf16(DF df, const uint16_t* p) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::Rebind<hwy::bfloat16_t, DF> dh;
  return hn::PromoteTo(df, hn::BitCast(dh, hn::LoadU(hn::Rebind<uint16_t, DF>(), p)));
}

#endif  // !KPD_TARGET_IS_SCALAR
}  // namespace HWY_NAMESPACE
}  // namespace kpd::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
