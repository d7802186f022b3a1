// gradient: DRIVE and DRIVE+, one bit a coordinate (Vargaftik et al., "DRIVE: One-bit Distributed Mean Estimation", NeurIPS
// 2021).
//
// y = R x for a randomized Hadamard rotation R; DRIVE sends sign(y) and one scale S, the receiver takes S R^-1 sign(y). DRIVE+
// sends the side of a 2-means clustering of y on which each coordinate lies, and both centroids. S = |x|^2 / <y, q> is unbiased
// under a uniform rotation, <y, q> / |q|^2 has the least error.
#include <algorithm>
#include <bit>
#include <numbers>

#include "gradient/block_rotation.h"
#include "gradient/baseline_tools.h"
#include "gradient/baselines.h"
#include "kernels/sums.h"
#include "kpd/quant/sphere.h"

namespace kpd::gradient {
namespace {

using namespace baselines;

constexpr double kUnbiasedLimit = std::numbers::pi / 2 - 1;
constexpr double kBiasedLimit = 1 - 2 / std::numbers::pi;
constexpr int kLloydIterations = 3;  // as the authors' code

double limit(const WireParams& params, uint64_t count = 0) {
  const bool biased = params.scale == ScaleKind::kBiased;
  if (count == 0) return biased ? kBiasedLimit : kUnbiasedLimit;
  const uint32_t n = usual_block(params, count);
  return biased ? quant::sphere_one_bit_biased_vnmse(n, n) : quant::sphere_one_bit_unbiased_vnmse(n, n);
}

// One bit per y[i] at dst: 1 above the threshold, 0 below; on it a random bit, bit i % 32 of word i / 32 of Purpose::kTies.
void write_sides(std::span<const float> y, float threshold, const BlockKey& own, uint8_t* dst) {
  const uint32_t n = static_cast<uint32_t>(y.size());
  uint32_t ties[4];
  uint32_t ties_at = UINT32_MAX;
  for (uint32_t first = 0; first < n; first += 8) {
    const uint32_t count = n - first < 8 ? n - first : 8;
    uint32_t above = 0, equal = 0;
    for (uint32_t i = 0; i < count; ++i) {
      above |= static_cast<uint32_t>(y[first + i] > threshold) << i;
      equal |= static_cast<uint32_t>(y[first + i] == threshold) << i;
    }
    if (equal != 0) {
      if (ties_at != first / 128) random_words(own, Purpose::kTies, 0, ties_at = first / 128, ties);
      above |= equal & (ties[first / 32 % 4] >> (first % 32));
    }
    dst[first / 8] = static_cast<uint8_t>(above);
  }
}

// y[i] = values[bit i of bits].
void read_sides(const uint8_t* bits, const float (&values)[2], std::span<float> y) {
  const size_t n = y.size();
  for (size_t i = 0; i < n; ++i) y[i] = values[(bits[i / 8] >> (i % 8)) & 1];
}

// What the two methods share: rotation, layout, statistics. A segment is `kFloats` floats a block, then the bits block by
// block; a block whose floats are 0 has none.
class OneBitCodec : public SegmentCodec {
 public:
  OneBitCodec(const WireParams& params, uint32_t floats) : params_(params), floats_(floats) {}
  bool fixed_size() const override { return true; }
  uint64_t segment_bytes(const SegmentShape& shape) const override {
    uint64_t bytes = head_bytes(shape);
    for (uint32_t i = 0; i < shape.n_blocks; ++i) bytes += (shape.block_length(i) + 7) / 8;
    return bytes;
  }
  uint64_t head_bytes(const SegmentShape& shape) const override { return uint64_t{4} * floats_ * shape.n_blocks; }
  uint64_t length_from_head(std::span<const uint8_t> head, const SegmentShape& shape) const override {
    return bytes_from_head(head, shape, floats_, [&](uint32_t n) { return (n + 7) / 8; });
  }

  uint64_t encode(std::span<const float> x, const SegmentShape& shape, const TensorKeys& keys, std::span<uint8_t> dst,
                  Scratch& scratch, SegmentStats& stats) const override {
    uint8_t* bits = dst.data() + size_t{4} * floats_ * shape.n_blocks;
    for (uint32_t i = 0; i < shape.n_blocks; ++i) {
      const uint32_t n = shape.block_length(i);
      const std::span<const float> block = x.subspan(shape.block_offset(i), n);
      const kernels::Magnitude magnitude = kernels::magnitude(block.data(), n);
      uint8_t* const floats = dst.data() + size_t{4} * floats_ * i;
      if (magnitude.max_abs_bits == 0) {
        std::fill_n(floats, 4 * floats_, uint8_t{0});
        continue;
      }
      const int e = exponent_of(magnitude.max_abs_bits);
      const std::span<float> y = grown(scratch.rotated, n);
      emit(block, power_of_two(-e), 1, false, y.data());
      BlockRotation(n, params_.rounds, rotation_key(keys, shape, i), scratch.signs).forward(y);
      const double error2 = write_block(y, power_of_two(e), own_key(keys, shape, i), floats, bits);
      stats.norm2 += magnitude.sum_squares;
      stats.error2 += error2;
      if (!all_zero(floats, floats_)) bits += (n + 7) / 8;
    }
    return static_cast<uint64_t>(bits - dst.data());
  }

