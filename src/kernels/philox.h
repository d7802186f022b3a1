// kernels: Philox4x32-10 words in bulk (Salmon et al., SC'11). Private.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dispatch.h"

namespace kpd::kernels {

inline constexpr uint32_t kPhiloxMul0 = 0xD2511F53u, kPhiloxMul1 = 0xCD9E8D57u;
inline constexpr uint32_t kPhiloxWeyl0 = 0x9E3779B9u, kPhiloxWeyl1 = 0xBB67AE85u;
inline constexpr int kPhiloxRounds = 10;

// words[i] = word i % 4 of philox(counter {first_index + i / 4, what, block lo, block hi}, key {lo, hi}).
KPD_KERNEL(philox_fill, void(uint64_t key, uint32_t first_index, uint32_t what, uint64_t block, uint32_t* words, size_t n));

}  // namespace kpd::kernels
