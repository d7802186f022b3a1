// kernels: integer weight products with Highway (int_product.h; tiles as int_product_pack.cc describes them).
//
// One kernel serves all numbers of rows: R <= 4 rows of activations against one tile, accumulators in registers. A vector holds
// four columns of kLanes outputs; four activation codes are broadcast to all its lanes. One row reads the weights once, at
// memory speed; for more rows the tile stays in the caches while the groups of rows pass over it, and unpacking is shared by a
// group.
#include "base/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/int_product.cc"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>

#include "kernels/int_product.h"
#include "kpd/base/cpu.h"

HWY_BEFORE_NAMESPACE();
namespace kpd::kernels {
namespace HWY_NAMESPACE {

#if KPD_TARGET_IS_SCALAR
void IntProduct(const IntMatrix& w, const Int8Rows& x, size_t tile_begin, size_t tile_end, float* out, size_t out_stride) {
  scalar::int_product(w, x, tile_begin, tile_end, out, out_stride);
}
#else

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
HWY_INLINE VI16 portable_pairs(VI8 a, VI8 b) {
  const DI16 d;
  const VI16 a16 = hn::BitCast(d, a), b16 = hn::BitCast(d, b);
  const VI16 even = hn::Mul(hn::ShiftRight<8>(hn::ShiftLeft<8>(a16)), hn::ShiftRight<8>(hn::ShiftLeft<8>(b16)));
  return hn::Add(even, hn::Mul(hn::ShiftRight<8>(a16), hn::ShiftRight<8>(b16)));
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
  return portable_pairs(hn::BitCast(DI8(), u), s);
#endif
}

// Signed weights, prepared once for several rows.
struct SignedWeights {
  VI8 value;
  VU8 magnitude;
};

HWY_INLINE SignedWeights prepare(VI8 w) {
#if HWY_ARCH_X86
  return {w, hn::BitCast(DU8(), hn::Abs(w))};  // -128 gives the byte 128, which is right
#else
  return {w, hn::BitCast(DU8(), w)};
#endif
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
  return portable_pairs(w.value, x);
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
#else
  const VI32 v32 = hn::BitCast(DI32(), v);
  return hn::Add(hn::ShiftRight<16>(hn::ShiftLeft<16>(v32)), hn::ShiftRight<16>(v32));
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

template <int kShift>
HWY_INLINE VU8 shift_bytes(VU8 w) {  // bits of the neighbour come in on top: mask them
  return hn::BitCast(DU8(), hn::ShiftRight<kShift>(hn::BitCast(DU16(), w)));
}

HWY_INLINE void load_f16(const uint8_t* p, VF* v) {
  const hn::Rebind<hwy::float16_t, DF> dh;
  for (size_t i = 0; i < kVecs; ++i) {
    v[i] = hn::PromoteTo(DF(), hn::LoadU(dh, reinterpret_cast<const hwy::float16_t*>(p) + i * kLanes));
  }
}

template <typename T>
HWY_INLINE VF load_8bit(const uint8_t* p) {
  const hn::Rebind<T, DF> d8;
  return hn::ConvertTo(DF(), hn::PromoteTo(DI32(), hn::LoadU(d8, reinterpret_cast<const T*>(p))));
}

// Keeps the compiler from summing a block's products as a tree, which it likes for its short chains: all of them would be alive
// at once, more than there are registers.
template <class V>
HWY_INLINE void keep_in_order(V* v) {
#if HWY_ARCH_X86 && HWY_COMPILER_GCC
  for (size_t i = 0; i < kVecs; ++i) asm volatile("" : "+x"(v[i].raw));
#else
  (void)v;
#endif
}

// R rows of a block's activations: codes x + r * stride.
template <size_t R>
struct Codes {
  const int8_t* x;
  size_t stride;
  HWY_INLINE VI8 four(size_t r, size_t column) const { return broadcast_codes(x + r * stride + column); }
};

// ---- The formats ----
// kParts sums a block, each with its scale; kHasMin; `kOffset` is subtracted from every code. scales(header, block, d, m) loads
// the scales of a tile's outputs, dot<R>(codes, x, sums) adds up a block.

// Eight columns of two groups in the low and high nibbles.
template <bool kFirst, size_t R>
HWY_INLINE void add_nibbles(const VU8* low, const VU8* high, const Codes<R>& x, size_t column, VI16 (*sums)[kVecs]) {
  for (size_t r = 0; r < R; ++r) {
    const VI8 x_low = x.four(r, column), x_high = x.four(r, column + 4);
    for (size_t v = 0; v < kVecs; ++v) {
      const VI16 p = mul_pairs(low[v], x_low);
      sums[r][v] = hn::Add(kFirst ? p : hn::Add(sums[r][v], p), mul_pairs(high[v], x_high));
    }
    keep_in_order(sums[r]);
  }
}

template <bool kFirst, size_t R>
HWY_INLINE void add_nibble_chunk(const uint8_t* chunk, const Codes<R>& x, size_t column, VI16 (*sums)[kVecs]) {
  VU8 low[kVecs], high[kVecs];
  for (size_t v = 0; v < kVecs; ++v) {
    const VU8 w = load_bytes(chunk + v * kBytes);
    low[v] = low_nibbles(w);
    high[v] = low_nibbles(shift_bytes<4>(w));
  }
  add_nibbles<kFirst>(low, high, x, column, sums);
}

// 16-bit sums hold a whole block: 32 * 15 * 127 = 2 * 30480.
template <size_t R>
HWY_INLINE void dot_nibbles(const uint8_t* codes, const Codes<R>& x, VI32 (*sums)[kVecs]) {
  VI16 sums16[R][kVecs];
  add_nibble_chunk<true>(codes, x, 0, sums16);
  add_nibble_chunk<false>(codes + 64, x, 8, sums16);
  add_nibble_chunk<false>(codes + 128, x, 16, sums16);
  add_nibble_chunk<false>(codes + 192, x, 24, sums16);
  for (size_t r = 0; r < R; ++r) {
    for (size_t v = 0; v < kVecs; ++v) sums[r][v] = add_pairs(sums16[r][v]);
  }
}

// Four columns of signed weights.
template <bool kFirst, size_t R>
HWY_INLINE void add_signed(const SignedWeights* w, const Codes<R>& x, size_t column, VI32 (*sums)[kVecs]) {
  for (size_t r = 0; r < R; ++r) {
    const VI8 four = x.four(r, column);
    for (size_t v = 0; v < kVecs; ++v) {
      const VI32 p = add_pairs(mul_pairs(w[v], four));
      sums[r][v] = kFirst ? p : hn::Add(sums[r][v], p);
    }
    keep_in_order(sums[r]);
  }
}

struct OneScale {
  static constexpr size_t kParts = 1;
  static constexpr bool kHasMin = false;
  static HWY_INLINE void scales(const uint8_t*, const uint8_t* block, VF (*d)[kVecs], VF*) { load_f16(block, d[0]); }
};

struct Q4 : OneScale {
  static constexpr IntLayout kLayout = IntLayout::kQ4;
  static constexpr int kOffset = 8;
  template <size_t R>
  static HWY_INLINE void dot(const uint8_t* block, const Codes<R>& x, VI32 (*sums)[R][kVecs]) {
    dot_nibbles(block + 32, x, sums[0]);
  }
};

struct Q4Min {
  static constexpr IntLayout kLayout = IntLayout::kQ4Min;
  static constexpr size_t kParts = 1;
  static constexpr bool kHasMin = true;
  static constexpr int kOffset = 0;
  static HWY_INLINE void scales(const uint8_t*, const uint8_t* block, VF (*d)[kVecs], VF* m) {
    load_f16(block, d[0]);
    load_f16(block + 32, m);
  }
  template <size_t R>
  static HWY_INLINE void dot(const uint8_t* block, const Codes<R>& x, VI32 (*sums)[R][kVecs]) {
    dot_nibbles(block + 64, x, sums[0]);
  }
};

// The products of scales are exact, so that m is ggml's minimum with the sign that block_term wants.
struct Q4K {
  static constexpr IntLayout kLayout = IntLayout::kQ4K;
  static constexpr size_t kParts = 1;
  static constexpr bool kHasMin = true;
  static constexpr int kOffset = 0;
  static HWY_INLINE void scales(const uint8_t* header, const uint8_t* block, VF (*d)[kVecs], VF* m) {
    load_f16(header, d[0]);
    load_f16(header + 32, m);
    for (size_t v = 0; v < kVecs; ++v) {
      d[0][v] = hn::Mul(d[0][v], load_8bit<uint8_t>(block + v * kLanes));
      m[v] = hn::Neg(hn::Mul(m[v], load_8bit<uint8_t>(block + 16 + v * kLanes)));
    }
  }
  template <size_t R>
  static HWY_INLINE void dot(const uint8_t* block, const Codes<R>& x, VI32 (*sums)[R][kVecs]) {
    dot_nibbles(block + 32, x, sums[0]);
  }
};

struct Q4Table : OneScale {
  static constexpr IntLayout kLayout = IntLayout::kQ4Table;
  static constexpr int kOffset = 0;
  template <bool kFirst, size_t R>
  static HWY_INLINE void add_chunk(const uint8_t* chunk, const Codes<R>& x, size_t column, VI32 (*sums)[kVecs]) {
    const VI8 table = hn::LoadDup128(DI8(), kQ4Levels);
    SignedWeights low[kVecs], high[kVecs];
    for (size_t v = 0; v < kVecs; ++v) {
      const VU8 w = load_bytes(chunk + v * kBytes);
      low[v] = prepare(hn::TableLookupBytes(table, hn::BitCast(DI8(), low_nibbles(w))));
      high[v] = prepare(hn::TableLookupBytes(table, hn::BitCast(DI8(), low_nibbles(shift_bytes<4>(w)))));
    }
    add_signed<kFirst>(low, x, column, sums);
    add_signed<false>(high, x, column + 4, sums);
  }
  template <size_t R>
  static HWY_INLINE void dot(const uint8_t* block, const Codes<R>& x, VI32 (*sums)[R][kVecs]) {
    add_chunk<true>(block + 32, x, 0, sums[0]);
    HWY_UNROLL(3)
    for (size_t j = 1; j < 4; ++j) add_chunk<false>(block + 32 + 64 * j, x, 8 * j, sums[0]);
  }
};

struct Q8 : OneScale {
  static constexpr IntLayout kLayout = IntLayout::kQ8;
  static constexpr int kOffset = 0;
  template <bool kFirst, size_t R>
  static HWY_INLINE void add_chunk(const uint8_t* chunk, const Codes<R>& x, size_t column, VI32 (*sums)[kVecs]) {
    SignedWeights w[kVecs];
    for (size_t v = 0; v < kVecs; ++v) w[v] = prepare(hn::BitCast(DI8(), load_bytes(chunk + v * kBytes)));
    add_signed<kFirst>(w, x, column, sums);
  }
  template <size_t R>
  static HWY_INLINE void dot(const uint8_t* block, const Codes<R>& x, VI32 (*sums)[R][kVecs]) {
    add_chunk<true>(block + 32, x, 0, sums[0]);
    HWY_UNROLL(7)
    for (size_t g = 1; g < 8; ++g) add_chunk<false>(block + 32 + 64 * g, x, 4 * g, sums[0]);
  }
};

// A scale per 16 columns. 16-bit sums hold eight columns: 8 * 63 * 127 = 2 * 32004.
struct Q6K {
  static constexpr IntLayout kLayout = IntLayout::kQ6K;
  static constexpr size_t kParts = 2;
  static constexpr bool kHasMin = false;
  static constexpr int kOffset = 32;
  static HWY_INLINE void scales(const uint8_t* header, const uint8_t* block, VF (*d)[kVecs], VF*) {
    VF shared[kVecs];
    load_f16(header, shared);
    for (size_t v = 0; v < kVecs; ++v) {
      d[0][v] = hn::Mul(shared[v], load_8bit<int8_t>(block + v * kLanes));
      d[1][v] = hn::Mul(shared[v], load_8bit<int8_t>(block + 16 + v * kLanes));
    }
  }
  // Eight columns: a chunk of low nibbles, and bits 4 * kPair.. of a chunk of high bits.
  template <size_t kPair, size_t R>
  static HWY_INLINE void add_chunk(const uint8_t* chunk, const uint8_t* high_bits, const Codes<R>& x, size_t column,
                                   VI32 (*sums)[kVecs]) {
    const VU8 mask = hn::Set(DU8(), 0x30);
    VU8 low[kVecs], high[kVecs];
    for (size_t v = 0; v < kVecs; ++v) {
      const VU8 w = load_bytes(chunk + v * kBytes), h = load_bytes(high_bits + v * kBytes);
      const VU8 h_low = kPair == 0 ? hn::BitCast(DU8(), hn::ShiftLeft<4>(hn::BitCast(DU16(), h))) : h;
      const VU8 h_high = kPair == 0 ? hn::BitCast(DU8(), hn::ShiftLeft<2>(hn::BitCast(DU16(), h))) : shift_bytes<2>(h);
      low[v] = hn::Or(low_nibbles(w), hn::And(h_low, mask));
      high[v] = hn::Or(low_nibbles(shift_bytes<4>(w)), hn::And(h_high, mask));
    }
    VI16 sums16[R][kVecs];
    add_nibbles<true>(low, high, x, column, sums16);
    for (size_t r = 0; r < R; ++r) {
      for (size_t v = 0; v < kVecs; ++v) {
        const VI32 p = add_pairs(sums16[r][v]);
        sums[r][v] = kPair == 0 ? p : hn::Add(sums[r][v], p);
      }
    }
  }
  template <size_t R>
  static HWY_INLINE void dot(const uint8_t* block, const Codes<R>& x, VI32 (*sums)[R][kVecs]) {
    const uint8_t* high = block + 32 + 256;
    for (size_t h = 0; h < 2; ++h) {
      add_chunk<0>(block + 32 + 128 * h, high + 64 * h, x, 16 * h, sums[h]);
      add_chunk<1>(block + 32 + 128 * h + 64, high + 64 * h, x, 16 * h + 8, sums[h]);
    }
  }
};

// ---- The kernel ----

// A block's work fills the reorder window, so that without a hint the next lines are asked for too late. May point past the
// end.
inline constexpr size_t kPrefetchBytes = 2048;

// What block b adds to R rows' outputs, in the order of operations of int_product.h.
template <class F, size_t R>
HWY_INLINE void add_block(const uint8_t* header, const uint8_t* block, const Int8Rows& x, size_t row, size_t b,
                          VF (*acc)[kVecs]) {
  const DF df;
  const size_t n_blocks = x.n_cols / kBlockCols;
  VI32 sums[F::kParts][R][kVecs];
  F::template dot<R>(block, Codes<R>{x.codes + row * x.n_cols + b * kBlockCols, x.n_cols}, sums);
  VF d[F::kParts][kVecs], m[kVecs];
  F::scales(header, block, d, m);
  for (size_t r = 0; r < R; ++r) {
    const size_t index = (row + r) * n_blocks + b;
    const VF dx = hn::Set(df, x.scales[index]);
    const int half_sums[2] = {x.sums[2 * index], x.sums[2 * index + 1]};
    for (size_t v = 0; v < kVecs; ++v) {
      VF term[F::kParts];
      for (size_t p = 0; p < F::kParts; ++p) {
        VI32 sum = sums[p][r][v];
        if constexpr (F::kOffset != 0) {
          const int code_sum = F::kParts == 2 ? half_sums[p] : half_sums[0] + half_sums[1];
          sum = hn::Sub(sum, hn::Set(DI32(), F::kOffset * code_sum));
        }
        term[p] = hn::Mul(hn::ConvertTo(df, sum), hn::Mul(d[p][v], dx));
      }
      if constexpr (F::kParts == 2) term[0] = hn::Add(term[0], term[1]);
      if constexpr (F::kHasMin) term[0] = hn::Add(term[0], hn::Mul(m[v], hn::Set(df, x.scaled_sums[index])));
      acc[r][v] = hn::Add(acc[r][v], term[0]);
    }
  }
}

template <class F, size_t R>
HWY_NOINLINE void tile_rows(const uint8_t* tile, const Int8Rows& x, size_t row, size_t outputs, float* out, size_t out_stride) {
  constexpr IntLayoutInfo kInfo = int_layout_info(F::kLayout);
  const DF df;
  VF acc[R][kVecs];
  for (size_t r = 0; r < R; ++r) {
    for (size_t v = 0; v < kVecs; ++v) acc[r][v] = hn::Zero(df);
  }
  const size_t n_blocks = x.n_cols / kBlockCols;
  for (size_t super = 0; super < n_blocks; super += kInfo.super_blocks) {
    const uint8_t* header = tile;
    tile += kInfo.header_bytes;
    for (size_t b = super; b < super + kInfo.super_blocks; ++b, tile += kInfo.block_bytes) {
      for (size_t i = 0; i < kInfo.block_bytes; i += 64) hwy::Prefetch(tile + kPrefetchBytes + i);
      add_block<F, R>(header, tile, x, row, b, acc);
    }
  }
  for (size_t r = 0; r < R; ++r) {
    HWY_ALIGN float values[kTileOutputs];
    float* dst = out + r * out_stride;
    for (size_t v = 0; v < kVecs; ++v) hn::StoreU(acc[r][v], df, (outputs == kTileOutputs ? dst : values) + v * kLanes);
    if (outputs < kTileOutputs) std::memcpy(dst, values, outputs * sizeof(float));
  }
}

template <class F>
void product(const IntMatrix& w, const Int8Rows& x, size_t tile_begin, size_t tile_end, float* out, size_t out_stride) {
  const size_t stride = tile_bytes(w.layout, w.n_in);
  for (size_t t = tile_begin; t < tile_end; ++t) {
    const uint8_t* tile = w.bytes + t * stride;
    const size_t outputs = std::min(kTileOutputs, w.n_out - t * kTileOutputs);
    float* dst = out + t * kTileOutputs;
    size_t r = 0;
    for (; r + 4 <= x.n_rows; r += 4) tile_rows<F, 4>(tile, x, r, outputs, dst + r * out_stride, out_stride);
    switch (x.n_rows - r) {
      case 3:
        tile_rows<F, 3>(tile, x, r, outputs, dst + r * out_stride, out_stride);
        break;
      case 2:
        tile_rows<F, 2>(tile, x, r, outputs, dst + r * out_stride, out_stride);
        break;
      case 1:
        tile_rows<F, 1>(tile, x, r, outputs, dst + r * out_stride, out_stride);
        break;
      default:
        break;
    }
  }
}

void IntProduct(const IntMatrix& w, const Int8Rows& x, size_t tile_begin, size_t tile_end, float* out, size_t out_stride) {
  switch (w.layout) {
    case IntLayout::kQ4:
      return product<Q4>(w, x, tile_begin, tile_end, out, out_stride);
    case IntLayout::kQ4Min:
      return product<Q4Min>(w, x, tile_begin, tile_end, out, out_stride);
    case IntLayout::kQ4Table:
      return product<Q4Table>(w, x, tile_begin, tile_end, out, out_stride);
    case IntLayout::kQ4K:
      return product<Q4K>(w, x, tile_begin, tile_end, out, out_stride);
    case IntLayout::kQ6K:
      return product<Q6K>(w, x, tile_begin, tile_end, out, out_stride);
    case IntLayout::kQ8:
      return product<Q8>(w, x, tile_begin, tile_end, out, out_stride);
  }
}
#endif  // KPD_TARGET_IS_SCALAR
}  // namespace HWY_NAMESPACE
}  // namespace kpd::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kpd::kernels {
HWY_EXPORT(IntProduct);

void int_product(const IntMatrix& w, const Int8Rows& x, size_t tile_begin, size_t tile_end, float* out, size_t out_stride) {
  if (use_scalar_kernels()) return scalar::int_product(w, x, tile_begin, tile_end, out, out_stride);
  HWY_DYNAMIC_DISPATCH(IntProduct)(w, x, tile_begin, tile_end, out, out_stride);
}
}  // namespace kpd::kernels
#endif
