// kernels: uniform quantization and back, and dither with Highway (uniform.h).
#include <algorithm>

#include "base/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/uniform.cc"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "kernels/uniform.h"

HWY_BEFORE_NAMESPACE();
namespace kpd::kernels {
namespace HWY_NAMESPACE {

#if !KPD_TARGET_IS_SCALAR

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::CappedTag<float, 16>;
using DI = hn::RebindToSigned<D>;
using D16 = hn::Rebind<int16_t, D>;
using DU16 = hn::Rebind<uint16_t, D>;
using D8 = hn::Rebind<uint8_t, D>;
using V = hn::Vec<D>;
inline constexpr size_t kLanes = hn::MaxLanes(D());

// Clamped before the conversion: beyond the 32-bit range it is not the same on every machine.
HWY_INLINE void store_index(V v, int16_t* dst) {
  const D d;
  const V clamped = hn::Min(hn::Max(v, hn::Set(d, -32768.0f)), hn::Set(d, 32767.0f));
  hn::StoreU(hn::DemoteTo(D16(), hn::ConvertTo(DI(), clamped)), D16(), dst);
}

void quantize_uniform(const float* y, size_t n, float inverse, int16_t* index) {
  const D d;
  const V factor = hn::Set(d, inverse), half = hn::Set(d, 0.5f);
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const V v = hn::Mul(hn::LoadU(d, y + i), factor);
    store_index(hn::CopySign(hn::Add(hn::Abs(v), half), v), index + i);
  }
  scalar::quantize_uniform(y + i, n - i, inverse, index + i);
}

void quantize_dithered(const float* y, const float* offset, size_t n, float inverse, int16_t* index) {
  const D d;
  const V factor = hn::Set(d, inverse);
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const V scaled = hn::Mul(hn::LoadU(d, y + i), factor);
    store_index(hn::Floor(hn::Add(scaled, hn::LoadU(d, offset + i))), index + i);
  }
  scalar::quantize_dithered(y + i, offset + i, n - i, inverse, index + i);
}

void uniform_symbols(const int16_t* index, size_t n, int32_t bias, uint8_t escape, uint8_t* symbols) {
  const hn::CappedTag<uint16_t, 32> d;
  const hn::Rebind<uint8_t, decltype(d)> bytes;
  const hn::RebindToSigned<decltype(d)> ds;
  const auto offset = hn::Set(ds, static_cast<int16_t>(bias));
  const auto most = hn::Set(d, escape);
  size_t i = 0;
  for (; i + hn::Lanes(d) <= n; i += hn::Lanes(d)) {
    // Modulo 2^16 a negative sum is a large one.
    const auto symbol = hn::Min(hn::BitCast(d, hn::Add(hn::LoadU(ds, index + i), offset)), most);
    hn::StoreU(hn::DemoteTo(bytes, hn::BitCast(ds, symbol)), bytes, symbols + i);
  }
  scalar::uniform_symbols(index + i, n - i, bias, escape, symbols + i);
}

void uniform_values(const uint8_t* symbols, size_t n, int32_t bias, float step, float* y) {
  const D d;
  const V factor = hn::Set(d, step);
  const auto zero = hn::Set(DI(), bias);
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const auto symbol = hn::PromoteTo(DI(), hn::LoadU(D8(), symbols + i));
    hn::StoreU(hn::Mul(hn::ConvertTo(d, hn::Sub(symbol, zero)), factor), d, y + i);
  }
  scalar::uniform_values(symbols + i, n - i, bias, step, y + i);
}

void symbol_values(const uint8_t* symbols, size_t n, const float* table, size_t n_entries, float* y) {
  size_t i = 0;
#if HWY_TARGET == HWY_AVX3
  // Four registers hold the table. With fewer lanes more of them would be needed than loads save.
  if (n_entries <= 4 * kLanes) {
    float padded[4 * kLanes] = {};
    std::copy_n(table, n_entries, padded);
    const D d;
    const V a = hn::LoadU(d, padded), b = hn::LoadU(d, padded + kLanes), c = hn::LoadU(d, padded + 2 * kLanes),
            e = hn::LoadU(d, padded + 3 * kLanes);
    const auto upper = hn::Set(DI(), static_cast<int32_t>(2 * kLanes));
    for (; i + kLanes <= n; i += kLanes) {
      const auto at = hn::PromoteTo(DI(), hn::LoadU(D8(), symbols + i));
      const V low{_mm512_permutex2var_ps(a.raw, at.raw, b.raw)}, high{_mm512_permutex2var_ps(c.raw, at.raw, e.raw)};
      hn::StoreU(hn::IfThenElse(hn::RebindMask(d, hn::TestBit(at, upper)), high, low), d, y + i);
    }
  }
#endif
  scalar::symbol_values(symbols + i, n - i, table, n_entries, y + i);
}

void dither_offsets(const uint32_t* words, size_t n, float base, float unit, float* offset) {
  const D d;
  const V first = hn::Set(d, base), factor = hn::Set(d, unit);
  const auto* const bytes = reinterpret_cast<const uint8_t*>(words);  // vector targets are little-endian: half i is at byte 2 i
  const hn::Repartition<uint8_t, DU16> db;
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const V half = hn::ConvertTo(d, hn::PromoteTo(DI(), hn::BitCast(DU16(), hn::LoadU(db, bytes + 2 * i))));
    hn::StoreU(hn::Add(first, hn::Mul(half, factor)), d, offset + i);
  }
  scalar::dither_offsets(words + i / 2, n - i, base, unit, offset + i);  // i is even
}

void subtract_dither(const float* offset, size_t n, float step, float* y) {
  const D d;
  const V half = hn::Set(d, 0.5f), factor = hn::Set(d, step);
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const V dither = hn::Mul(hn::Sub(hn::LoadU(d, offset + i), half), factor);
    hn::StoreU(hn::Sub(hn::LoadU(d, y + i), dither), d, y + i);
  }
  scalar::subtract_dither(offset + i, n - i, step, y + i);
}
#endif  // !KPD_TARGET_IS_SCALAR
}  // namespace HWY_NAMESPACE
}  // namespace kpd::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kpd::kernels {
KPD_DISPATCH(quantize_uniform);
KPD_DISPATCH(quantize_dithered);
KPD_DISPATCH(uniform_symbols);
KPD_DISPATCH(uniform_values);
KPD_DISPATCH(symbol_values);
KPD_DISPATCH(dither_offsets);
KPD_DISPATCH(subtract_dither);
}  // namespace kpd::kernels
#endif