  uint64_t decode(std::span<const uint8_t> src, const SegmentShape& shape, const TensorKeys& keys, float weight,
                  bool accumulate, std::span<float> dst, Scratch& scratch) const override {
    check_segment_size(src, *this, shape);
    uint64_t offset = head_bytes(shape);
    uint64_t saturated = 0;
    for (uint32_t i = 0; i < shape.n_blocks; ++i) {
      const uint32_t n = shape.block_length(i);
      const std::span<float> y = grown(scratch.rotated, n);
      float values[2];
      const double factor = read_values(src, uint64_t{4} * floats_ * i, values);
      if (all_zero(src.data() + uint64_t{4} * floats_ * i, floats_)) {
        if (!accumulate) std::fill_n(dst.data() + shape.block_offset(i), n, 0.0f);
        continue;
      }
      check_padding(src, offset, n);
      read_sides(src.data() + offset, values, y);
      BlockRotation(n, params_.rounds, rotation_key(keys, shape, i), scratch.signs).inverse(y);
      saturated += emit(y, factor, weight, accumulate, dst.data() + shape.block_offset(i));
      offset += (n + 7) / 8;
    }
    return saturated;
  }

 protected:
  // Codes y (rotated, divided by `unit`, not all zero) into floats and bits; returns the squared error made, in units of the
  // input.
  virtual double write_block(std::span<const float> y, double unit, const BlockKey& own, uint8_t* floats,
                             uint8_t* bits) const = 0;
  // The two values a bit stands for, to be multiplied by the result after the inverse rotation.
  virtual double read_values(std::span<const uint8_t> src, uint64_t offset, float (&values)[2]) const = 0;

  WireParams params_;

 private:
  uint32_t floats_;
};

class DriveCodec final : public OneBitCodec {
 public:
  explicit DriveCodec(const WireParams& params) : OneBitCodec(params, 1) {}

 protected:
  double write_block(std::span<const float> y, double unit, const BlockKey& own, uint8_t* floats,
                     uint8_t* bits) const override {
    const double n = static_cast<double>(y.size()), l1 = sum_abs(y), norm2 = sum_squares(y);
    const float scale = saturate((params_.scale == ScaleKind::kUnbiased ? norm2 / l1 : l1 / n) * unit);
    write_float(floats, scale);
    write_sides(y, 0.0f, own, bits);
    // |S q - y|^2 with q = sign(y): <y, q> is the sum of |y| and |q|^2 is n.
    const double s = static_cast<double>(scale) / unit;
    const double error2 = n * s * s - 2 * s * l1 + norm2;
    return (error2 > 0 ? error2 : 0) * unit * unit;
  }
  double read_values(std::span<const uint8_t> src, uint64_t offset, float (&values)[2]) const override {
    const float scale = read_finite(src, offset, "the scale");
    if (scale < 0) corrupt_at(offset, "the scale is negative, expected 0 or more");
    values[0] = -1;
    values[1] = 1;
    return scale;
  }
};

class DrivePlusCodec final : public OneBitCodec {
 public:
  explicit DrivePlusCodec(const WireParams& params) : OneBitCodec(params, 2) {}

 protected:
  double write_block(std::span<const float> y, double unit, const BlockKey& own, uint8_t* floats,
                     uint8_t* bits) const override {
    // Lloyd's iteration for two clusters, from DRIVE's +-mean|y|: the first threshold is 0. Only the last one draws ties.
    const double n = static_cast<double>(y.size()), norm2 = sum_squares(y);
    const double start = sum_abs(y) / n;
    double low = -start, high = start;
    Side above;
    for (int iteration = 1; iteration <= kLloydIterations; ++iteration) {
      const float threshold = static_cast<float>((low + high) * 0.5);
      if (iteration < kLloydIterations) {
        above = sum_above(y, threshold);
      } else {
        write_sides(y, threshold, own, bits);
        above = sum_above(y, bits);
      }
      if (above.count > 0) high = above.sum / above.count;
      if (above.count < n) low = (above.total - above.sum) / (n - above.count);
    }
    // With the centroids q of these very clusters, <y, q> = |q|^2.
    const double q2 = high * high * above.count + low * low * (n - above.count);
    const double scale = params_.scale == ScaleKind::kUnbiased && q2 > 0 ? norm2 / q2 : 1.0;
    const float sent[2] = {saturate(low * scale * unit), saturate(high * scale * unit)};
    write_float(floats, sent[0]);
    write_float(floats + 4, sent[1]);
    const double v0 = sent[0] / unit, v1 = sent[1] / unit;
    const double sent2 = v1 * v1 * above.count + v0 * v0 * (n - above.count);
    const double error2 = sent2 - 2 * (v1 * above.sum + v0 * (above.total - above.sum)) + norm2;
    return (error2 > 0 ? error2 : 0) * unit * unit;
  }
  double read_values(std::span<const uint8_t> src, uint64_t offset, float (&values)[2]) const override {
    const float low = read_finite(src, offset, "the low centroid"), high = read_finite(src, offset + 4, "the high centroid");
    const float top = -low > high ? -low : high;
    if (low > high) corrupt_at(offset, "the low centroid exceeds the high one");
    const double unit = power_of_two(exponent_of(top));
    values[0] = static_cast<float>(low / unit);
    values[1] = static_cast<float>(high / unit);
    return unit;
  }

