// transform: the rotation as codecs use it, unnormalised and fused with the scaling at its edges. Private.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kpd/transform/rotation.h"

namespace kpd::transform {

// y = gain * R x. For n a power of two the butterflies are not normalised and gain = n^(rounds/2); for any other n every
// transform is normalised and gain = 1.
double rotation_gain(size_t n, int rounds);

// y[n] = rotation_gain * R (scale * x). x may be y. 2 <= n <= kMaxRotation.
void rotate_from(const float* x, float scale, size_t n, int rounds, const BlockKey& key, float* y);

// dst[n] = (or +=) scale * rotation_gain * R^-1 y; y is overwritten. dst may be y unless accumulate.
void unrotate_to(float* y, size_t n, int rounds, const BlockKey& key, float scale, float* dst, bool accumulate);

inline constexpr size_t kMaxRotation = size_t{1} << 17;

}  // namespace kpd::transform
