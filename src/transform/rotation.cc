// transform: randomized Hadamard rotation of rows of any length (see the header).
#include "kpd/transform/rotation.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "kernels/hadamard.h"
#include "kpd/base/error.h"

namespace kpd::transform {
namespace {

using kernels::HadamardEdge;

// Rows go through all rounds in groups that stay in the first-level cache.
constexpr size_t kGroupFloats = 4096;

float norm_of(size_t power) { return static_cast<float>(1.0 / std::sqrt(static_cast<double>(power))); }

// The first `power` of n signs ride on a transform, the others are applied apart: sign words cannot be entered between bits.
bool signs_split(size_t power) { return power % 32 == 0; }

// fn(row, n_rows) for each group.
template <class Fn>
void for_each_group(float* y, size_t n_rows, size_t stride, Fn&& fn) {
  const size_t group = std::max<size_t>(1, kGroupFloats / stride);
  for (size_t r = 0; r < n_rows; r += group) fn(y + r * stride, std::min(group, n_rows - r));
}

// One normalised transform over y[0..power), with what is done before it or the signs after it.
void transform_part(float* y, size_t power, float norm, const kernels::HadamardIn& before, const uint32_t* after) {
  const kernels::HadamardOut out{y, after, norm, false};
  kernels::fwht(y, power, before, &out);
}

}  // namespace

Rotation::Rotation(size_t n, int rounds, Mixing mixing) : n_(n), power_(std::bit_floor(n)), rounds_(rounds), mixing_(mixing) {
  if (n < 2 || n > kMaxRotation)
    fail(ErrorCode::kInvalidArgument, "rotation of ", n, " elements: expected 2 to ", kMaxRotation);
  if (rounds < 1 || rounds > kMaxRounds)
    fail(ErrorCode::kInvalidArgument, "rotation: ", rounds, " rounds, expected 1 to ", kMaxRounds);
  norm_ = norm_of(power_);
}

void Rotation::check(std::span<const uint32_t> signs) const {
  if (signs.size() < n_sign_words()) {
    fail(ErrorCode::kInvalidArgument, "rotation of ", n_, " elements in ", rounds_, " rounds: ", signs.size(),
         " sign words, expected ", n_sign_words());
  }
}

double Rotation::gain() const {
  if (power_ != n_) return 1.0;
  double gain = 1.0;
  for (int r = 0; r < rounds_ / 2; ++r) gain *= static_cast<double>(n_);
  return rounds_ % 2 != 0 ? gain * std::sqrt(static_cast<double>(n_)) : gain;
}

void Rotation::forward(float* y, size_t n_rows, size_t stride, std::span<const uint32_t> signs) const {
  check(signs);
  for_each_group(y, n_rows, stride, [&](float* rows, size_t n) { forward_group(rows, n, stride, signs); });
}

void Rotation::inverse(float* y, size_t n_rows, size_t stride, std::span<const uint32_t> signs) const {
  check(signs);
  for_each_group(y, n_rows, stride, [&](float* rows, size_t n) { inverse_group(rows, n, stride, signs); });
}

void Rotation::forward_group(float* y, size_t n_rows, size_t stride, std::span<const uint32_t> signs) const {
  if (overlaps()) {
    for (size_t r = 0; r < n_rows; ++r) forward_overlap(y + r * stride, 1.0f, signs, y + r * stride);
    return;
  }
  // A power of two is normalised once, at its end.
  const float norm = is_blocks() ? 1.0f : static_cast<float>(1.0 / gain());
  for (int round = 0; round < rounds_; ++round) {
    kernels::for_each_power_block(n_, [&](size_t first, size_t power) {
      HadamardEdge after;
      if (is_blocks()) after.scale = norm_of(power);
      if (!is_blocks() && round == rounds_ - 1) after.scale = norm;
      kernels::fwht_rows(y + first, n_rows, power, stride, {set(signs, round), first, 1.0f}, after);
    });
  }
}

void Rotation::inverse_group(float* y, size_t n_rows, size_t stride, std::span<const uint32_t> signs) const {
  if (overlaps()) {
    for (size_t r = 0; r < n_rows; ++r) inverse_overlap(y + r * stride, signs, 1.0f, y + r * stride, false);
    return;
  }
  const float norm = is_blocks() ? 1.0f : static_cast<float>(1.0 / gain());
  for (int round = rounds_ - 1; round >= 0; --round) {
    kernels::for_each_power_block(n_, [&](size_t first, size_t power) {
      // The signs of a round ride on the loads of the next transform, those of round 0 on the last stores.
      const HadamardEdge before{round < rounds_ - 1 ? set(signs, round + 1) : nullptr, first, 1.0f};
      HadamardEdge after{round == 0 ? set(signs, 0) : nullptr, first, 1.0f};
      if (is_blocks()) after.scale = norm_of(power);
      if (!is_blocks() && round == 0) after.scale = norm;
      kernels::fwht_rows(y + first, n_rows, power, stride, before, after);
    });
  }
}

void Rotation::forward_scaled(const float* x, float scale, std::span<const uint32_t> signs, float* y) const {
  check(signs);
  if (overlaps()) return forward_overlap(x, scale, signs, y);
  if (is_blocks()) {
    kernels::flip_scale({x, nullptr, scale}, n_, y, false);
    return forward_group(y, 1, n_, signs);
  }
  for (int round = 0; round < rounds_; ++round) {
    kernels::fwht(y, n_, {round == 0 ? x : y, set(signs, round), round == 0 ? scale : 1.0f}, nullptr);
  }
}

void Rotation::inverse_scaled(float* y, std::span<const uint32_t> signs, float scale, float* dst, bool accumulate) const {
  check(signs);
  if (overlaps()) return inverse_overlap(y, signs, scale, dst, accumulate);
  if (is_blocks()) {
    inverse_group(y, 1, n_, signs);
    return kernels::flip_scale({y, nullptr, scale}, n_, dst, accumulate);
  }
  // H, then the signs of a round ride on the loads of the next transform and, for round 0, on the last stores.
  const uint32_t* before = nullptr;
  for (int round = rounds_ - 1; round > 0; --round) {
    kernels::fwht(y, n_, {y, before, 1.0f}, nullptr);
    before = set(signs, round);
  }
  const kernels::HadamardOut out{dst, set(signs, 0), scale, accumulate};
  kernels::fwht(y, n_, {y, before, 1.0f}, &out);
}

void Rotation::forward_overlap(const float* x, float scale, std::span<const uint32_t> signs, float* y) const {
  float* const second = y + (n_ - power_);
  for (int round = 0; round < rounds_; ++round) {
    const kernels::HadamardIn in{round == 0 ? x : y, set(signs, round), round == 0 ? scale : 1.0f};
    if (signs_split(power_)) {
      kernels::flip_scale({in.src + power_, in.signs + power_ / 32, in.scale}, n_ - power_, y + power_, false);
      transform_part(y, power_, norm_, in, nullptr);
    } else {
      kernels::flip_scale(in, n_, y, false);
      transform_part(y, power_, norm_, {y, nullptr, 1.0f}, nullptr);
    }
    // Signs of its own: without them H on H's output would undo much of the mixing where the two overlap.
    transform_part(second, power_, norm_, {second, set(signs, round, 1), 1.0f}, nullptr);
    kernels::mirror_butterfly(y, n_);
  }
}

void Rotation::inverse_overlap(float* y, std::span<const uint32_t> signs, float scale, float* dst, bool accumulate) const {
  float* const second = y + (n_ - power_);
  for (int round = rounds_ - 1; round >= 0; --round) {
    kernels::mirror_butterfly(y, n_);
    transform_part(second, power_, norm_, {second, nullptr, 1.0f}, set(signs, round, 1));
    const uint32_t* const words = set(signs, round);
    if (round > 0 && signs_split(power_)) {
      transform_part(y, power_, norm_, {y, nullptr, 1.0f}, words);
      kernels::flip_scale({y + power_, words + power_ / 32, 1.0f}, n_ - power_, y + power_, false);
      continue;
    }
    transform_part(y, power_, norm_, {y, nullptr, 1.0f}, nullptr);
    kernels::flip_scale({y, words, round > 0 ? 1.0f : scale}, n_, round > 0 ? y : dst, round == 0 && accumulate);
  }
}

}  // namespace kpd::transform
