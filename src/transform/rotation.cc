// transform: randomized Hadamard rotation of any length (see the headers). Signs are Philox bits, bit i of word i/32 for
// element i.
#include "kpd/transform/rotation.h"

#include <bit>
#include <cmath>

#include "kernels/hadamard.h"
#include "kernels/philox.h"
#include "kpd/base/error.h"
#include "transform/rotation.h"

namespace kpd::transform {
namespace {

size_t largest_power(size_t n) { return std::bit_floor(n); }

// Sign words of one round on the stack: 16 KiB for the longest rotation.
struct Signs {
  alignas(64) uint32_t words[kMaxRotation / 32];
  void fill(const BlockKey& key, Purpose purpose, int round, size_t n) {
    random_words(key, purpose, static_cast<uint32_t>(round), 0, std::span(words, (n + 127) / 128 * 4));
  }
};

// One normalised transform over y[0..power), with what is done before it (forward) or signs after it (inverse).
void transform_part(float* y, size_t power, const kernels::HadamardIn& before, const uint32_t* after) {
  const float norm = static_cast<float>(1.0 / std::sqrt(static_cast<double>(power)));
  const kernels::HadamardOut out{y, after, norm, false};
  kernels::fwht(y, power, before, &out);
}

// The first `power` of n signs ride on a transform, the others are applied here: sign words cannot be entered between bits.
bool signs_split(size_t power) { return power % 32 == 0; }

void check(size_t n, int rounds) {
  if (n < 2 || n > kMaxRotation)
    fail(ErrorCode::kInvalidArgument, "rotation of ", n, " elements: expected 2 to ", kMaxRotation);
  if (rounds < 1 || rounds > kMaxRounds)
    fail(ErrorCode::kInvalidArgument, "rotation: ", rounds, " rounds, expected 1 to ", kMaxRounds);
}

}  // namespace

void random_words(const BlockKey& key, Purpose purpose, uint32_t round, uint32_t first_index, std::span<uint32_t> words) {
  kernels::philox_fill(key.key, first_index, static_cast<uint32_t>(purpose) + round, key.block, words.data(), words.size());
}

double rotation_gain(size_t n, int rounds) {
  if (!std::has_single_bit(n)) return 1.0;
  double gain = 1.0;
  for (int r = 0; r < rounds / 2; ++r) gain *= static_cast<double>(n);
  return rounds % 2 != 0 ? gain * std::sqrt(static_cast<double>(n)) : gain;
}

void rotate_from(const float* x, float scale, size_t n, int rounds, const BlockKey& key, float* y) {
  const size_t power = largest_power(n);
  Signs signs;
  for (int r = 0; r < rounds; ++r) {
    signs.fill(key, Purpose::kSigns, r, n);
    const kernels::HadamardIn in{r == 0 ? x : y, signs.words, r == 0 ? scale : 1.0f};
    if (power == n) {
      kernels::fwht(y, n, in);
    } else {
      if (signs_split(power)) {
        kernels::flip_scale({in.src + power, signs.words + power / 32, in.scale}, n - power, y + power);
        transform_part(y, power, in, nullptr);
      } else {
        kernels::flip_scale(in, n, y);
        transform_part(y, power, {y, nullptr, 1.0f}, nullptr);
      }
      // Signs of its own: without them H on H's output would undo much of the mixing where the two overlap.
      signs.fill(key, Purpose::kSecondSigns, r, power);
      transform_part(y + (n - power), power, {y + (n - power), signs.words, 1.0f}, nullptr);
      kernels::mirror_butterfly(y, n);
    }
  }
}

void unrotate_to(float* y, size_t n, int rounds, const BlockKey& key, float scale, float* dst, bool accumulate) {
  const size_t power = largest_power(n);
  Signs signs;
  if (power == n) {
    // H, then the signs of a round ride on the loads of the next transform and, for round 0, on the last stores.
    const uint32_t* in_signs = nullptr;
    for (int r = rounds - 1; r > 0; --r) {
      kernels::fwht(y, n, {y, in_signs, 1.0f});
      signs.fill(key, Purpose::kSigns, r, n);
      in_signs = signs.words;
    }
    Signs first;
    first.fill(key, Purpose::kSigns, 0, n);
    const kernels::HadamardOut out{dst, first.words, scale, accumulate};
    kernels::fwht(y, n, {y, in_signs, 1.0f}, &out);
    return;
  }
  for (int r = rounds - 1; r >= 0; --r) {
    kernels::mirror_butterfly(y, n);
    signs.fill(key, Purpose::kSecondSigns, r, power);
    transform_part(y + (n - power), power, {y + (n - power), nullptr, 1.0f}, signs.words);
    signs.fill(key, Purpose::kSigns, r, n);
    if (r > 0 && signs_split(power)) {
      transform_part(y, power, {y, nullptr, 1.0f}, signs.words);
      kernels::flip_scale({y + power, signs.words + power / 32, 1.0f}, n - power, y + power);
      continue;
    }
    transform_part(y, power, {y, nullptr, 1.0f}, nullptr);
    kernels::flip_scale({y, signs.words, r > 0 ? 1.0f : scale}, n, r > 0 ? y : dst, r == 0 && accumulate);
  }
}

void rotate(std::span<float> y, int rounds, const BlockKey& key) {
  check(y.size(), rounds);
  rotate_from(y.data(), 1.0f, y.size(), rounds, key, y.data());
  const float norm = static_cast<float>(1.0 / rotation_gain(y.size(), rounds));
  if (norm != 1.0f) kernels::flip_scale({y.data(), nullptr, norm}, y.size(), y.data());
}

void rotate_inverse(std::span<float> y, int rounds, const BlockKey& key) {
  check(y.size(), rounds);
  const float norm = static_cast<float>(1.0 / rotation_gain(y.size(), rounds));
  unrotate_to(y.data(), y.size(), rounds, key, norm, y.data(), false);
}

}  // namespace kpd::transform
