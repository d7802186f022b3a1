// kernels: the operations of sample.h with Highway.
#include "base/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/sample.cc"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <limits>

#include "kernels/sample.h"

HWY_BEFORE_NAMESPACE();
namespace kpd::kernels {
namespace HWY_NAMESPACE {

#if !KPD_TARGET_IS_SCALAR

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::CappedTag<float, kSampleLanes>;
using DI = hn::RebindToSigned<D>;
using DU = hn::RebindToUnsigned<D>;
using V = hn::Vec<D>;
inline constexpr size_t kLanes = hn::MaxLanes(D());
inline constexpr size_t kVecs = kSampleLanes / kLanes;  // that hold one element a lane of the contract
using DD = hn::CappedTag<double, kLanes / 2>;
using VD = hn::Vec<DD>;
using DHalf = hn::Half<D>;

inline constexpr float kNothing = -std::numeric_limits<float>::infinity();

// The row's last elements, fewer than kSampleLanes, filled up with what has no weight.
struct Tail {
  Tail(const float* x, size_t n) {
    for (size_t i = 0; i < kSampleLanes; ++i) lanes[i] = i < n ? x[i] : kNothing;
  }
  HWY_ALIGN float lanes[kSampleLanes];
};

float lane_maxima(const float* x, size_t n, float* maxima) {
  const D d;
  V all = hn::Set(d, kNothing);
  auto nan = hn::IsNaN(all);
  for (size_t first = 0; first < n; first += kSampleBlock, maxima += kSampleLanes) {
    const size_t end = std::min(n, first + kSampleBlock);
    std::array<V, kVecs> most;
    most.fill(hn::Set(d, kNothing));
    const auto take = [&](const float* from) HWY_ATTR {
      for (size_t v = 0; v < kVecs; ++v) {
        const V value = hn::LoadU(d, from + v * kLanes);
        nan = hn::Or(nan, hn::IsNaN(value));
        most[v] = hn::Max(most[v], value);
      }
    };
    size_t i = first;
    for (; i + kSampleLanes <= end; i += kSampleLanes) take(x + i);
    if (i < end) take(Tail(x + i, end - i).lanes);
    for (size_t v = 0; v < kVecs; ++v) {
      hn::StoreU(most[v], d, maxima + v * kLanes);
      all = hn::Max(all, most[v]);
    }
  }
  if (!hn::AllFalse(d, nan)) return std::numeric_limits<float>::quiet_NaN();
  return hn::GetLane(hn::MaxOfLanes(d, all));
}

HWY_INLINE V Weight(V x, V shift, V scale) {
  const D d;
  const DI di;
  const V low = hn::Set(d, kExp2Low), magic = hn::Set(d, kExp2Round);
  const V y = hn::Mul(hn::Sub(x, shift), scale);
  const V shifted = hn::Add(hn::Max(y, low), magic);
  const V f = hn::Sub(hn::Max(y, low), hn::Sub(shifted, magic));
  V p = hn::Set(d, kExp2[5]);
  for (int k = 4; k >= 0; --k) p = hn::Add(hn::Mul(p, f), hn::Set(d, kExp2[k]));
  const auto power = hn::Sub(hn::BitCast(di, shifted), hn::Set(di, static_cast<int32_t>(kExp2RoundBits)));
  const V w = hn::BitCast(d, hn::Add(hn::BitCast(di, p), hn::ShiftLeft<23>(power)));
  return hn::IfThenElseZero(hn::Ge(y, low), w);
}

// Sums of doubles by lane of the contract: 16, each over one element of 16.
struct Sums {
  HWY_INLINE Sums() {
    for (VD& s : parts) s = hn::Zero(DD());
  }
  HWY_INLINE void add(size_t v, V w) {
    parts[2 * v] = hn::Add(parts[2 * v], hn::PromoteTo(DD(), hn::LowerHalf(DHalf(), w)));
    parts[2 * v + 1] = hn::Add(parts[2 * v + 1], hn::PromoteTo(DD(), hn::UpperHalf(DHalf(), w)));
  }
  HWY_INLINE double total() const {
    HWY_ALIGN double lanes[kSampleLanes];
    for (size_t p = 0; p < 2 * kVecs; ++p) hn::Store(parts[p], DD(), lanes + p * (kLanes / 2));
    for (size_t half = kSampleLanes / 2; half > 0; half /= 2) {
      for (size_t l = 0; l < half; ++l) lanes[l] += lanes[l + half];
    }
    return lanes[0];
  }
  VD parts[2 * kVecs];
};

void exp2_sums(const float* x, size_t n, float shift, float scale, double* sums, float* weights) {
  const D d;
  const V s = hn::Set(d, shift), c = hn::Set(d, scale);
  for (size_t first = 0; first < n; first += kSampleBlock) {
    const size_t end = std::min(n, first + kSampleBlock);
    Sums block;
    size_t i = first;
    for (; i + kSampleLanes <= end; i += kSampleLanes) {
      for (size_t v = 0; v < kVecs; ++v) {
        const V w = Weight(hn::LoadU(d, x + i + v * kLanes), s, c);
        block.add(v, w);
        if (weights != nullptr) hn::StoreU(w, d, weights + i + v * kLanes);
      }
    }
    if (i < end) {
      Tail tail(x + i, end - i);
      for (size_t v = 0; v < kVecs; ++v) {
        const V w = Weight(hn::Load(d, tail.lanes + v * kLanes), s, c);
        block.add(v, w);
        hn::Store(w, d, tail.lanes + v * kLanes);
      }
      if (weights != nullptr) std::copy_n(tail.lanes, end - i, weights + i);
    }
    sums[first / kSampleBlock] = block.total();
  }
}

size_t gather_from(const float* x, size_t n, float least, float* values, uint32_t* ids) {
  const D d;
  const DU du;
  const V from = hn::Set(d, least);
  size_t count = 0, i = 0;
  for (; i + kSampleLanes <= n; i += kSampleLanes) {
    for (size_t v = 0; v < kVecs; ++v) {
      const V value = hn::LoadU(d, x + i + v * kLanes);
      const auto good = hn::Ge(value, from);
      if (hn::AllFalse(d, good)) continue;
      // Compressed in a register: some processors are slow at doing it on the way to memory.
      const auto id = hn::Iota(du, static_cast<uint32_t>(i + v * kLanes));
      if (hn::AllTrue(d, good)) {
        hn::StoreU(value, d, values + count);
        hn::StoreU(id, du, ids + count);
        count += kLanes;
        continue;
      }
      hn::StoreU(hn::Compress(value, good), d, values + count);
      hn::StoreU(hn::Compress(id, hn::RebindMask(du, good)), du, ids + count);
      count += hn::CountTrue(d, good);
    }
  }
  for (; i < n; ++i) {
    if (!(x[i] >= least)) continue;
    values[count] = x[i];
    ids[count++] = static_cast<uint32_t>(i);
  }
  return count;
}
#endif  // !KPD_TARGET_IS_SCALAR
}  // namespace HWY_NAMESPACE
}  // namespace kpd::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kpd::kernels {
KPD_DISPATCH(lane_maxima);
KPD_DISPATCH(exp2_sums);
KPD_DISPATCH(gather_from);
}  // namespace kpd::kernels
#endif
