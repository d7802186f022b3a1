// gradient: the random words of a block (random_words.h).
#include "gradient/random_words.h"

#include "kernels/philox.h"

namespace kpd::gradient {

void random_words(const BlockKey& key, Purpose purpose, uint32_t round, uint32_t first_index, std::span<uint32_t> words) {
  kernels::philox_fill(key.key, first_index, static_cast<uint32_t>(purpose) + round, key.block, words.data(), words.size());
}

uint32_t window_start(const BlockKey& key, uint32_t n) {
  uint32_t words[4];
  random_words(key, Purpose::kWindow, 0, 0, words);
  return static_cast<uint32_t>((uint64_t{words[0]} * n) >> 32);
}

}  // namespace kpd::gradient
