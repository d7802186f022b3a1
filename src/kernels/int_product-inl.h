// kernels: integer weight products, one variant of a target at a time: included through base/foreach_variant-inl.h by
// int_product.cc, and by the test of the VNNI variant.
//
// One kernel serves all numbers of rows: R <= 4 rows of activations against one tile, sums in registers. One row reads the
// weights once, at memory speed; for more rows the tile stays in the caches while groups of rows pass over it, and a group
// shares the unpacking. Two ways to sum products of 8-bit codes, with equal results:
//
//   pairs   two products to 16 bits and those sums to 32: SSE4, AVX2, AVX-512, NEON
//   quads   four products to 32 bits (VNNI): unsigned weights, so signed ones are offset by 128
#include "kernels/int_product_vectors-inl.h"

KPD_BEFORE_VARIANT();
namespace kpd::kernels {
namespace HWY_NAMESPACE {
namespace KPD_VARIANT {

inline constexpr bool kQuads = KPD_HAS_VNNI;

// R rows of a block's activations.
template <size_t R>
struct Codes {
  const int8_t* x;
  size_t stride;
  HWY_INLINE VI8 four(size_t r, size_t column) const { return broadcast_codes(x + r * stride + column); }
};

// ---- The formats ----
// A block is four steps of eight columns; a step's weights are two vectors of bytes for each vector of outputs, columns 0-3
// (low) and 4-7 (high). A format has
//   kParts       sums a block (of 32 or 16 columns), each with its scale
//   kHasMin
//   kPairSums    pairs that 16 bits hold; 0: weights are signed and every pair goes to 32 bits at once
//   kOffset      what codes have above the weights; 0 for signed
//   scales       loads the scales of the tile's outputs, one a part, and their minima
//   codes        loads a step: unsigned codes (the signed ones as two's complement)

HWY_INLINE void load_nibbles(const uint8_t* chunk, VU8* low, VU8* high) {
  for (size_t v = 0; v < kVecs; ++v) {
    const VU8 w = load_bytes(chunk + v * kBytes);
    low[v] = low_nibbles(w);
    high[v] = low_nibbles(move_bit<4, 0>(w));
  }
}

// Bit 4 of codes from bits 2 kStep (low) and 2 kStep + 1 (high) of a chunk.
template <size_t kStep>
HWY_INLINE void add_fifth_bits(const uint8_t* chunk, VU8* low, VU8* high) {
  const VU8 mask = hn::Set(DU8(), 16);
  for (size_t v = 0; v < kVecs; ++v) {
    const VU8 bits = load_bytes(chunk + v * kBytes);
    low[v] = hn::Or(low[v], hn::And(move_bit<2 * kStep, 4>(bits), mask));
    high[v] = hn::Or(high[v], hn::And(move_bit<2 * kStep + 1, 4>(bits), mask));
  }
}

HWY_INLINE void look_up_levels(VU8* low, VU8* high) {
  const VU8 table = hn::BitCast(DU8(), hn::LoadDup128(DI8(), kQ4Levels));
  for (size_t v = 0; v < kVecs; ++v) {
    low[v] = hn::TableLookupBytes(table, low[v]);
    high[v] = hn::TableLookupBytes(table, high[v]);
  }
}

// What the block begins with: a scale an output, a scale and a minimum, or 8-bit multipliers of the header's two.
struct WithScale {
  static constexpr size_t kParts = 1, kCodes = 32;
  static constexpr bool kHasMin = false;
  static HWY_INLINE void scales(const uint8_t*, const uint8_t* block, VF (*d)[kVecs], VF (*)[kVecs]) { load_f16(block, d[0]); }
};

struct WithMin {
  static constexpr size_t kParts = 1, kCodes = 64;
  static constexpr bool kHasMin = true;
  static HWY_INLINE void scales(const uint8_t*, const uint8_t* block, VF (*d)[kVecs], VF (*m)[kVecs]) {
    load_f16(block, d[0]);
    load_f16(block + 32, m[0]);
  }
};

struct WithMultipliers {
  static constexpr size_t kParts = 1, kCodes = 32;
  static constexpr bool kHasMin = true;
  static HWY_INLINE void scales(const uint8_t* header, const uint8_t* block, VF (*d)[kVecs], VF (*m)[kVecs]) {
    load_f16(header, d[0]);
    load_f16(header + 32, m[0]);
    for (size_t v = 0; v < kVecs; ++v) {  // exact: 11 bits times 6
      d[0][v] = hn::Mul(d[0][v], load_8bit<uint8_t>(block + v * kLanes));
      m[0][v] = hn::Neg(hn::Mul(m[0][v], load_8bit<uint8_t>(block + 16 + v * kLanes)));
    }
  }
};

// 16 bits hold 8 * 2 * 15 * 127 = 30480.
template <IntLayout kOf, class Scales, int kCodeOffset>
struct FourBits : Scales {
  static constexpr IntLayout kLayout = kOf;
  static constexpr size_t kPairSums = 8;
  static constexpr int kOffset = kCodeOffset;
  template <size_t kStep>
  static HWY_INLINE void codes(const uint8_t* block, VU8* low, VU8* high) {
    load_nibbles(block + Scales::kCodes + 64 * kStep, low, high);
  }
};

// 16 bits hold 4 * 2 * 31 * 127 = 31496.
template <IntLayout kOf, class Scales, int kCodeOffset>
struct FiveBits : Scales {
  static constexpr IntLayout kLayout = kOf;
  static constexpr size_t kPairSums = 4;
  static constexpr int kOffset = kCodeOffset;
  template <size_t kStep>
  static HWY_INLINE void codes(const uint8_t* block, VU8* low, VU8* high) {
    load_nibbles(block + Scales::kCodes + 64 * kStep, low, high);
    add_fifth_bits<kStep>(block + Scales::kCodes + 256, low, high);
  }
};

using Q4 = FourBits<IntLayout::kQ4, WithScale, 8>;
using Q4Min = FourBits<IntLayout::kQ4Min, WithMin, 0>;
using Q4K = FourBits<IntLayout::kQ4K, WithMultipliers, 0>;
using Q5 = FiveBits<IntLayout::kQ5, WithScale, 16>;
using Q5Min = FiveBits<IntLayout::kQ5Min, WithMin, 0>;
using Q5K = FiveBits<IntLayout::kQ5K, WithMultipliers, 0>;

struct Q4Table : WithScale {
  static constexpr IntLayout kLayout = IntLayout::kQ4Table;
  static constexpr size_t kPairSums = 0;
  static constexpr int kOffset = 0;
  template <size_t kStep>
  static HWY_INLINE void codes(const uint8_t* block, VU8* low, VU8* high) {
    load_nibbles(block + 32 + 64 * kStep, low, high);
    look_up_levels(low, high);
  }
};

struct Q4TableK {
  static constexpr IntLayout kLayout = IntLayout::kQ4TableK;
  static constexpr size_t kParts = 1, kPairSums = 0;
  static constexpr bool kHasMin = false;
  static constexpr int kOffset = 0;
  static HWY_INLINE void scales(const uint8_t* header, const uint8_t* block, VF (*d)[kVecs], VF (*)[kVecs]) {
    load_f16(header, d[0]);
    for (size_t v = 0; v < kVecs; ++v) d[0][v] = hn::Mul(d[0][v], load_8bit<int8_t>(block + v * kLanes));
  }
  template <size_t kStep>
  static HWY_INLINE void codes(const uint8_t* block, VU8* low, VU8* high) {
    load_nibbles(block + 16 + 64 * kStep, low, high);
    look_up_levels(low, high);
  }
};

struct Q8 : WithScale {
  static constexpr IntLayout kLayout = IntLayout::kQ8;
  static constexpr size_t kPairSums = 0;
  static constexpr int kOffset = 0;
  template <size_t kStep>
  static HWY_INLINE void codes(const uint8_t* block, VU8* low, VU8* high) {
    for (size_t v = 0; v < kVecs; ++v) {
      low[v] = load_bytes(block + 32 + 128 * kStep + v * kBytes);
      high[v] = load_bytes(block + 32 + 128 * kStep + 64 + v * kBytes);
    }
  }
};

// A scale per 16 columns.
struct WithHalves {
  static constexpr size_t kParts = 2;
  static constexpr bool kHasMin = false;
  static HWY_INLINE void scales(const uint8_t* header, const uint8_t* block, VF (*d)[kVecs], VF (*)[kVecs]) {
    VF shared[kVecs];
    load_f16(header, shared);
    for (size_t v = 0; v < kVecs; ++v) {
      d[0][v] = hn::Mul(shared[v], load_8bit<int8_t>(block + v * kLanes));
      d[1][v] = hn::Mul(shared[v], load_8bit<int8_t>(block + 16 + v * kLanes));
    }
  }
};

// Two bits of a step's columns, from bits 4 * (kStep % 2).. of its half's chunk to bits kTo..; other bits are the neighbours'.
template <size_t kStep, int kTo>
HWY_INLINE void load_two_bits(const uint8_t* chunks, size_t v, VU8& low, VU8& high) {
  constexpr int kBit = kStep % 2 * 4;
  const VU8 bits = load_bytes(chunks + kStep / 2 * 64 + v * kBytes);
  low = move_bit<kBit, kTo>(bits);
  high = move_bit<kBit + 2, kTo>(bits);
}

struct Q6K : WithHalves {
  static constexpr IntLayout kLayout = IntLayout::kQ6K;
  static constexpr size_t kPairSums = 2;  // 2 * 2 * 63 * 127 = 32004
  static constexpr int kOffset = 32;
  template <size_t kStep>
  static HWY_INLINE void codes(const uint8_t* block, VU8* low, VU8* high) {
    const VU8 mask = hn::Set(DU8(), 0x30);
    load_nibbles(block + 32 + 64 * kStep, low, high);
    for (size_t v = 0; v < kVecs; ++v) {
      VU8 low_bits, high_bits;
      load_two_bits<kStep, 4>(block + 32 + 256, v, low_bits, high_bits);
      low[v] = hn::Or(low[v], hn::And(low_bits, mask));
      high[v] = hn::Or(high[v], hn::And(high_bits, mask));
    }
  }
};

struct Q3K : WithHalves {
  static constexpr IntLayout kLayout = IntLayout::kQ3K;
  static constexpr size_t kPairSums = 4;
  static constexpr int kOffset = 4;
  template <size_t kStep>
  static HWY_INLINE void codes(const uint8_t* block, VU8* low, VU8* high) {
    const VU8 two = hn::Set(DU8(), 3), third = hn::Set(DU8(), 4);
    for (size_t v = 0; v < kVecs; ++v) {
      VU8 low_bits, high_bits;
      load_two_bits<kStep, 0>(block + 32, v, low_bits, high_bits);
      const VU8 bits = load_bytes(block + 32 + 128 + v * kBytes);
      low[v] = hn::Or(hn::And(low_bits, two), hn::And(move_bit<2 * kStep, 2>(bits), third));
      high[v] = hn::Or(hn::And(high_bits, two), hn::And(move_bit<2 * kStep + 1, 2>(bits), third));
    }
  }
};

// A scale and a minimum per 16 columns.
struct Q2K {
  static constexpr IntLayout kLayout = IntLayout::kQ2K;
  static constexpr size_t kParts = 2, kPairSums = 4;
  static constexpr bool kHasMin = true;
  static constexpr int kOffset = 0;
  static HWY_INLINE void scales(const uint8_t* header, const uint8_t* block, VF (*d)[kVecs], VF (*m)[kVecs]) {
    VF shared_d[kVecs], shared_m[kVecs];
    load_f16(header, shared_d);
    load_f16(header + 32, shared_m);
    for (size_t p = 0; p < 2; ++p) {
      for (size_t v = 0; v < kVecs; ++v) {
        const VI32 both = load_8bit_codes<uint8_t>(block + 16 * p + v * kLanes);
        d[p][v] = hn::Mul(shared_d[v], hn::ConvertTo(DF(), hn::And(both, hn::Set(DI32(), 15))));
        m[p][v] = hn::Neg(hn::Mul(shared_m[v], hn::ConvertTo(DF(), hn::ShiftRight<4>(both))));
      }
    }
  }
  template <size_t kStep>
  static HWY_INLINE void codes(const uint8_t* block, VU8* low, VU8* high) {
    const VU8 mask = hn::Set(DU8(), 3);
    for (size_t v = 0; v < kVecs; ++v) {
      load_two_bits<kStep, 0>(block + 32, v, low[v], high[v]);
      low[v] = hn::And(low[v], mask);
      high[v] = hn::And(high[v], mask);
    }
  }
};

// ---- Sums of a block ----

// The 32-bit sums begin at a part's first step.
template <class F, size_t kStep>
inline constexpr bool kBegins = kStep % (4 / F::kParts) == 0;

template <class F, size_t kStep, size_t R>
HWY_INLINE void step_quads(const uint8_t* block, const Codes<R>& x, VI32 (*sums)[kVecs]) {
  VU8 low[kVecs], high[kVecs];
  F::template codes<kStep>(block, low, high);
  const VU8 flip = hn::Set(DU8(), F::kPairSums == 0 ? 128 : 0);
  for (size_t r = 0; r < R; ++r) {
    const VI8 x_low = x.four(r, 8 * kStep), x_high = x.four(r, 8 * kStep + 4);
    for (size_t v = 0; v < kVecs; ++v) {
      const VI32 before = kBegins<F, kStep> ? hn::Zero(DI32()) : sums[r][v];
      sums[r][v] = add_quads(add_quads(before, hn::Xor(low[v], flip), x_low), hn::Xor(high[v], flip), x_high);
    }
  }
}

template <class F, size_t kStep, size_t R>
HWY_INLINE void step_signed(const uint8_t* block, const Codes<R>& x, VI32 (*sums)[kVecs]) {
  VU8 bytes[2][kVecs];
  F::template codes<kStep>(block, bytes[0], bytes[1]);
  for (size_t half = 0; half < 2; ++half) {
    SignedWeights w[kVecs];
    for (size_t v = 0; v < kVecs; ++v) w[v] = prepare(hn::BitCast(DI8(), bytes[half][v]));
    for (size_t r = 0; r < R; ++r) {
      const VI8 four = x.four(r, 8 * kStep + 4 * half);
      for (size_t v = 0; v < kVecs; ++v) {
        const VI32 p = add_pairs(mul_pairs(w[v], four));
        sums[r][v] = kBegins<F, kStep> && half == 0 ? p : hn::Add(sums[r][v], p);
      }
      keep_in_order(sums[r]);
    }
  }
}

// sums16 go to sums when they are full or the block ends.
template <class F, size_t kStep, size_t R>
HWY_INLINE void step_unsigned(const uint8_t* block, const Codes<R>& x, VI16 (*sums16)[kVecs], VI32 (*sums)[kVecs]) {
  constexpr bool kFirst = 2 * kStep % F::kPairSums == 0, kLast = 2 * (kStep + 1) % F::kPairSums == 0;
  VU8 low[kVecs], high[kVecs];
  F::template codes<kStep>(block, low, high);
  for (size_t r = 0; r < R; ++r) {
    const VI8 x_low = x.four(r, 8 * kStep), x_high = x.four(r, 8 * kStep + 4);
    for (size_t v = 0; v < kVecs; ++v) {
      const VI16 p = mul_pairs(low[v], x_low);
      sums16[r][v] = hn::Add(kFirst ? p : hn::Add(sums16[r][v], p), mul_pairs(high[v], x_high));
    }
    keep_in_order(sums16[r]);
  }
  if constexpr (kLast) {
    for (size_t r = 0; r < R; ++r) {
      for (size_t v = 0; v < kVecs; ++v) {
        const VI32 p = add_pairs(sums16[r][v]);
        sums[r][v] = kBegins<F, kStep + 1 - F::kPairSums / 2> ? p : hn::Add(sums[r][v], p);
      }
    }
  }
}

template <class F, size_t R>
HWY_INLINE void dot_block(const uint8_t* block, const Codes<R>& x, VI32 (*sums)[R][kVecs]) {
  VI32(*second)[kVecs] = sums[F::kParts - 1];
  if constexpr (kQuads) {
    step_quads<F, 0>(block, x, sums[0]);
    step_quads<F, 1>(block, x, sums[0]);
    step_quads<F, 2>(block, x, second);
    step_quads<F, 3>(block, x, second);
  } else if constexpr (F::kPairSums == 0) {
    step_signed<F, 0>(block, x, sums[0]);
    step_signed<F, 1>(block, x, sums[0]);
    step_signed<F, 2>(block, x, second);
    step_signed<F, 3>(block, x, second);
  } else {
    VI16 sums16[R][kVecs];
    step_unsigned<F, 0>(block, x, sums16, sums[0]);
    step_unsigned<F, 1>(block, x, sums16, sums[0]);
    step_unsigned<F, 2>(block, x, sums16, second);
    step_unsigned<F, 3>(block, x, sums16, second);
  }
}

// ---- The kernel ----

// A block's work fills the reorder window, so that without a hint the next lines are asked for too late. May point past the
// end.
inline constexpr size_t kPrefetchBytes = 2048;

// What block b adds to R rows' outputs, in the order of operations of int_product.h.
template <class F, size_t R>
HWY_INLINE void add_block(const uint8_t* header, const uint8_t* block, const Int8Rows& x, size_t row, size_t b,
                          VF (*acc)[kVecs]) {
  constexpr int kOffset = kQuads && F::kPairSums == 0 ? 128 : F::kOffset;
  const DF df;
  const size_t n_blocks = x.n_cols / kBlockCols;
  VI32 sums[F::kParts][R][kVecs];
  dot_block<F>(block, Codes<R>{x.codes + row * x.n_cols + b * kBlockCols, x.n_cols}, sums);
  VF d[F::kParts][kVecs], m[F::kParts][kVecs];
  F::scales(header, block, d, m);
  for (size_t r = 0; r < R; ++r) {
    const size_t index = (row + r) * n_blocks + b;
    const float scale = x.scales[index];
    const VF dx = hn::Set(df, scale);
    const int half_sums[2] = {x.sums[2 * index], x.sums[2 * index + 1]};
    for (size_t v = 0; v < kVecs; ++v) {
      VF term[F::kParts];
      for (size_t p = 0; p < F::kParts; ++p) {
        VI32 sum = sums[p][r][v];
        if constexpr (kOffset != 0) {
          const int code_sum = F::kParts == 2 ? half_sums[p] : half_sums[0] + half_sums[1];
          sum = hn::Sub(sum, hn::Set(DI32(), kOffset * code_sum));
        }
        term[p] = hn::Mul(hn::ConvertTo(df, sum), hn::Mul(d[p][v], dx));
      }
      if constexpr (F::kParts == 2) term[0] = hn::Add(term[0], term[1]);
      if constexpr (F::kHasMin) {
        VF min =
            hn::Mul(m[0][v], hn::Set(df, F::kParts == 2 ? scale * static_cast<float>(half_sums[0]) : x.scaled_sums[index]));
        if constexpr (F::kParts == 2)
          min = hn::Add(min, hn::Mul(m[1][v], hn::Set(df, scale * static_cast<float>(half_sums[1]))));
        term[0] = hn::Add(term[0], min);
      }
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
    dst += r * out_stride;
    switch (x.n_rows - r) {
      case 3:
        tile_rows<F, 3>(tile, x, r, outputs, dst, out_stride);
        break;
      case 2:
        tile_rows<F, 2>(tile, x, r, outputs, dst, out_stride);
        break;
      case 1:
        tile_rows<F, 1>(tile, x, r, outputs, dst, out_stride);
        break;
      default:
        break;
    }
  }
}

void int_product(const IntMatrix& w, const Int8Rows& x, size_t tile_begin, size_t tile_end, float* out, size_t out_stride) {
  switch (w.layout) {
    case IntLayout::kQ4:
      return product<Q4>(w, x, tile_begin, tile_end, out, out_stride);
    case IntLayout::kQ4Min:
      return product<Q4Min>(w, x, tile_begin, tile_end, out, out_stride);
    case IntLayout::kQ4Table:
      return product<Q4Table>(w, x, tile_begin, tile_end, out, out_stride);
    case IntLayout::kQ4TableK:
      return product<Q4TableK>(w, x, tile_begin, tile_end, out, out_stride);
    case IntLayout::kQ5:
      return product<Q5>(w, x, tile_begin, tile_end, out, out_stride);
    case IntLayout::kQ5Min:
      return product<Q5Min>(w, x, tile_begin, tile_end, out, out_stride);
    case IntLayout::kQ5K:
      return product<Q5K>(w, x, tile_begin, tile_end, out, out_stride);
    case IntLayout::kQ4K:
      return product<Q4K>(w, x, tile_begin, tile_end, out, out_stride);
    case IntLayout::kQ2K:
      return product<Q2K>(w, x, tile_begin, tile_end, out, out_stride);
    case IntLayout::kQ3K:
      return product<Q3K>(w, x, tile_begin, tile_end, out, out_stride);
    case IntLayout::kQ6K:
      return product<Q6K>(w, x, tile_begin, tile_end, out, out_stride);
    case IntLayout::kQ8:
      return product<Q8>(w, x, tile_begin, tile_end, out, out_stride);
  }
}

}  // namespace KPD_VARIANT
}  // namespace HWY_NAMESPACE
}  // namespace kpd::kernels
KPD_AFTER_VARIANT();
