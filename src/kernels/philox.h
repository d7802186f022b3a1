// kernels: Philox4x32-10 words in bulk. Private.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kpd::kernels {

// words[i] = word i % 4 of philox(counter {first_index + i / 4, what, block lo, block hi}, key {lo, hi}).
void philox_fill(uint64_t key, uint32_t first_index, uint32_t what, uint64_t block, uint32_t* words, size_t n);

}  // namespace kpd::kernels
