// kernels: the plain reference of quantize.h, and the path for 5 to 8 bits.
#include <bit>

#include "kernels/quantize.h"
#include "kernels/sums.h"

namespace kpd::kernels::scalar {
namespace {

uint32_t magnitude_code(float a, const QuantizeTable& t) {
  const uint32_t top = (1u << (t.bits - 1)) - 1;
  uint32_t m = 0;
  if (t.bucket_start != nullptr) {
    const float bucket = a * t.bucket_scale;
    m = t.bucket_start[bucket < static_cast<float>(kBucketCount - 1) ? static_cast<size_t>(bucket) : kBucketCount - 1];
  }
  while (m < top && a >= t.thresholds[m]) ++m;
  return m;
}

// Bit i of a byte becomes the low bit of byte i of the result.
uint64_t spread(uint8_t bits) {
  const uint64_t picked = (bits * 0x0101010101010101ull) & 0x8040201008040201ull;
  return ((picked + 0x7f7f7f7f7f7f7f7full) >> 7) & 0x0101010101010101ull;
}

}  // namespace

QuantizeSums quantize_planes(const float* y, size_t n, const QuantizeTable& t, uint8_t* planes) {
  const size_t stride = plane_bytes(n);
  uint32_t counts[1u << (kMaxPlaneBits - 1)] = {};
  double lanes[kSumLanes] = {};
  QuantizeSums sums;
  for (size_t i = 0; i < n; i += 8) {
    const size_t count = n - i < 8 ? n - i : 8;
    uint64_t codes = 0;  // byte j: sign << (bits - 1) | m of element i + j
    for (size_t j = 0; j < count; ++j) {
      const uint32_t raw = std::bit_cast<uint32_t>(y[i + j]);
      const float a = std::bit_cast<float>(raw & 0x7fffffffu);
      const uint32_t m = magnitude_code(a, t);
      ++counts[m];
      sums.has_zero |= a == 0.0f;
      lanes[(i + j) % kSumLanes] += static_cast<double>(a) * static_cast<double>(t.levels[m]);
      codes |= static_cast<uint64_t>((raw >> 31) << (t.bits - 1) | m) << (8 * j);
    }
    for (int p = 0; p < t.bits; ++p) {
      // Gather bit (bits - 1 - p) of the eight bytes into one byte.
      const uint64_t picked = (codes >> (t.bits - 1 - p)) & 0x0101010101010101ull;
      planes[static_cast<size_t>(p) * stride + i / 8] = static_cast<uint8_t>((picked * 0x0102040810204080ull) >> 56);
    }
  }
  sums.dot = sum_lanes(lanes);
  sums.q2 = sum_level_squares(counts, t.levels, size_t{1} << (t.bits - 1));
  return sums;
}

void dequantize_planes(const uint8_t* planes, size_t n, int bits, const float* levels, float* y) {
  const size_t stride = plane_bytes(n);
  for (size_t i = 0; i < n; i += 8) {
    const size_t count = n - i < 8 ? n - i : 8;
    uint64_t codes = 0;
    for (int p = 1; p < bits; ++p) codes = (codes << 1) | spread(planes[static_cast<size_t>(p) * stride + i / 8]);
    const uint8_t signs = planes[i / 8];
    for (size_t j = 0; j < count; ++j) {
      const uint32_t raw = std::bit_cast<uint32_t>(levels[(codes >> (8 * j)) & 0xff]);
      y[i + j] = std::bit_cast<float>(raw | static_cast<uint32_t>((signs >> j) & 1) << 31);
    }
  }
}

}  // namespace kpd::kernels::scalar
