// kernels: vectors of the integer products, one variant of a target at a time: included by int_product-inl.h inside its region.
//
// A vector holds four columns of kLanes outputs; four activation codes are broadcast to all its lanes.
KPD_BEFORE_VARIANT();
namespace kpd::kernels {
namespace HWY_NAMESPACE {
namespace KPD_VARIANT {

namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::CappedTag<float, kTileOutputs>;
using DI32 = hn::RebindToSigned<DF>;
using DI16 = hn::Repartition<int16_t, DF>;
using DU16 = hn::Repartition<uint16_t, DF>;
using DI8 = hn::Repartition<int8_t, DF>;
using DU8 = hn::Repartition<uint8_t, DF>;
using VF = hn::Vec<DF>;
using VI32 = hn::Vec<DI32>;
using VI16 = hn::Vec<DI16>;
using VI8 = hn::Vec<DI8>;
using VU8 = hn::Vec<DU8>;
inline constexpr size_t kLanes = hn::MaxLanes(DF());    // outputs a vector
inline constexpr size_t kVecs = kTileOutputs / kLanes;  // vectors a tile
inline constexpr size_t kBytes = 4 * kLanes;

// ---- The instructions that Highway 1.0 lacks ----

// Pairs of products of the 8-bit lanes, summed, as 16 bits; no pair of ours reaches 2^15 in magnitude.
HWY_INLINE VI16 signed_pairs(VI8 a, VI8 b) {
#if HWY_ARCH_ARM_A64
  const int16x8_t low = vmull_s8(vget_low_s8(a.raw), vget_low_s8(b.raw));
  return VI16(vpaddq_s16(low, vmull_high_s8(a.raw, b.raw)));
#else
  const DI16 d;
  const VI16 a16 = hn::BitCast(d, a), b16 = hn::BitCast(d, b);
  const VI16 even = hn::Mul(hn::ShiftRight<8>(hn::ShiftLeft<8>(a16)), hn::ShiftRight<8>(hn::ShiftLeft<8>(b16)));
  return hn::Add(even, hn::Mul(hn::ShiftRight<8>(a16), hn::ShiftRight<8>(b16)));
#endif
}

// Codes u <= 63 against signed s.
HWY_INLINE VI16 mul_pairs(VU8 u, VI8 s) {
#if HWY_TARGET == HWY_SSE4
  return VI16{_mm_maddubs_epi16(u.raw, s.raw)};
#elif HWY_TARGET == HWY_AVX2
  return VI16{_mm256_maddubs_epi16(u.raw, s.raw)};
#elif HWY_ARCH_X86
  return VI16{_mm512_maddubs_epi16(u.raw, s.raw)};
#else
  return signed_pairs(hn::BitCast(DI8(), u), s);
#endif
}

// Signed weights, prepared once for several rows.
struct SignedWeights {
  HWY_INLINE SignedWeights() {}  // NOLINT: an implicit one would lie outside the target's region
  VI8 value;
  VU8 magnitude;
};

HWY_INLINE SignedWeights prepare(VI8 w) {
  SignedWeights prepared;
  prepared.value = w;
#if HWY_ARCH_X86
  prepared.magnitude = hn::BitCast(DU8(), hn::Abs(w));  // -128 gives the byte 128, which is right
#endif
  return prepared;
}

// |w| times x with w's sign: 128 * 127 * 2 stays below 2^15.
HWY_INLINE VI16 mul_pairs(const SignedWeights& w, VI8 x) {
#if HWY_TARGET == HWY_SSE4
  return VI16{_mm_maddubs_epi16(w.magnitude.raw, _mm_sign_epi8(x.raw, w.value.raw))};
#elif HWY_TARGET == HWY_AVX2
  return VI16{_mm256_maddubs_epi16(w.magnitude.raw, _mm256_sign_epi8(x.raw, w.value.raw))};
#elif HWY_ARCH_X86
  const __mmask64 negative = _mm512_movepi8_mask(w.value.raw);
  const __m512i signed_x = _mm512_mask_sub_epi8(x.raw, negative, _mm512_setzero_si512(), x.raw);
  return VI16{_mm512_maddubs_epi16(w.magnitude.raw, signed_x)};
#else
  return signed_pairs(w.value, x);
#endif
}

// Pairs of 16-bit lanes, summed, as 32 bits.
HWY_INLINE VI32 add_pairs(VI16 v) {
#if HWY_TARGET == HWY_SSE4
  return VI32{_mm_madd_epi16(v.raw, _mm_set1_epi16(1))};
#elif HWY_TARGET == HWY_AVX2
  return VI32{_mm256_madd_epi16(v.raw, _mm256_set1_epi16(1))};
#elif HWY_ARCH_X86
  return VI32{_mm512_madd_epi16(v.raw, _mm512_set1_epi16(1))};
#elif HWY_ARCH_ARM_A64
  return VI32(vpaddlq_s16(v.raw));
#else
  const VI32 v32 = hn::BitCast(DI32(), v);
  return hn::Add(hn::ShiftRight<16>(hn::ShiftLeft<16>(v32)), hn::ShiftRight<16>(v32));
#endif
}

// sum + the four products of 8-bit lanes u (all 8 bits) and s: VNNI. A test emulates it where the target has none.
HWY_INLINE VI32 add_quads(VI32 sum, VU8 u, VI8 s) {
#if KPD_HAS_VNNI && !defined(KPD_EMULATE_VNNI) && HWY_TARGET == HWY_AVX3
  return VI32{_mm512_dpbusd_epi32(sum.raw, u.raw, s.raw)};
#elif KPD_HAS_VNNI && !defined(KPD_EMULATE_VNNI) && HWY_TARGET == HWY_AVX2
  return VI32{_mm256_dpbusd_avx_epi32(sum.raw, u.raw, s.raw)};
#else
  const DI16 d;
  const VI16 u16 = hn::BitCast(d, u), s16 = hn::BitCast(d, s);
  const VI16 even = hn::Mul(hn::And(u16, hn::Set(d, 255)), hn::ShiftRight<8>(hn::ShiftLeft<8>(s16)));  // at most 255 * 127
  const VI16 odd = hn::Mul(hn::BitCast(d, hn::ShiftRight<8>(hn::BitCast(DU16(), u))), hn::ShiftRight<8>(s16));
  return hn::Add(sum, hn::Add(add_pairs(even), add_pairs(odd)));
#endif
}

// ---- Loads ----

HWY_INLINE VI8 broadcast_codes(const int8_t* x) {
  int32_t four;
  std::memcpy(&four, x, 4);
  return hn::BitCast(DI8(), hn::Set(DI32(), four));
}

HWY_INLINE VU8 load_bytes(const uint8_t* p) { return hn::LoadU(DU8(), p); }

HWY_INLINE VU8 low_nibbles(VU8 w) { return hn::And(w, hn::Set(DU8(), 15)); }

// Bit kFrom of every byte to bit kTo. Bits of the neighbour come in too: mask the result.
template <int kFrom, int kTo>
HWY_INLINE VU8 move_bit(VU8 w) {
  const auto w16 = hn::BitCast(DU16(), w);
  if constexpr (kFrom > kTo) return hn::BitCast(DU8(), hn::ShiftRight<kFrom - kTo>(w16));
  if constexpr (kFrom < kTo) return hn::BitCast(DU8(), hn::ShiftLeft<kTo - kFrom>(w16));
  return w;
}

HWY_INLINE void load_f16(const uint8_t* p, VF* v) {
  for (size_t i = 0; i < kVecs; ++i) v[i] = widen_f16(DF(), reinterpret_cast<const uint16_t*>(p) + i * kLanes);
}

template <typename T>
HWY_INLINE VI32 load_8bit_codes(const uint8_t* p) {
  const hn::Rebind<T, DF> d8;
  return hn::PromoteTo(DI32(), hn::LoadU(d8, reinterpret_cast<const T*>(p)));
}

template <typename T>
HWY_INLINE VF load_8bit(const uint8_t* p) {
  return hn::ConvertTo(DF(), load_8bit_codes<T>(p));
}

// Keeps the compiler from summing a block's products as a tree, which it likes for its short chains: all of them would be alive
// at once, more than there are registers.
template <class V>
HWY_INLINE void keep_in_order(V* v) {
#if HWY_ARCH_X86 && HWY_COMPILER_GCC
  for (size_t i = 0; i < kVecs; ++i) asm volatile("" : "+v"(v[i].raw));
#else
  (void)v;
#endif
}

}  // namespace KPD_VARIANT
}  // namespace HWY_NAMESPACE
}  // namespace kpd::kernels
KPD_AFTER_VARIANT();
