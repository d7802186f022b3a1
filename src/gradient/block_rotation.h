// gradient: the rotation of one block: a plan of transform with signs drawn from the block's key. Private.
#pragma once

#include <cstdint>
#include <span>

#include "gradient/random_words.h"
#include "kpd/base/memory.h"
#include "kpd/transform/rotation.h"

namespace kpd::gradient {

class BlockRotation {
 public:
  // Draws the signs into `words`, which grows at its first use for a length and keeps them as long as this object is used.
  // Errors are Rotation's.
  BlockRotation(size_t n, int rounds, const BlockKey& key, AlignedBuffer<uint32_t>& words);

  // In place, orthonormal; y has the block's length.
  void forward(std::span<float> y) const { plan_.forward(y.data(), 1, y.size(), signs_); }
  void inverse(std::span<float> y) const { plan_.inverse(y.data(), 1, y.size(), signs_); }
  // Rotation::forward_scaled and inverse_scaled.
  double gain() const { return plan_.gain(); }
  void forward_scaled(const float* x, float scale, float* y) const { plan_.forward_scaled(x, scale, signs_, y); }
  void inverse_scaled(float* y, float scale, float* dst, bool accumulate) const {
    plan_.inverse_scaled(y, signs_, scale, dst, accumulate);
  }

 private:
  transform::Rotation plan_;
  std::span<const uint32_t> signs_;
};

}  // namespace kpd::gradient
