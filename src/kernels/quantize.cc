// kernels: quantization to bit planes with Highway (quantize.h): 1 to 4 bits by comparisons in vectors, four with their tables
// in registers; 5 to 8 bits by vectors of buckets, a lookup and a short search an element, and planes packed by byte masks.
#include "base/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/quantize.cc"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include <cmath>
#include <cstring>

#include "kernels/quantize.h"

HWY_BEFORE_NAMESPACE();
namespace kpd::kernels {
namespace HWY_NAMESPACE {

#if !KPD_TARGET_IS_SCALAR

namespace hn = hwy::HWY_NAMESPACE;

using D = hn::CappedTag<float, 16>;
using DU = hn::RebindToUnsigned<D>;
using DI = hn::RebindToSigned<D>;
using DD = hn::CappedTag<double, 8>;
using DH = hn::Rebind<float, DD>;
using V = hn::Vec<D>;
using VU = hn::Vec<DU>;
using VI = hn::Vec<DI>;
using VD = hn::Vec<DD>;
using M = hn::Mask<D>;
inline constexpr size_t kLanes = hn::MaxLanes(D());
inline constexpr size_t kDoubles = hn::MaxLanes(DD());
inline constexpr size_t kVecs = 16 / kLanes;    // vectors in a group of 16 elements, the step of every loop
inline constexpr size_t kSums = 16 / kDoubles;  // double vectors in the 16 lanes of a sum
inline constexpr size_t kMaxLevels = size_t{1} << (kMaxPlaneBits - 1);

// Two bytes of a plane from the masks of 16 elements.
HWY_INLINE void store_bits(const M* masks, uint8_t* dst) {
  const D d;
  if constexpr (kLanes >= 8) {
    for (size_t v = 0; v < kVecs; ++v) hn::StoreMaskBits(d, masks[v], dst + v * kLanes / 8);
  } else {
    uint8_t nibble[8];
    for (size_t v = 0; v < kVecs; ++v) hn::StoreMaskBits(d, masks[v], nibble + v);
    dst[0] = static_cast<uint8_t>(nibble[0] | nibble[1] << 4);
    dst[1] = static_cast<uint8_t>(nibble[2] | nibble[3] << 4);
  }
}

HWY_INLINE void load_bits(const uint8_t* src, M* masks) {
  const D d;
  if constexpr (kLanes >= 8) {
    for (size_t v = 0; v < kVecs; ++v) masks[v] = hn::LoadMaskBits(d, src + v * kLanes / 8);
  } else {
    for (size_t v = 0; v < kVecs; ++v) {
      const uint8_t nibble[8] = {static_cast<uint8_t>(src[v / 2] >> (v % 2 * 4) & 15)};
      masks[v] = hn::LoadMaskBits(d, nibble);
    }
  }
}

HWY_INLINE M sign_bit(V v) {
  const DI di;
  return hn::MaskFromVec(hn::BitCast(D(), hn::BroadcastSignBit(hn::BitCast(di, v))));
}

// sums += |y| * level over one group of 16: exact products, element i to lane i % 16.
template <class LoadLevel>
HWY_INLINE void add_products(const float* y, const LoadLevel& load_level, VD* sums) {
  const DD dd;
  const DH dh;
  for (size_t s = 0; s < kSums; ++s) {
    const VD a = hn::Abs(hn::PromoteTo(dd, hn::LoadU(dh, y + s * kDoubles)));
    sums[s] = hn::MulAdd(a, load_level(s), sums[s]);
  }
}

struct OneLevel {
  VD level;
  HWY_INLINE VD operator()(size_t) const { return level; }
};

struct LevelBuffer {
  const float* level16;
  HWY_INLINE VD operator()(size_t s) const { return hn::PromoteTo(DD(), hn::Load(DH(), level16 + s * kDoubles)); }
};

// counts[m] = how many of the first n_bytes * 8 codes have magnitude m, from the magnitude planes.
template <int kBits>
HWY_INLINE void count_levels(const uint8_t* planes, size_t stride, size_t n_bytes, uint32_t* counts) {
  constexpr size_t kLevels = size_t{1} << (kBits - 1);
  for (size_t i = 0; i < n_bytes; i += 8) {
    const size_t bytes = n_bytes - i < 8 ? n_bytes - i : 8;
    uint64_t sets[kLevels] = {bytes == 8 ? ~uint64_t{0} : (uint64_t{1} << (8 * bytes)) - 1};
    for (int p = 1; p < kBits; ++p) {
      uint64_t plane = 0;
      std::memcpy(&plane, planes + static_cast<size_t>(p) * stride + i, bytes);
      for (size_t m = size_t{1} << (p - 1); m-- > 0;) {
        sets[2 * m + 1] = sets[m] & plane;
        sets[2 * m] = sets[m] & ~plane;
      }
    }
    for (size_t m = 0; m < kLevels; ++m) counts[m] += static_cast<uint32_t>(__builtin_popcountll(sets[m]));
  }
}

// Elements [full, n) by the reference rules, then all sums; counts[m] is how many of the first `full` have magnitude m.
HWY_NOINLINE QuantizeSums finish(int bits, const float* y, size_t n, size_t full, const QuantizeTable& t, uint8_t* planes,
                                 const VD* sums, V least, uint32_t* counts) {
  const size_t n_levels = size_t{1} << (bits - 1);
  const D d;
  const size_t stride = plane_bytes(n);
  double lanes[16];
  for (size_t s = 0; s < kSums; ++s) hn::StoreU(sums[s], DD(), lanes + s * kDoubles);
  QuantizeSums result;
  result.has_zero = hn::GetLane(hn::MinOfLanes(d, least)) == 0.0f;
  for (int p = 0; p < bits; ++p) {
    for (size_t b = full / 8; b < stride; ++b) planes[static_cast<size_t>(p) * stride + b] = 0;
  }
  for (size_t i = full; i < n; ++i) {
    uint32_t raw;
    std::memcpy(&raw, y + i, 4);
    const float a = y[i] < 0 ? -y[i] : y[i];
    uint32_t m = 0;
    while (m + 1 < n_levels && a >= t.thresholds[m]) ++m;
    ++counts[m];
    result.has_zero |= a == 0.0f;
    lanes[i % 16] += static_cast<double>(a) * static_cast<double>(t.levels[m]);
    const uint32_t code = (raw >> 31) << (bits - 1) | m;
    for (int p = 0; p < bits; ++p) {
      const uint32_t bit = (code >> (bits - 1 - p)) & 1;
      planes[static_cast<size_t>(p) * stride + i / 8] |= static_cast<uint8_t>(bit << (i % 8));
    }
  }
  result.dot = sum_lanes(lanes);
  result.q2 = sum_level_squares(counts, t.levels, n_levels);
  return result;
}

// Levels or thresholds by index: a vector holds the table where it has 8 lanes.
inline constexpr bool kLookUp = kLanes >= 8;

HWY_INLINE V load_table(const float* table, size_t n) {
  HWY_ALIGN float lanes[kLanes] = {};
  for (size_t k = 0; k < n && k < kLanes; ++k) lanes[k] = table[k];
  return hn::Load(D(), lanes);
}
HWY_INLINE V look_up(V table, VI index) { return hn::TableLookupLanes(table, hn::IndicesFromVec(D(), index)); }

struct LookUp {
  V levels, odd_thresholds;  // odd_thresholds[2 k] is the lower edge of level 2 k + 1
};

// index + value where the bit is set; index has not that value's bit.
HWY_INLINE VI set_bit(VI index, M bit, int32_t value) {
  const DI di;
  return hn::Or(index, hn::IfThenElseZero(hn::RebindMask(di, bit), hn::Set(di, value)));
}

// Binary search for a vector of |y|: bit[q] is the magnitude's bit of weight 2^(kBits - 2 - q); returns the levels.
template <int kBits>
HWY_INLINE V search(V abs, const V* thresholds, const V* levels, const LookUp& tables, M* bit) {
  if constexpr (kBits == 1) {
    return levels[0];
  } else if constexpr (kBits == 2) {
    bit[0] = hn::Ge(abs, thresholds[1]);
    return hn::IfThenElse(bit[0], levels[1], levels[0]);
  } else if constexpr (kBits == 3) {
    bit[0] = hn::Ge(abs, thresholds[2]);
    bit[1] = hn::Ge(abs, hn::IfThenElse(bit[0], thresholds[3], thresholds[1]));
    return hn::IfThenElse(bit[0], hn::IfThenElse(bit[1], levels[3], levels[2]), hn::IfThenElse(bit[1], levels[1], levels[0]));
  } else {
    bit[0] = hn::Ge(abs, thresholds[4]);
    bit[1] = hn::Ge(abs, hn::IfThenElse(bit[0], thresholds[6], thresholds[2]));
    if constexpr (kLookUp) {
      const VI even = set_bit(set_bit(hn::Zero(DI()), bit[0], 4), bit[1], 2);
      bit[2] = hn::Ge(abs, look_up(tables.odd_thresholds, even));
      return look_up(tables.levels, set_bit(even, bit[2], 1));
    }
    const V low = hn::IfThenElse(bit[1], thresholds[3], thresholds[1]);
    const V high = hn::IfThenElse(bit[1], thresholds[7], thresholds[5]);
    bit[2] = hn::Ge(abs, hn::IfThenElse(bit[0], high, low));
    const V l0 = hn::IfThenElse(bit[2], levels[1], levels[0]), l1 = hn::IfThenElse(bit[2], levels[3], levels[2]);
    const V l2 = hn::IfThenElse(bit[2], levels[5], levels[4]), l3 = hn::IfThenElse(bit[2], levels[7], levels[6]);
    return hn::IfThenElse(bit[0], hn::IfThenElse(bit[1], l3, l2), hn::IfThenElse(bit[1], l1, l0));
  }
}

template <int kBits>
HWY_NOINLINE QuantizeSums quantize_bits(const float* y, size_t n, const QuantizeTable& t, uint8_t* planes) {
  constexpr size_t kLevels = size_t{1} << (kBits - 1);
  const D d;
  const DU du;
  const DD dd;
  const size_t stride = plane_bytes(n);
  V levels[kLevels], thresholds[kLevels];  // thresholds[m] is the lower edge of level m
  for (size_t k = 0; k < kLevels; ++k) {
    levels[k] = hn::Set(d, t.levels[k]);
    thresholds[k] = hn::Set(d, k > 0 ? t.thresholds[k - 1] : 0.0f);
  }
  const LookUp tables{load_table(t.levels, kLevels), load_table(t.thresholds, kLevels - 1)};
  VD sums[kSums];
  for (size_t s = 0; s < kSums; ++s) sums[s] = hn::Zero(dd);
  V least = hn::Set(d, 1e30f);
  HWY_ALIGN float level16[16];
  const size_t full = n / 16 * 16;
  for (size_t i = 0; i < full; i += 16) {
    M sign[kVecs], bit[kBits][kVecs];
    HWY_UNROLL(4)
    for (size_t v = 0; v < kVecs; ++v) {
      const V x = hn::LoadU(d, y + i + v * kLanes);
      sign[v] = sign_bit(x);
      const V abs = hn::BitCast(d, hn::And(hn::BitCast(du, x), hn::Set(du, 0x7fffffffu)));
      least = hn::Min(least, abs);
      M found[kBits];
      const V level = search<kBits>(abs, thresholds, levels, tables, found);
      for (int q = 0; q + 1 < kBits; ++q) bit[q][v] = found[q];
      if constexpr (kBits > 1) hn::Store(level, d, level16 + v * kLanes);
    }
    store_bits(sign, planes + i / 8);
    for (int q = 0; q + 1 < kBits; ++q) store_bits(bit[q], planes + static_cast<size_t>(q + 1) * stride + i / 8);
    if constexpr (kBits > 1) {
      add_products(y + i, LevelBuffer{level16}, sums);
    } else {
      add_products(y + i, OneLevel{hn::Set(dd, static_cast<double>(t.levels[0]))}, sums);
    }
  }
  uint32_t counts[kLevels] = {};
  count_levels<kBits>(planes, stride, full / 8, counts);
  return finish(kBits, y, n, full, t, planes, sums, least, counts);
}

// 5 to 8 bits. The bucket of |y| gives a magnitude that is at most kMaxSteps too low; the search has no branch.
QuantizeSums quantize_many_bits(const float* y, size_t n, const QuantizeTable& t, uint8_t* planes) {
  const D d;
  const DU du;
  const DI di;
  const DD dd;
  const hn::CappedTag<uint8_t, 16> d8;
  const hn::RebindToSigned<decltype(d8)> di8;
  const size_t stride = plane_bytes(n), n_levels = size_t{1} << (t.bits - 1);
  float edges[kMaxLevels + kMaxSteps];  // edges[m] is the upper edge of level m
  for (size_t m = 0; m + 1 < n_levels; ++m) edges[m] = t.thresholds[m];
  for (size_t m = n_levels - 1; m < n_levels + kMaxSteps; ++m) edges[m] = HUGE_VALF;
  const V scale = hn::Set(d, t.bucket_scale), last = hn::Set(d, static_cast<float>(kBucketCount - 1));
  VD sums[kSums];
  for (size_t s = 0; s < kSums; ++s) sums[s] = hn::Zero(dd);
  V least = hn::Set(d, 1e30f);
  uint32_t counts[4][kMaxLevels] = {};  // four, so that equal neighbours do not wait for each other
  HWY_ALIGN float level16[16], abs16[16];
  HWY_ALIGN int32_t bucket16[16];
  HWY_ALIGN uint8_t code16[16];
  const size_t full = n / 16 * 16;
  for (size_t i = 0; i < full; i += 16) {
    M sign[kVecs];
    for (size_t v = 0; v < kVecs; ++v) {
      const V x = hn::LoadU(d, y + i + v * kLanes);
      sign[v] = sign_bit(x);
      const V abs = hn::BitCast(d, hn::And(hn::BitCast(du, x), hn::Set(du, 0x7fffffffu)));
      least = hn::Min(least, abs);
      hn::Store(abs, d, abs16 + v * kLanes);
      hn::Store(hn::ConvertTo(di, hn::Min(hn::Mul(abs, scale), last)), di, bucket16 + v * kLanes);
    }
    store_bits(sign, planes + i / 8);
    HWY_UNROLL(16)
    for (size_t j = 0; j < 16; ++j) {
      const float a = abs16[j];
      uint32_t m = t.bucket_start[bucket16[j]];
      for (size_t step = 0; step < kMaxSteps; ++step) m += a >= edges[m] ? 1 : 0;
      ++counts[j % 4][m];
      level16[j] = t.levels[m];
      code16[j] = static_cast<uint8_t>(m);
    }
    auto codes = hn::ShiftLeftSame(hn::Load(d8, code16), 9 - t.bits);
    for (int p = 1; p < t.bits; ++p) {
      const auto top = hn::MaskFromVec(hn::BroadcastSignBit(hn::BitCast(di8, codes)));
      hn::StoreMaskBits(di8, top, planes + static_cast<size_t>(p) * stride + i / 8);
      codes = hn::Add(codes, codes);
    }
    add_products(y + i, LevelBuffer{level16}, sums);
  }
  for (size_t k = 1; k < 4; ++k) {
    for (size_t m = 0; m < n_levels; ++m) counts[0][m] += counts[k][m];
  }
  return finish(t.bits, y, n, full, t, planes, sums, least, counts[0]);
}

template <int kBits>
HWY_NOINLINE void dequantize_bits(const uint8_t* planes, size_t n, const float* level_table, float* y) {
  constexpr size_t kLevels = size_t{1} << (kBits - 1);
  const D d;
  const DU du;
  const size_t stride = plane_bytes(n);
  V levels[kLevels];
  for (size_t k = 0; k < kLevels; ++k) levels[k] = hn::Set(d, level_table[k]);
  const V table = load_table(level_table, kLevels);
  const V sign_only = hn::BitCast(d, hn::Set(du, 0x80000000u));
  const size_t full = n / 16 * 16;
  for (size_t i = 0; i < full; i += 16) {
    M sign[kVecs], bit[kBits][kVecs];
    load_bits(planes + i / 8, sign);
    for (size_t j = 0; j + 1 < kBits; ++j) load_bits(planes + (kBits - 1 - j) * stride + i / 8, bit[j]);
    for (size_t v = 0; v < kVecs; ++v) {
      V level[kLevels];
      if constexpr (kLookUp && kBits == 4) {
        level[0] = look_up(table, set_bit(set_bit(set_bit(hn::Zero(DI()), bit[0][v], 1), bit[1][v], 2), bit[2][v], 4));
      } else {
        for (size_t k = 0; k < kLevels; ++k) level[k] = levels[k];
        // Halve the candidates by one magnitude bit at a time, least significant first.
        HWY_UNROLL(3)
        for (size_t j = 0; j + 1 < kBits; ++j) {
          HWY_UNROLL(4)
          for (size_t k = 0; k < kLevels >> (j + 1); ++k) level[k] = hn::IfThenElse(bit[j][v], level[2 * k + 1], level[2 * k]);
        }
      }
      hn::StoreU(hn::Or(level[0], hn::IfThenElseZero(sign[v], sign_only)), d, y + i + v * kLanes);
    }
  }
  for (size_t i = full; i < n; ++i) {
    uint32_t code = 0;
    for (int p = 1; p < kBits; ++p) code = code << 1 | ((planes[static_cast<size_t>(p) * stride + i / 8] >> (i % 8)) & 1);
    y[i] = ((planes[i / 8] >> (i % 8)) & 1) != 0 ? -level_table[code] : level_table[code];
  }
}

QuantizeSums quantize_planes(const float* y, size_t n, const QuantizeTable& t, uint8_t* planes) {
  switch (t.bits) {
    case 1:
      return quantize_bits<1>(y, n, t, planes);
    case 2:
      return quantize_bits<2>(y, n, t, planes);
    case 3:
      return quantize_bits<3>(y, n, t, planes);
    case 4:
      return quantize_bits<4>(y, n, t, planes);
    default:
      return quantize_many_bits(y, n, t, planes);
  }
}

void dequantize_planes(const uint8_t* planes, size_t n, int bits, const float* levels, float* y) {
  switch (bits) {
    case 1:
      return dequantize_bits<1>(planes, n, levels, y);
    case 2:
      return dequantize_bits<2>(planes, n, levels, y);
    case 3:
      return dequantize_bits<3>(planes, n, levels, y);
    case 4:
      return dequantize_bits<4>(planes, n, levels, y);
    default:
      return scalar::dequantize_planes(planes, n, bits, levels, y);
  }
}
#endif  // !KPD_TARGET_IS_SCALAR
}  // namespace HWY_NAMESPACE
}  // namespace kpd::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kpd::kernels {
KPD_DISPATCH(quantize_planes);
KPD_DISPATCH(dequantize_planes);
}  // namespace kpd::kernels
#endif
