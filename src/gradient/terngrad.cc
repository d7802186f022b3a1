// gradient: TernGrad (Wen et al., "TernGrad: Ternary Gradients to Reduce Communication in Distributed Deep Learning", NeurIPS
// 2017).
//
// Every element becomes s * {-1, 0, 1} with s = max |x| of its block: nonzero, with the sign of x, with probability |x| / s.
// Five ternary digits travel in a byte (1.6 bits each). clip=C first limits |x| to C standard deviations, which is biased.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "gradient/baseline_tools.h"
#include "gradient/baselines.h"
#include "kernels/sums.h"

namespace kpd::gradient {
namespace {

using namespace baselines;

constexpr uint32_t kDigitsPerByte = 5, kByteValues = 243;
constexpr uint32_t kRate = 104858;  // 1.6 bits
constexpr uint32_t kMaxClip =
    64u * kOneBit;  // WireParams::param: the clip in units of 2^-16, 0 for none; the decoder ignores it

// Digits 0, 1, 2 are 0, +1, -1; digit i of a byte has weight 3^i.
constexpr auto kDigits = [] {
  std::array<std::array<int8_t, kDigitsPerByte>, kByteValues> table{};
  for (uint32_t byte = 0; byte < kByteValues; ++byte) {
    for (uint32_t i = 0, v = byte; i < kDigitsPerByte; ++i, v /= 3)
      table[byte][i] = static_cast<int8_t>(v % 3 == 2 ? -1 : v % 3);
  }
  return table;
}();

uint32_t packed_bytes(uint32_t n) { return (n + kDigitsPerByte - 1) / kDigitsPerByte; }

// The clip level of a block: c standard deviations about zero (a constant block must not vanish), at most `max`.
float clip_level(std::span<const float> x, float max, double c) {
  return static_cast<float>(std::min<double>(max, c * std::sqrt(sum_squares(x) / static_cast<double>(x.size()))));
}

// digits[i] for x[i]; s > 0.
void ternarize(std::span<const float> x, float s, const BlockKey& own, uint8_t* digits) {
  const uint32_t n = static_cast<uint32_t>(x.size());
  uint32_t words[kChunk];
  for (uint32_t first = 0; first < n; first += kChunk) {
    random_chunk(own, Purpose::kStochastic, first, words);
    const uint32_t count = std::min(kChunk, n - first);
    const float* const p = x.data() + first;
    for (uint32_t i = 0; i < count; ++i) {
      const float magnitude = std::abs(p[i]);
      const float ratio = magnitude / s;
      const int32_t nonzero = round_stochastically(0, ratio < 1.0f ? ratio : 1.0f, words[i]);
      digits[first + i] = static_cast<uint8_t>(nonzero << (p[i] < 0 ? 1 : 0));
    }
  }
}

// A segment is s of every block as floats, then the bytes block by block; a block whose s is 0 has none.
class TernGradCodec final : public SegmentCodec {
 public:
  explicit TernGradCodec(const WireParams& params) : clip_(static_cast<double>(params.param) / kOneBit) {}
  bool fixed_size() const override { return true; }
  uint64_t segment_bytes(const SegmentShape& shape) const override {
    uint64_t bytes = uint64_t{4} * shape.n_blocks;
    for (uint32_t i = 0; i < shape.n_blocks; ++i) bytes += packed_bytes(shape.block_length(i));
    return bytes;
  }
  uint64_t head_bytes(const SegmentShape& shape) const override { return uint64_t{4} * shape.n_blocks; }
  uint64_t length_from_head(std::span<const uint8_t> head, const SegmentShape& shape) const override {
    return bytes_from_head(head, shape, 1, [&](uint32_t n) { return packed_bytes(n); });
  }

