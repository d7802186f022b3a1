// kernels: the plain reference of philox.h (base/rng.cc has the one-block form with the published vectors).
//
// Four independent blocks in flight keep the 64-bit multiplier busy.
#include <algorithm>

#include "kernels/philox.h"

namespace kpd::kernels::scalar {
namespace {

template <int kBlocks>
inline void blocks(uint64_t key, uint32_t index, uint32_t what, uint64_t block, uint32_t* out) {
  uint32_t c[kBlocks][4];
  for (int b = 0; b < kBlocks; ++b) {
    c[b][0] = index + static_cast<uint32_t>(b);
    c[b][1] = what;
    c[b][2] = static_cast<uint32_t>(block);
    c[b][3] = static_cast<uint32_t>(block >> 32);
  }
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < kPhiloxRounds; ++round) {
    for (int b = 0; b < kBlocks; ++b) {
      const uint64_t p0 = static_cast<uint64_t>(kPhiloxMul0) * c[b][0];
      const uint64_t p1 = static_cast<uint64_t>(kPhiloxMul1) * c[b][2];
      c[b][0] = static_cast<uint32_t>(p1 >> 32) ^ c[b][1] ^ k0;
      c[b][1] = static_cast<uint32_t>(p1);
      c[b][2] = static_cast<uint32_t>(p0 >> 32) ^ c[b][3] ^ k1;
      c[b][3] = static_cast<uint32_t>(p0);
    }
    k0 += kPhiloxWeyl0;
    k1 += kPhiloxWeyl1;
  }
  for (int b = 0; b < kBlocks; ++b) {
    for (int w = 0; w < 4; ++w) out[4 * b + w] = c[b][w];
  }
}

}  // namespace

void philox_fill(uint64_t key, uint32_t first_index, uint32_t what, uint64_t block, uint32_t* words, size_t n) {
  size_t i = 0;
  for (; i + 16 <= n; i += 16) blocks<4>(key, first_index + static_cast<uint32_t>(i / 4), what, block, words + i);
  for (; i < n; i += 4) {
    uint32_t last[4];
    blocks<1>(key, first_index + static_cast<uint32_t>(i / 4), what, block, last);
    std::copy(last, last + std::min<size_t>(4, n - i), words + i);
  }
}

}  // namespace kpd::kernels::scalar
