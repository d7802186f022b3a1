// kernels: the parts of a Walsh-Hadamard transform, one target at a time: included by hadamard.cc and hadamard_rows.cc inside
// foreach_target.
//
// A transform that the registers hold is one pass: the stages inside a vector by shuffles, then those across vectors. A longer
// one is a few passes over a block that fits the first-level cache: the first does the stages inside a vector and three (or
// four) across vectors; each later pass does as many as the registers hold. Signs and scales ride on the first loads and the
// last stores. Only adds and subtracts, some as multiply-adds with 1 or -1, which are exact, and sign flips, so no vector width
// changes a result.
#include "base/targets.h"

#include <hwy/highway.h>

#include "kernels/hadamard.h"

#if defined(KPD_HADAMARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KPD_HADAMARD_INL_H_
#undef KPD_HADAMARD_INL_H_
#else
#define KPD_HADAMARD_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace kpd::kernels {
namespace HWY_NAMESPACE {
namespace hadamard {
#if !KPD_TARGET_IS_SCALAR

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
template <class Tag>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<Tag>> sign_shifts(Tag, size_t i) {
  const hn::RebindToUnsigned<Tag> du;
#if HWY_TARGET <= HWY_AVX2 || HWY_ARCH_ARM_A64
  return hn::Sub(hn::Set(du, static_cast<uint32_t>(31 - i % 32)), hn::Iota(du, 0));
#else
  // No variable shift before AVX2: the bit to test instead.
  HWY_ALIGN static constexpr uint32_t kBit[4] = {1, 2, 4, 8};
  return hn::ShiftLeftSame(hn::Load(du, kBit), static_cast<int>(i % 32));
#endif
}

// 0 or 0x80000000 in each lane for elements [i, i + lanes), whose bits lie in one word; shifts = sign_shifts(i).
template <class Tag>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<Tag>> sign_mask(Tag, const uint32_t* signs, size_t i,
                                                        hn::Vec<hn::RebindToUnsigned<Tag>> shifts) {
  const hn::RebindToUnsigned<Tag> du;
  const auto word = hn::Set(du, signs[i / 32]);
  const auto top = hn::Set(du, 0x80000000u);
#if HWY_TARGET <= HWY_AVX2 || HWY_ARCH_ARM_A64
  return hn::And(hn::Shl(word, shifts), top);
#else
  return hn::And(hn::VecFromMask(du, hn::Eq(hn::And(word, shifts), shifts)), top);
#endif
}

// What is done to a vector at an edge of the transform: scale, then signs. No vectors here: a function that is passed one
// returns with the upper halves of the registers in use, which slows whatever SSE code comes next.
template <bool kSigns>
struct Edge {
  const uint32_t* signs;
  float scale;
  HWY_INLINE V operator()(V v, size_t i, VU shifts) const {
    v = hn::Mul(v, hn::Set(D(), scale));
    if constexpr (kSigns) v = hn::BitCast(D(), hn::Xor(hn::BitCast(DU(), v), sign_mask(D(), signs, i, shifts)));
    return v;
  }
};

// Lanes l and l + h of each group of 2h change places.
template <size_t h, class Tag>
HWY_INLINE hn::Vec<Tag> swap_lanes(Tag d, hn::Vec<Tag> v) {
  if constexpr (h == 1) return hn::Shuffle2301(v);
  if constexpr (h == 2) return hn::Shuffle1032(v);
#if HWY_TARGET <= HWY_AVX2
  if constexpr (h == 4 && hn::MaxLanes(Tag()) == 16) {
    return hn::SwapAdjacentBlocks(v);
  } else if constexpr (h >= 4) {
    const hn::Half<Tag> dh;
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

// One stage inside the vector.
template <size_t h, class Tag>
HWY_INLINE hn::Vec<Tag> lane_stage(Tag d, hn::Vec<Tag> v) {
  const hn::RebindToUnsigned<Tag> du;
  const auto upper = hn::VecFromMask(du, hn::Ne(hn::And(hn::Iota(du, 0), hn::Set(du, h)), hn::Zero(du)));
  const auto sign = hn::And(upper, hn::Set(du, 0x80000000u));
  if constexpr (kMultiplyAdds) {
    return hn::MulAdd(v, hn::BitCast(d, hn::Or(sign, hn::BitCast(du, hn::Set(d, 1.0f)))), swap_lanes<h>(d, v));
  } else {
    return hn::Add(swap_lanes<h>(d, v), hn::BitCast(d, hn::Xor(hn::BitCast(du, v), sign)));
  }
}

// The stages h < n inside the vector; n is at most its number of lanes.
template <size_t n, class Tag>
HWY_INLINE hn::Vec<Tag> lane_stages(Tag d, hn::Vec<Tag> v) {
  if constexpr (n >= 2) v = lane_stage<1>(d, v);
  if constexpr (n >= 4) v = lane_stage<2>(d, v);
  if constexpr (n >= 8) v = lane_stage<4>(d, v);
  if constexpr (n >= 16) v = lane_stage<8>(d, v);
  return v;
}

// log2(R) stages across R vectors.
template <size_t R, class Tag>
HWY_INLINE void vector_stages(Tag d, hn::Vec<Tag>* HWY_RESTRICT v) {
  HWY_UNROLL(4)
  for (size_t h = 1; h < R; h *= 2) {
    HWY_UNROLL(8)
    for (size_t p = 0; p < R / 2; ++p) {
      const size_t i = (p / h) * 2 * h + p % h;
      const auto a = v[i], b = v[i + h];
      v[i] = hn::Add(a, b);
      v[i + h] = kMultiplyAdds ? hn::NegMulAdd(b, hn::Set(d, 1.0f), a) : hn::Sub(a, b);
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
  for (size_t p = 0; p < kPhases; ++p) shifts[p] = sign_shifts(d, p * kLanes);
  for (size_t i = 0; i < n; i += R * kLanes) {
    V v[R];
    HWY_UNROLL(16)
    for (size_t j = 0; j < R; ++j) {
      v[j] = lane_stages<kLanes>(d, in(hn::LoadU(d, src + i + j * kLanes), i + j * kLanes, shifts[j % kPhases]));
    }
    vector_stages<R>(d, v);
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
      vector_stages<R>(d, v);
      const VU shifts = sign_shifts(d, i);  // h is a multiple of 32
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
  if (out.signs == nullptr) {
    return strided_pass_radix(n / h, y, n, h, StoreEdge<Edge<false>, kAccumulate>{out.dst, {nullptr, out.scale}});
  }
  strided_pass_radix(n / h, y, n, h, StoreEdge<Edge<true>, kAccumulate>{out.dst, {out.signs, out.scale}});
}

// y = H in, or out; n >= 2 * kRadix * kLanes.
HWY_INLINE void long_transform(float* y, size_t n, const HadamardIn& in, const HadamardOut* out) {
  const size_t h = in.signs == nullptr ? leading_passes(y, n, in.src, Edge<false>{nullptr, in.scale})
                                       : leading_passes(y, n, in.src, Edge<true>{in.signs, in.scale});
  if (out == nullptr) {
    strided_pass_radix(n / h, y, n, h, Store{y});
  } else if (out->accumulate) {
    last_pass<true>(y, n, h, *out);
  } else {
    last_pass<false>(y, n, h, *out);
  }
}

// ---- Transforms that the registers hold ----

// Rows of one length. src may be dst; a row is read whole before it is written.
struct ShortRows {
  const float* src;
  float* dst;
  size_t n_rows, stride;
  HadamardEdge before, after;
  bool accumulate;  // with an edge after: dst += instead of dst =
};

// Signs of elements [i, i + lanes) of a row; zeros if it has none.
template <class Tag>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<Tag>> edge_signs(Tag d, const HadamardEdge& edge, size_t i) {
  if (edge.signs == nullptr) return hn::Zero(hn::RebindToUnsigned<Tag>());
  return sign_mask(d, edge.signs, edge.first_bit + i, sign_shifts(d, edge.first_bit + i));
}

template <class Tag>
HWY_INLINE hn::Vec<Tag> scale_flip(Tag d, hn::Vec<Tag> v, hn::Vec<Tag> scale, hn::Vec<hn::RebindToUnsigned<Tag>> signs) {
  return hn::BitCast(d, hn::Xor(hn::BitCast(hn::RebindToUnsigned<Tag>(), hn::Mul(v, scale)), signs));
}

// kBefore, kAfter: whether something is done at that edge. The rows share signs, which are made once.
template <size_t n, bool kBefore, bool kAfter>
HWY_NOINLINE void register_rows(const ShortRows& rows) {
  using Tag = hn::CappedTag<float, HWY_MIN(n, kLanes)>;
  using Signs = hn::Vec<hn::RebindToUnsigned<Tag>>;
  constexpr size_t kRowLanes = hn::MaxLanes(Tag()), R = n / kRowLanes;
  const Tag d;
  Signs before[R], after[R];
  if constexpr (kBefore) {
    for (size_t j = 0; j < R; ++j) before[j] = edge_signs(d, rows.before, j * kRowLanes);
  }
  if constexpr (kAfter) {
    for (size_t j = 0; j < R; ++j) after[j] = edge_signs(d, rows.after, j * kRowLanes);
  }
  const auto scale_before = hn::Set(d, rows.before.scale), scale_after = hn::Set(d, rows.after.scale);
  for (size_t r = 0; r < rows.n_rows; ++r) {
    const float* const src = rows.src + r * rows.stride;
    float* const dst = rows.dst + r * rows.stride;
    hn::Vec<Tag> v[R];
    HWY_UNROLL(16)
    for (size_t j = 0; j < R; ++j) {
      v[j] = hn::LoadU(d, src + j * kRowLanes);
      if constexpr (kBefore) v[j] = scale_flip(d, v[j], scale_before, before[j]);
      v[j] = lane_stages<kRowLanes>(d, v[j]);
    }
    vector_stages<R>(d, v);
    HWY_UNROLL(16)
    for (size_t j = 0; j < R; ++j) {
      if constexpr (kAfter) {
        v[j] = scale_flip(d, v[j], scale_after, after[j]);
        if (rows.accumulate) v[j] = hn::Add(hn::LoadU(d, dst + j * kRowLanes), v[j]);
      }
      hn::StoreU(v[j], d, dst + j * kRowLanes);
    }
  }
}

inline constexpr size_t kRegisterTransform = kRadix * kLanes;  // the longest such transform
inline constexpr size_t kShortestVector = 4;                   // every target has vectors of so many floats

// n a power of two, kShortestVector <= n <= kRegisterTransform.
template <bool kBefore, bool kAfter>
HWY_INLINE void short_rows(size_t n, const ShortRows& rows) {
  switch (n) {
    case 4:
      return register_rows<4, kBefore, kAfter>(rows);
    case 8:
      return register_rows<8, kBefore, kAfter>(rows);
    case 16:
      return register_rows<16, kBefore, kAfter>(rows);
    case 32:
      return register_rows<32, kBefore, kAfter>(rows);
    case 64:
      if constexpr (kRegisterTransform >= 64) return register_rows<64, kBefore, kAfter>(rows);
      break;
    case 128:
      if constexpr (kRegisterTransform >= 128) return register_rows<128, kBefore, kAfter>(rows);
      break;
    case 256:
      if constexpr (kRegisterTransform >= 256) return register_rows<256, kBefore, kAfter>(rows);
      break;
    default:
      break;
  }
}

#endif  // !KPD_TARGET_IS_SCALAR
}  // namespace hadamard
}  // namespace HWY_NAMESPACE
}  // namespace kpd::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
