// transform: the signs of a rotation that is kept (of weights, of a cache) from a seed. A stream of gradients draws its own
// from its keys.
#pragma once

#include <cstdint>
#include <span>

#include "kpd/transform/rotation.h"

namespace kpd::transform {

// Names the signs of one rotation: rotations that differ in any of the three have independent signs. What the two numbers count
// is the caller's to say (a layer and a matrix of it; a layer and a head), and is part of what he stores.
struct SignName {
  uint64_t seed = 0;
  uint32_t group = 0;
  uint32_t member = 0;
};

// Fills rotation.n_sign_words() words, else Error(kInvalidArgument); those of a set that no element has are 0. Word i of set
// (round, which) is word i % 4 of Philox4x32-10 with counter {i / 4, kSignWords + 2 round + which, group, member} and the seed
// as key {lo, hi}: fixed, since files that hold rotated numbers name nothing but the seed. Thread-safe.
inline constexpr uint32_t kSignWords = 0x5369676e;
void fill_signs(const Rotation& rotation, const SignName& name, std::span<uint32_t> signs);

}  // namespace kpd::transform
