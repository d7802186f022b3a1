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

#include "kernels/hadamard.h"
#include "kpd/base/cpu.h"

HWY_BEFORE_NAMESPACE();
namespace kpd::kernels {
namespace HWY_NAMESPACE {

#if KPD_TARGET_IS_SCALAR
void Fwht(float* y, size_t n, const HadamardIn& in, const HadamardOut* out) { scalar::fwht(y, n, in, out); }
void FlipScale(const HadamardIn& in, size_t n, float* dst, bool accumulate) { scalar::flip_scale(in, n, dst, accumulate); }
void MirrorButterfly(float* y, size_t n) { scalar::mirror_butterfly(y, n); }
#else

namespace hn = hwy::HWY_NAMESPACE;

using D = hn::CappedTag<float, 16>;
using DU = hn::RebindToUnsigned<D>;
using V = hn::Vec<D>;
using VU = hn::Vec<DU>;
inline constexpr size_t kLanes = hn::MaxLanes(D());
// Radix of a pass: as many vectors as the register file holds beside temporaries.
#if HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM_A64
inline constexpr size_t kRadix = 16;
#else
inline constexpr size_t kRadix = 8;
#endif

// Sign bits: a word of 32 is broadcast from memory and shifted so that each lane's own bit comes on top. The shifts depend on i
// % 32 only.
HWY_INLINE VU sign_shifts(size_t i) {
  const DU du;
#if HWY_TARGET <= HWY_AVX2 || HWY_ARCH_ARM_A64
  return hn::Sub(hn::Set(du, static_cast<uint32_t>(31 - i % 32)), hn::Iota(du, 0));
#else
  // No variable shift before AVX2: the bit to test instead.
  HWY_ALIGN static constexpr uint32_t kBit[4] = {1, 2, 4, 8};
  return hn::ShiftLeftSame(hn::Load(du, kBit), static_cast<int>(i % 32));
#endif
}

// 0 or 0x80000000 in each lane for elements [i, i + kLanes); i is a multiple of kLanes, shifts = sign_shifts(i).
HWY_INLINE VU sign_mask(const uint32_t* signs, size_t i, VU shifts) {
  const DU du;
  const VU word = hn::Set(du, signs[i / 32]);
  const VU top = hn::Set(du, 0x80000000u);
#if HWY_TARGET <= HWY_AVX2 || HWY_ARCH_ARM_A64
  return hn::And(hn::Shl(word, shifts), top);
#else
  return hn::And(hn::VecFromMask(du, hn::Eq(hn::And(word, shifts), shifts)), top);
#endif
}

// What is done to a vector at an edge of the transform: scale, then signs.
template <bool kSigns>
struct Edge {
  const uint32_t* signs;
  V scale;
  HWY_INLINE V operator()(V v, size_t i, VU shifts) const {
    v = hn::Mul(v, scale);
    if constexpr (kSigns) v = hn::BitCast(D(), hn::Xor(hn::BitCast(DU(), v), sign_mask(signs, i, shifts)));
    return v;
  }
};

// One stage inside the vector: lanes l and l + h of each group of 2h.
template <size_t h>
HWY_INLINE V swap_lanes(V v) {
  const D d;
  if constexpr (h == 1) return hn::Shuffle2301(v);
  if constexpr (h == 2) return hn::Shuffle1032(v);
#if HWY_TARGET <= HWY_AVX2
  if constexpr (h == 4 && kLanes == 8) {
    const hn::Half<D> dh;
    return hn::Combine(d, hn::LowerHalf(dh, v), hn::UpperHalf(dh, v));
  }
  if constexpr (h == 4 && kLanes == 16) return hn::SwapAdjacentBlocks(v);
  if constexpr (h == 8) {
    const hn::Half<D> dh;
    return hn::Combine(d, hn::LowerHalf(dh, v), hn::UpperHalf(dh, v));
  }
#endif
  (void)d;
  return v;
}

// Half of the sums are multiply-adds: cores with separate pipes for additions and multiply-adds (AMD's) then use both, where
// the compiler does not make additions of them again (clang does).
#if HWY_TARGET == HWY_SSE4
inline constexpr bool kMultiplyAdds = false;  // it has none
#else
inline constexpr bool kMultiplyAdds = true;
#endif

template <size_t h>
HWY_INLINE V lane_stage(V v) {
  const D d;
  const DU du;
  const VU upper = hn::VecFromMask(du, hn::Ne(hn::And(hn::Iota(du, 0), hn::Set(du, h)), hn::Zero(du)));
  const VU sign = hn::And(upper, hn::Set(du, 0x80000000u));
  if constexpr (kMultiplyAdds) {
    return hn::MulAdd(v, hn::BitCast(d, hn::Or(sign, hn::BitCast(du, hn::Set(d, 1.0f)))), swap_lanes<h>(v));
  } else {
    return hn::Add(swap_lanes<h>(v), hn::BitCast(d, hn::Xor(hn::BitCast(du, v), sign)));
  }
}

HWY_INLINE V lane_stages(V v) {
  v = lane_stage<1>(v);
  v = lane_stage<2>(v);
  if constexpr (kLanes >= 8) v = lane_stage<4>(v);
  if constexpr (kLanes >= 16) v = lane_stage<8>(v);
  return v;
}

// log2(R) stages across R vectors.
template <size_t R>
HWY_INLINE void vector_stages(V* HWY_RESTRICT v) {
  HWY_UNROLL(4)
  for (size_t h = 1; h < R; h *= 2) {
    HWY_UNROLL(8)
    for (size_t p = 0; p < R / 2; ++p) {
      const size_t i = (p / h) * 2 * h + p % h;
      const V a = v[i], b = v[i + h];
      v[i] = hn::Add(a, b);
      v[i + h] = kMultiplyAdds ? hn::NegMulAdd(b, hn::Set(D(), 1.0f), a) : hn::Sub(a, b);
    }
  }
}

struct Store {
  float* dst;
  HWY_INLINE void operator()(V v, size_t i, VU) const { hn::StoreU(v, D(), dst + i); }
};

template <class Out, bool kAccumulate>
struct StoreEdge {
  float* dst;
  Out edge;
  HWY_INLINE void operator()(V v, size_t i, VU shifts) const {
    const D d;
    V r = edge(v, i, shifts);
    if constexpr (kAccumulate) r = hn::Add(hn::LoadU(d, dst + i), r);
    hn::StoreU(r, d, dst + i);
  }
};

// First pass over [0, n): stages h < R * kLanes.
template <size_t R, class In>
HWY_NOINLINE void first_pass(const float* src, size_t n, const In in, float* y) {
  static_assert(R * kLanes % 32 == 0);
  constexpr size_t kPhases = 32 / kLanes;
  const D d;
  VU shifts[kPhases];
  for (size_t p = 0; p < kPhases; ++p) shifts[p] = sign_shifts(p * kLanes);
  for (size_t i = 0; i < n; i += R * kLanes) {
    V v[R];
    HWY_UNROLL(16)
    for (size_t j = 0; j < R; ++j) {
      v[j] = lane_stages(in(hn::LoadU(d, src + i + j * kLanes), i + j * kLanes, shifts[j % kPhases]));
    }
    vector_stages<R>(v);
    HWY_UNROLL(16)
    for (size_t j = 0; j < R; ++j) hn::StoreU(v[j], d, y + i + j * kLanes);
  }
}

// A later pass: stages h, 2h, ..., (R/2) h.
template <size_t R, class St>
HWY_NOINLINE void strided_pass(const float* y, size_t n, size_t h, const St store) {
  const D d;
  for (size_t base = 0; base < n; base += R * h) {
    for (size_t i = base; i < base + h; i += kLanes) {
      V v[R];
      HWY_UNROLL(16)
      for (size_t j = 0; j < R; ++j) v[j] = hn::LoadU(d, y + i + j * h);
      vector_stages<R>(v);
      const VU shifts = sign_shifts(i);  // h is a multiple of 32
      HWY_UNROLL(16)
      for (size_t j = 0; j < R; ++j) store(v[j], i + j * h, shifts);
    }
  }
}

template <class St>
HWY_INLINE void strided_pass_radix(size_t radix, const float* y, size_t n, size_t h, const St& store) {
  switch (radix) {
    case 2:
      return strided_pass<2>(y, n, h, store);
    case 4:
      return strided_pass<4>(y, n, h, store);
    case 8:
      return strided_pass<8>(y, n, h, store);
    default:
      if constexpr (kRadix >= 16) return strided_pass<16>(y, n, h, store);
  }
}

// Radix of the pass that starts at stage h of an n-point transform: the remaining stages are spread evenly over as few passes
// as possible.
HWY_INLINE size_t pass_radix(size_t n, size_t h) {
  size_t stages = 0;
  for (size_t r = n / h; r > 1; r /= 2) ++stages;
  size_t max_stages = 0;
  for (size_t r = kRadix; r > 1; r /= 2) ++max_stages;
  const size_t passes = (stages + max_stages - 1) / max_stages;
  return size_t{1} << ((stages + passes - 1) / passes);
}

// All passes but the last; returns the first stage that is left. n >= 2 * kRadix * kLanes.
template <class In>
HWY_INLINE size_t leading_passes(float* y, size_t n, const float* src, const In& in) {
  first_pass<kRadix>(src, n, in, y);
  size_t h = kRadix * kLanes;
  for (size_t radix = pass_radix(n, h); h * radix < n; radix = pass_radix(n, h)) {
    strided_pass_radix(radix, y, n, h, Store{y});
    h *= radix;
  }
  return h;
}

template <bool kAccumulate>
HWY_INLINE void last_pass(float* y, size_t n, size_t h, const HadamardOut& out) {
  const V scale = hn::Set(D(), out.scale);
  if (out.signs == nullptr) {
    return strided_pass_radix(n / h, y, n, h, StoreEdge<Edge<false>, kAccumulate>{out.dst, {nullptr, scale}});
  }
  strided_pass_radix(n / h, y, n, h, StoreEdge<Edge<true>, kAccumulate>{out.dst, {out.signs, scale}});
}

void Fwht(float* y, size_t n, const HadamardIn& in, const HadamardOut* out) {
  const D d;
  if (n < 2 * kRadix * kLanes) return scalar::fwht(y, n, in, out);  // short tensors only
  const V scale = hn::Set(d, in.scale);
  const size_t h = in.signs == nullptr ? leading_passes(y, n, in.src, Edge<false>{nullptr, scale})
                                       : leading_passes(y, n, in.src, Edge<true>{in.signs, scale});
  if (out == nullptr) {
    strided_pass_radix(n / h, y, n, h, Store{y});
  } else if (out->accumulate) {
    last_pass<true>(y, n, h, *out);
  } else {
    last_pass<false>(y, n, h, *out);
  }
}

void FlipScale(const HadamardIn& in, size_t n, float* dst, bool accumulate) {
  const D d;
  const V scale = hn::Set(d, in.scale);
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    V v = hn::Mul(hn::LoadU(d, in.src + i), scale);
    if (in.signs != nullptr) v = hn::BitCast(d, hn::Xor(hn::BitCast(DU(), v), sign_mask(in.signs, i, sign_shifts(i))));
    if (accumulate) v = hn::Add(hn::LoadU(d, dst + i), v);
    hn::StoreU(v, d, dst + i);
  }
  for (; i < n; ++i) {
    float v = in.src[i] * in.scale;
    if (in.signs != nullptr && ((in.signs[i / 32] >> (i % 32)) & 1) != 0) v = -v;
    dst[i] = accumulate ? dst[i] + v : v;
  }
}

void MirrorButterfly(float* y, size_t n) {
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

#endif  // KPD_TARGET_IS_SCALAR
}  // namespace HWY_NAMESPACE
}  // namespace kpd::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kpd::kernels {
HWY_EXPORT(Fwht);
HWY_EXPORT(FlipScale);
HWY_EXPORT(MirrorButterfly);

void fwht(float* y, size_t n, const HadamardIn& in, const HadamardOut* out) {
  if (use_scalar_kernels()) return scalar::fwht(y, n, in, out);
  HWY_DYNAMIC_DISPATCH(Fwht)(y, n, in, out);
}

void flip_scale(const HadamardIn& in, size_t n, float* dst, bool accumulate) {
  if (use_scalar_kernels()) return scalar::flip_scale(in, n, dst, accumulate);
  HWY_DYNAMIC_DISPATCH(FlipScale)(in, n, dst, accumulate);
}

void mirror_butterfly(float* y, size_t n) {
  if (use_scalar_kernels()) return scalar::mirror_butterfly(y, n);
  HWY_DYNAMIC_DISPATCH(MirrorButterfly)(y, n);
}
}  // namespace kpd::kernels
#endif
