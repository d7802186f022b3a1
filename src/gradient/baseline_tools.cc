// gradient: see baseline_tools.h.
#include "gradient/baseline_tools.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "kernels/sums.h"

namespace kpd::gradient::baselines {
namespace {

constexpr uint32_t kInfBits = 0x7f800000u;
constexpr size_t kLanes = 8;

double add_lanes(double (&lanes)[kLanes]) {
  for (size_t step = kLanes / 2; step > 0; step /= 2) {
    for (size_t l = 0; l < step; ++l) lanes[l] += lanes[l + step];
  }
  return lanes[0];
}

// The sum of term(i) over i < n in the order of the header.
template <class Term>
double lane_sum(size_t n, const Term& term) {
  double lanes[kLanes] = {};
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (size_t l = 0; l < kLanes; ++l) lanes[l] += term(i + l);
  }
  for (size_t l = 0; i < n; ++i, ++l) lanes[l] += term(i);
  return add_lanes(lanes);
}

}  // namespace

double power_of_two(int e) { return std::bit_cast<double>(static_cast<uint64_t>(e + 1023) << 52); }

int exponent_of(uint32_t abs_bits) {
  if (abs_bits == 0) return 0;
  const int biased = static_cast<int>(abs_bits >> 23);
  // A denormal is abs_bits * 2^-149.
  return biased > 0 ? biased - 127 : static_cast<int>(std::bit_width(abs_bits)) - 1 - 149;
}

int exponent_of(float v) { return exponent_of(std::bit_cast<uint32_t>(v) & 0x7fffffffu); }

float saturate(double v) { return static_cast<float>(std::clamp(v, -double{FLT_MAX}, double{FLT_MAX})); }

double sum_abs(std::span<const float> y) {
  return lane_sum(y.size(), [p = y.data()](size_t i) { return static_cast<double>(std::abs(p[i])); });
}

double sum_squares(std::span<const float> y) {
  return lane_sum(y.size(), [p = y.data()](size_t i) { return static_cast<double>(p[i]) * static_cast<double>(p[i]); });
}

double sum_squared_differences(std::span<const float> a, std::span<const float> b) {
  return lane_sum(a.size(), [p = a.data(), q = b.data()](size_t i) {
    const double d = static_cast<double>(p[i]) - static_cast<double>(q[i]);
    return d * d;
  });
}

Range range_of(std::span<const float> y) {
  const size_t n = y.size();
  const float* const p = y.data();
  float lo[kLanes], hi[kLanes];
  for (size_t l = 0; l < kLanes; ++l) lo[l] = hi[l] = p[l < n ? l : 0];
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (size_t l = 0; l < kLanes; ++l) {
      lo[l] = p[i + l] < lo[l] ? p[i + l] : lo[l];
      hi[l] = p[i + l] > hi[l] ? p[i + l] : hi[l];
    }
  }
  Range r{lo[0], hi[0]};
  for (; i < n; ++i) r = {std::min(r.lo, p[i]), std::max(r.hi, p[i])};
  for (size_t l = 1; l < kLanes; ++l) r = {std::min(r.lo, lo[l]), std::max(r.hi, hi[l])};
  // One zero: which of -0 and +0 is met first must not show in the bytes.
  return {r.lo + 0.0f, r.hi + 0.0f};
}

void random_chunk(const BlockKey& key, Purpose purpose, uint32_t first, uint32_t (&words)[kChunk]) {
  random_words(key, purpose, 0, first / 4, words);
}

void choose_subset(const BlockKey& key, uint32_t n, uint32_t k, AlignedBuffer<uint16_t>& indices) {
  const std::span<uint16_t> out = grown(indices, size_t{n} + 1);
  uint32_t words[kChunk];
  uint32_t kept = 0;
  for (uint32_t first = 0; first < n && kept < k; first += kChunk) {
    random_chunk(key, Purpose::kWindow, first, words);
    const uint32_t count = std::min(kChunk, n - first);
    for (uint32_t i = 0; i < count; ++i) {
      const uint32_t left = n - (first + i);
      out[kept] = static_cast<uint16_t>(first + i);
      kept += static_cast<uint32_t>((uint64_t{words[i]} * left) >> 32) < k - kept;
    }
  }
}

void check_segment_size(std::span<const uint8_t> src, uint64_t expected) {
  if (src.size() == expected) return;
  corrupt_at(std::min<uint64_t>(src.size(), expected), "the segment has ", src.size(), " bytes, expected ", expected);
}

void check_segment_size(std::span<const uint8_t> src, const SegmentCodec& codec, const SegmentShape& shape) {
  const uint64_t head = codec.head_bytes(shape);
  if (src.size() < head) corrupt_at(src.size(), "the segment has ", src.size(), " bytes, expected at least ", head);
  check_segment_size(src, codec.length_from_head(src.first(head), shape));
}

bool all_zero(const uint8_t* floats, uint32_t n) {
  for (uint32_t i = 0; i < n; ++i) {
    if ((load_u32(floats + size_t{4} * i) & 0x7fffffffu) != 0) return false;
  }
  return true;
}

float read_finite(std::span<const uint8_t> src, uint64_t offset, std::string_view what) {
  const uint32_t bits = load_u32(src.data() + offset);
  if ((bits & kInfBits) == kInfBits) corrupt_at(offset, what, " is not finite, expected a finite number");
  return std::bit_cast<float>(bits);
}

void write_float(uint8_t* dst, float v) { store_u32(dst, std::bit_cast<uint32_t>(v)); }

void check_padding(std::span<const uint8_t> src, uint64_t offset, uint64_t bits) {
  if (bits % 8 == 0) return;
  const uint64_t last = offset + bits / 8;
  if ((src[last] >> (bits % 8)) != 0) corrupt_at(last, "bits beyond the last code are set, expected zero");
}

uint64_t emit(std::span<const float> y, double factor, float weight, bool accumulate, float* dst) {
  constexpr double kMax = FLT_MAX;
  const size_t n = y.size();
  const float* const p = y.data();
  const double largest = std::bit_cast<float>(kernels::magnitude(p, n).max_abs_bits) * std::abs(factor);
  if (accumulate && largest * std::max(1.0, std::abs(static_cast<double>(weight))) <= kMax) {
    for (size_t i = 0; i < n; ++i) dst[i] += weight * static_cast<float>(static_cast<double>(p[i]) * factor);
    return 0;
  }
  if (!accumulate && largest <= kMax) {
    for (size_t i = 0; i < n; ++i) dst[i] = static_cast<float>(static_cast<double>(p[i]) * factor);
    return 0;
  }
  uint64_t saturated = 0;
  for (size_t i = 0; i < n; ++i) {
    dst[i] = limited(static_cast<double>(p[i]) * factor, weight, accumulate, dst[i], saturated);
  }
  return saturated;
}

}  // namespace kpd::gradient::baselines
