// kernels: Philox4x32-10 with Highway (philox.h).
//
// One block a 64-bit lane: each of its four words stands in the low half of a lane of its own vector, so that a round is two
// widening multiplications, two shifts and four exclusive ors for all lanes. The high halves hold what is left of products; no
// operation reads them.
#include "base/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/philox.cc"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include <algorithm>

#include "kernels/philox.h"

HWY_BEFORE_NAMESPACE();
namespace kpd::kernels {
namespace HWY_NAMESPACE {

#if !KPD_TARGET_IS_SCALAR

namespace hn = hwy::HWY_NAMESPACE;
using D32 = hn::CappedTag<uint32_t, 16>;
using D64 = hn::RepartitionToWide<D32>;
using V32 = hn::Vec<D32>;
using V64 = hn::Vec<D64>;
inline constexpr size_t kBlocks = hn::MaxLanes(D64());  // of a vector
inline constexpr size_t kInFlight = 2;                  // vectors, to hide the multiplication's latency

template <size_t kVectors>
HWY_INLINE void blocks(uint64_t key, uint32_t index, uint32_t what, uint64_t block, uint32_t* out) {
  const D32 d;
  const D64 dw;
  const V32 mul0 = hn::Set(d, kPhiloxMul0), mul1 = hn::Set(d, kPhiloxMul1);
  // Even lanes hold the first half of a vector's blocks, odd lanes the second: interleaving puts them in order at the end.
  alignas(64) uint32_t lanes[2 * kBlocks] = {};
  for (size_t j = 0; j < kBlocks; ++j) lanes[2 * j] = static_cast<uint32_t>(j % 2 * (kBlocks / 2) + j / 2);
  const V32 numbers = hn::Load(d, lanes);
  V32 c0[kVectors], c1[kVectors], c2[kVectors], c3[kVectors];
  for (size_t v = 0; v < kVectors; ++v) {
    c0[v] = hn::Add(numbers, hn::Set(d, index + static_cast<uint32_t>(v * kBlocks)));
    c1[v] = hn::Set(d, what);
    c2[v] = hn::Set(d, static_cast<uint32_t>(block));
    c3[v] = hn::Set(d, static_cast<uint32_t>(block >> 32));
  }
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < kPhiloxRounds; ++round) {
    HWY_UNROLL(2)
    for (size_t v = 0; v < kVectors; ++v) {
      const V64 p0 = hn::MulEven(c0[v], mul0), p1 = hn::MulEven(c2[v], mul1);
      c0[v] = hn::Xor(hn::BitCast(d, hn::ShiftRight<32>(p1)), hn::Xor(c1[v], hn::Set(d, k0)));
      c1[v] = hn::BitCast(d, p1);
      c2[v] = hn::Xor(hn::BitCast(d, hn::ShiftRight<32>(p0)), hn::Xor(c3[v], hn::Set(d, k1)));
      c3[v] = hn::BitCast(d, p0);
    }
    k0 += kPhiloxWeyl0;
    k1 += kPhiloxWeyl1;
  }
  for (size_t v = 0; v < kVectors; ++v) {
    const V64 low = hn::BitCast(dw, hn::OddEven(hn::DupEven(c1[v]), c0[v]));
    const V64 high = hn::BitCast(dw, hn::OddEven(hn::DupEven(c3[v]), c2[v]));
    uint32_t* const to = out + 4 * kBlocks * v;
    hn::StoreU(hn::BitCast(d, hn::InterleaveLower(dw, low, high)), d, to);
    hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(dw, low, high)), d, to + 2 * kBlocks);
  }
}

void philox_fill(uint64_t key, uint32_t first_index, uint32_t what, uint64_t block, uint32_t* words, size_t n) {
  constexpr size_t kWords = 4 * kBlocks;
  const auto index_of = [&](size_t i) { return first_index + static_cast<uint32_t>(i / 4); };
  size_t i = 0;
  for (; i + kInFlight * kWords <= n; i += kInFlight * kWords) blocks<kInFlight>(key, index_of(i), what, block, words + i);
  for (; i + kWords <= n; i += kWords) blocks<1>(key, index_of(i), what, block, words + i);
  if (n - i <= 4) return scalar::philox_fill(key, index_of(i), what, block, words + i, n - i);
  uint32_t last[kWords];
  blocks<1>(key, index_of(i), what, block, last);
  std::copy(last, last + (n - i), words + i);
}
#endif  // !KPD_TARGET_IS_SCALAR
}  // namespace HWY_NAMESPACE
}  // namespace kpd::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kpd::kernels {
KPD_DISPATCH(philox_fill);
}  // namespace kpd::kernels
#endif
