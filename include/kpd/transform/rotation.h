// transform: the randomized Hadamard transform of rows of any length (EDEN, Vargaftik et al., ICML 2022, section 5; QTIP, Tseng
// et al., NeurIPS 2024, section 2), as a plan that is given its signs.
//
// A rotation of n >= 2 floats is `rounds` times: flip signs, then apply H/sqrt(P), P the length of the transform. For n a power
// of two P = n. Other lengths have a choice:
//
//   kWhole   P is the largest power of two below n. H/sqrt(P) on y[0..P), other signs and H/sqrt(P) on y[n-P..n), and one
//            butterfly of mirror pairs, (y_i, y_{n-1-i}) -> (y_i + y_{n-1-i}, y_i - y_{n-1-i})/sqrt(2): the two transforms
//            share 2P-n values only, so without it energy hardly crosses from one end to the other. Mixes the whole row.
//   kBlocks  the row is cut in powers of two, largest first (80 = 64 + 16, 576 = 512 + 64), each transformed alone. Nothing
//            crosses from one block to another; half the work, and the rows of a batch go through the vectors together.
//
// It is orthogonal, so the inverse is exact up to float rounding. Results are equal bit for bit on every instruction set and
// for any grouping of rows: butterflies go h = 1, 2, 4, ... and use only float add, subtract and multiply.
//
// Where signs come from is the caller's affair: kpd/transform/signs.h draws them from a seed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace kpd::transform {

inline constexpr int kMaxRounds = 6;
inline constexpr size_t kMaxRotation = size_t{1} << 17;

enum class Mixing { kWhole, kBlocks };

// The plan: a small value without memory of its own; making one costs a square root. Immutable, so threads may share it; its
// functions allocate nothing and work inside the rows that they are given.
//
// `signs` holds n_sign_words() words: set s = (round * sets_per_round() + which) begins at s * words_per_set(), and its bit i %
// 32 of word i / 32, if set, negates element i. `which` is 0 for the signs over the row and 1 for those before the second of
// two overlapping transforms. Fewer words are Error(kInvalidArgument).
class Rotation {
 public:
  // 2 <= n <= kMaxRotation, 1 <= rounds <= kMaxRounds, else Error(kInvalidArgument).
  Rotation(size_t n, int rounds, Mixing mixing = Mixing::kWhole);

  size_t size() const { return n_; }
  int rounds() const { return rounds_; }
  Mixing mixing() const { return mixing_; }

  size_t sets_per_round() const { return overlaps() ? 2 : 1; }
  size_t words_per_set() const { return (n_ + 127) / 128 * 4; }
  size_t n_sign_words() const { return static_cast<size_t>(rounds_) * sets_per_round() * words_per_set(); }
  // fill(round, which, words) for every set of signs; the words are those that are read, a multiple of four.
  template <class Fill>
  void for_each_sign_set(std::span<uint32_t> signs, Fill&& fill) const {
    uint32_t* at = signs.data();
    for (int round = 0; round < rounds_; ++round) {
      fill(round, 0, std::span(at, words_per_set()));
      at += words_per_set();
      if (!overlaps()) continue;
      fill(round, 1, std::span(at, (power_ + 127) / 128 * 4));
      at += words_per_set();
    }
  }

  // y[r * stride .. + n) = R of itself or its inverse, orthonormal, for each of n_rows rows; stride >= n. All rows have the
  // same signs. What lies between rows is not touched.
  void forward(float* y, size_t n_rows, size_t stride, std::span<const uint32_t> signs) const;
  void inverse(float* y, size_t n_rows, size_t stride, std::span<const uint32_t> signs) const;

  // One row with the caller's scale in the place of the norm: butterflies over a power of two are then not normalised, and what
  // they multiply the length by, n^(rounds/2), is gain(). For every other length each transform is normalised and gain() is 1.
  double gain() const;
  // y[n] = gain * R (scale * x). x may be y.
  void forward_scaled(const float* x, float scale, std::span<const uint32_t> signs, float* y) const;
  // dst[n] = (or +=) scale * gain * R^-1 y; y is overwritten. dst may be y unless accumulate.
  void inverse_scaled(float* y, std::span<const uint32_t> signs, float scale, float* dst, bool accumulate) const;

 private:
  bool overlaps() const { return power_ != n_ && mixing_ == Mixing::kWhole; }
  bool is_blocks() const { return power_ != n_ && mixing_ == Mixing::kBlocks; }
  const uint32_t* set(std::span<const uint32_t> signs, int round, size_t which = 0) const {
    return signs.data() + (static_cast<size_t>(round) * sets_per_round() + which) * words_per_set();
  }
  void check(std::span<const uint32_t> signs) const;
  void forward_group(float* y, size_t n_rows, size_t stride, std::span<const uint32_t> signs) const;
  void inverse_group(float* y, size_t n_rows, size_t stride, std::span<const uint32_t> signs) const;
  void forward_overlap(const float* x, float scale, std::span<const uint32_t> signs, float* y) const;
  void inverse_overlap(float* y, std::span<const uint32_t> signs, float scale, float* dst, bool accumulate) const;

  size_t n_, power_;  // power_: the largest power of two <= n_
  int rounds_;
  Mixing mixing_;
  float norm_;  // 1/sqrt(power_)
};

}  // namespace kpd::transform
