// kernels: the plain reference of sample.h.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "kernels/sample.h"
#include "kernels/sums.h"

namespace kpd::kernels::scalar {
namespace {

constexpr float kNothing = -std::numeric_limits<float>::infinity();

float weight(float x, float shift, float scale) {
  const float y = (x - shift) * scale;
  if (!(y >= kExp2Low)) return 0;
  const float shifted = y + kExp2Round, f = y - (shifted - kExp2Round);
  float p = kExp2[5];
  for (int k = 4; k >= 0; --k) p = p * f + kExp2[k];
  return std::bit_cast<float>(std::bit_cast<uint32_t>(p) + ((std::bit_cast<uint32_t>(shifted) - kExp2RoundBits) << 23));
}

}  // namespace

float lane_maxima(const float* x, size_t n, float* maxima) {
  std::fill_n(maxima, sample_blocks(n) * kSampleLanes, kNothing);
  bool nan = false;
  for (size_t i = 0; i < n; ++i) {
    float& most = maxima[i / kSampleBlock * kSampleLanes + i % kSampleLanes];
    most = std::max(most, x[i]);
    nan = nan || std::isnan(x[i]);
  }
  if (nan) return std::numeric_limits<float>::quiet_NaN();
  float best = kNothing;
  for (size_t j = 0; j < sample_blocks(n) * kSampleLanes; ++j) best = std::max(best, maxima[j]);
  return best;
}

void exp2_sums(const float* x, size_t n, float shift, float scale, double* sums, float* weights) {
  for (size_t block = 0; block < sample_blocks(n); ++block) {
    double lanes[kSumLanes] = {};
    for (size_t i = block * kSampleBlock; i < std::min(n, (block + 1) * kSampleBlock); ++i) {
      const float w = weight(x[i], shift, scale);
      if (weights != nullptr) weights[i] = w;
      lanes[i % kSampleLanes] += static_cast<double>(w);
    }
    sums[block] = sum_lanes(lanes);
  }
}

size_t gather_from(const float* x, size_t n, float least, float* values, uint32_t* ids) {
  size_t count = 0;
  for (size_t i = 0; i < n; ++i) {
    if (!(x[i] >= least)) continue;
    values[count] = x[i];
    ids[count++] = static_cast<uint32_t>(i);
  }
  return count;
}

}  // namespace kpd::kernels::scalar
