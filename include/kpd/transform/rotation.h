// transform: the randomized Hadamard transform of any length (EDEN, Vargaftik et al., ICML 2022, section 5; lengths that are no
// power of two by two overlapping transforms).
//
// A rotation of n >= 2 floats is `rounds` times: flip signs by random bits, then apply H/sqrt(P) to y[0..P), where P is the
// largest power of two <= n. If n > P, flip signs in y[n-P..n) by other random bits, apply H/sqrt(P) there too, and end the
// round with one butterfly of mirror pairs, (y_i, y_{n-1-i}) -> (y_i + y_{n-1-i}, y_i - y_{n-1-i})/sqrt(2): the two transforms
// share 2P-n values only, so without it energy hardly crosses from one end to the other. It is orthogonal, so the inverse is
// exact up to float rounding. Bytes that follow from it are equal on every instruction set: butterflies go h = 1, 2, 4, ... and
// use only float add, subtract and multiply.
#pragma once

#include <cstdint>
#include <span>

namespace kpd::transform {

inline constexpr int kMaxRounds = 6;

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

// In place, orthonormal. 2 <= y.size() <= 2^17, rounds 1..kMaxRounds, else Error(kInvalidArgument).
void rotate(std::span<float> y, int rounds, const BlockKey& key);
void rotate_inverse(std::span<float> y, int rounds, const BlockKey& key);

}  // namespace kpd::transform