 private:
  struct Side {
    double count = 0, sum = 0, total = 0;
  };
  // Number and sum of the coordinates with chosen(i), and the sum of all; lanes as in sum_abs. In two steps, so that the
  // compiler keeps both free of branches, which random signs make ten times slower.
  template <class Chosen>
  static Side sum_if(std::span<const float> y, const Chosen& chosen) {
    double sum[8] = {}, total[8] = {};
    uint32_t count = 0;
    const float* const p = y.data();
    const size_t n = y.size();
    float kept[kChunk];
    for (size_t first = 0; first < n; first += kChunk) {
      const size_t end = std::min<size_t>(kChunk, n - first);
      for (size_t i = 0; i < end; ++i) {
        const uint32_t mask = 0u - static_cast<uint32_t>(chosen(first + i));
        kept[i] = std::bit_cast<float>(std::bit_cast<uint32_t>(p[first + i]) & mask);
        count -= mask;
      }
      for (size_t i = 0; i + 8 <= end; i += 8) {
        for (size_t l = 0; l < 8; ++l) {
          sum[l] += static_cast<double>(kept[i + l]);
          total[l] += static_cast<double>(p[first + i + l]);
        }
      }
      for (size_t i = end / 8 * 8; i < end; ++i) {
        sum[i % 8] += static_cast<double>(kept[i]);
        total[i % 8] += static_cast<double>(p[first + i]);
      }
    }
    for (size_t step = 4; step > 0; step /= 2) {
      for (size_t l = 0; l < step; ++l) sum[l] += sum[l + step], total[l] += total[l + step];
    }
    return {static_cast<double>(count), sum[0], total[0]};
  }
  static Side sum_above(std::span<const float> y, float threshold) {
    return sum_if(y, [p = y.data(), threshold](size_t i) { return p[i] > threshold; });
  }
  static Side sum_above(std::span<const float> y, const uint8_t* bits) {
    return sum_if(y, [bits](size_t i) { return (bits[i / 8] >> (i % 8)) & 1; });
  }
};

template <uint8_t kId>
WireParams parse(const Spec& spec) {
  return {.method = kId,
          .log2_block = parse_block(spec),
          .rounds = parse_rounds(spec),
          .scale = parse_scale(spec),
          .rate = kOneBit};
}

template <class CodecType>
std::unique_ptr<SegmentCodec> make(const WireParams& params) {
  const std::string_view name = std::is_same_v<CodecType, DriveCodec> ? "drive" : "drive+";
  check_fields(name, params, {.rotates = true, .last_scale = ScaleKind::kBiased, .min_rate = kOneBit, .max_rate = kOneBit});
  return std::make_unique<CodecType>(params);
}

}  // namespace

MethodEntry drive_entry() {
  return {{kDriveId,
           "drive",
           "1",
           "nearly: over random rotations (scale=unbiased)",
           "pi/2-1 = .5708 (biased: .3634)",
           "DRIVE, Vargaftik et al., NeurIPS 2021",
           {{"scale", "unbiased|biased", "unbiased"}, kBlockKey, kRoundsKey}},
          parse<kDriveId>,
          make<DriveCodec>,
          limit};
}

MethodEntry drive_plus_entry() {
  return {{kDrivePlusId,
           "drive+",
           "1",
           "nearly: over random rotations (scale=unbiased)",
           "pi/2-1 = .5708 (biased: .3634)",
           "DRIVE+, Vargaftik et al., NeurIPS 2021",
           {{"scale", "unbiased|biased", "unbiased"}, kBlockKey, kRoundsKey}},
          parse<kDrivePlusId>,
          make<DrivePlusCodec>,
          limit};
}

}  // namespace kpd::gradient