  uint64_t encode(std::span<const float> x, const SegmentShape& shape, const TensorKeys& keys, std::span<uint8_t> dst,
                  Scratch& scratch, SegmentStats& stats) const override {
    uint8_t* out = dst.data() + size_t{4} * shape.n_blocks;
    for (uint32_t i = 0; i < shape.n_blocks; ++i) {
      const uint32_t n = shape.block_length(i), bytes = packed_bytes(n);
      const std::span<const float> block = x.subspan(shape.block_offset(i), n);
      const kernels::Magnitude magnitude = kernels::magnitude(block.data(), n);
      const float max = std::bit_cast<float>(magnitude.max_abs_bits);
      const float s = clip_ > 0 ? clip_level(block, max, clip_) : max;
      write_float(dst.data() + size_t{4} * i, s);
      stats.norm2 += magnitude.sum_squares;
      if (s == 0) {
        stats.error2 += magnitude.sum_squares;
        continue;
      }
      const std::span<uint8_t> digits = grown(scratch.bytes, size_t{bytes} * kDigitsPerByte);
      std::fill(digits.begin(), digits.end(), uint8_t{0});
      ternarize(block, s, own_key(keys, shape, i), digits.data());
      for (uint32_t k = 0; k < bytes; ++k) {
        const uint8_t* const d = digits.data() + size_t{k} * kDigitsPerByte;
        *out++ = static_cast<uint8_t>(d[0] + 3 * d[1] + 9 * d[2] + 27 * d[3] + 81 * d[4]);
      }
      stats.error2 += error_of(block, s, digits, scratch);
    }
    return static_cast<uint64_t>(out - dst.data());
  }

  uint64_t decode(std::span<const uint8_t> src, const SegmentShape& shape, const TensorKeys&, float weight, bool accumulate,
                  std::span<float> dst, Scratch& scratch) const override {
    check_segment_size(src, *this, shape);
    uint64_t offset = uint64_t{4} * shape.n_blocks;
    for (uint32_t i = 0; i < shape.n_blocks; ++i) {
      const uint32_t n = shape.block_length(i), bytes = packed_bytes(n);
      const float s = read_finite(src, uint64_t{4} * i, "the largest magnitude");
      if (s < 0) corrupt_at(uint64_t{4} * i, "the largest magnitude is negative, expected 0 or more");
      if (s == 0) {
        if (!accumulate) std::fill_n(dst.data() + shape.block_offset(i), n, 0.0f);
        continue;
      }
      const std::span<float> y = grown(scratch.values, size_t{bytes} * kDigitsPerByte);
      for (uint32_t k = 0; k < bytes; ++k) {
        const uint8_t byte = src[offset + k];
        if (byte >= kByteValues) corrupt_at(offset + k, "ternary byte ", byte, ", expected at most ", kByteValues - 1);
        for (uint32_t d = 0; d < kDigitsPerByte; ++d) y[k * kDigitsPerByte + d] = kDigits[byte][d];
      }
      for (uint32_t k = n; k < bytes * kDigitsPerByte; ++k) {
        if (y[k] != 0) corrupt_at(offset + bytes - 1, "digits beyond the last element are not zero");
      }
      emit(y.subspan(0, n), s, weight, accumulate, dst.data() + shape.block_offset(i));
      offset += bytes;
    }
    return 0;
  }

 private:
  static double error_of(std::span<const float> x, float s, std::span<const uint8_t> digits, Scratch& scratch) {
    const std::span<float> y = grown(scratch.values, x.size());
    const float values[3] = {0, s, -s};
    for (size_t i = 0; i < x.size(); ++i) y[i] = values[digits[i]];
    return sum_squared_differences(y, x);
  }
  double clip_;
};

WireParams parse(const Spec& spec) {
  return {.method = kTernGradId,
          .log2_block = parse_block(spec),
          .rate = kRate,
          .param = static_cast<uint32_t>(spec.number("clip", 0, 0, 64) * kOneBit + 0.5)};
}

std::unique_ptr<SegmentCodec> make(const WireParams& params) {
  check_fields("terngrad", params, {.min_rate = kRate, .max_rate = kRate, .max_param = kMaxClip});
  return std::make_unique<TernGradCodec>(params);
}

}  // namespace

MethodEntry terngrad_entry() {
  return {{kTernGradId,
           "terngrad",
           "1.6",
           "exactly (not with clip=)",
           "none for any input",
           "TernGrad, Wen et al., NeurIPS 2017",
           {kBlockKey, {"clip", "0..64, in standard deviations; 0: none", "0"}}},
          parse,
          make,
          [](const WireParams&, uint64_t) { return std::numeric_limits<double>::quiet_NaN(); }};
}

}  // namespace kpd::gradient
