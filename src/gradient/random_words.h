// gradient: the random words of a block: signs, ties, windows, stochastic rounding, dither (docs/format/gradient.md). Private.
#pragma once

#include <cstdint>
#include <span>

namespace kpd::gradient {

// Names the random bits of one block: Philox key, block index within the tensor.
struct BlockKey {
  uint64_t key = 0;
  uint64_t block = 0;
};

// What a random word is for; part of the Philox counter, so part of the stream format. kSigns + round for the first transform
// of a round, kSecondSigns + round for the second of two overlapping ones.
enum class Purpose : uint32_t {
  kSigns = 0,
  kSecondSigns = 8,
  kTies = 16,
  kWindow = 17,
  kStochastic = 18,
  kDither = 19,
  kPackets = 20
};

// Philox block `index` of (key, purpose + round): counter = {index, purpose + round, block lo, block hi}, key = key lo, hi.
void random_words(const BlockKey& key, Purpose purpose, uint32_t round, uint32_t first_index, std::span<uint32_t> words);
// Start of a cyclic window over n values, for methods that send some of them: the first word of Purpose::kWindow, times n,
// divided by 2^32.
uint32_t window_start(const BlockKey& key, uint32_t n);

}  // namespace kpd::gradient
