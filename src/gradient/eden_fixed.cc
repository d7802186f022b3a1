// gradient: EDEN with fixed-length codes: Lloyd-Max levels, fractional and sub-bit rates by exact counts.
//
// A segment is the scale words of its blocks, then (kFlagAllocate) a rate byte a block, then the bit planes of every block
// (docs/format/gradient.md, section "eden, code=fixed").
#include <algorithm>
#include <cmath>
#include <cstring>

#include "gradient/eden.h"
#include "gradient/eden_slices.h"
#include "kernels/sums.h"
#include "kpd/base/bytes.h"
#include "kpd/quant/lloyd_max.h"

namespace kpd::gradient {
namespace {

using kernels::QuantizeTable;

// Levels and thresholds of one number of bits, in units of one standard deviation.
struct LevelTable {
  std::vector<float> levels;
  std::vector<double> thresholds;
  std::vector<uint8_t> bucket_start;
};
inline constexpr double kBucketsPerSigma = 64.0;

uint8_t levels_below(const std::vector<double>& thresholds, double edge) {
  return static_cast<uint8_t>(std::upper_bound(thresholds.begin(), thresholds.end(), edge) - thresholds.begin());
}

LevelTable make_level_table(int bits, bool unit) {
  const quant::LloydMax& lm = quant::lloyd_max(bits);
  LevelTable t;
  t.levels = unit ? std::vector<float>{1.0f} : lm.float_levels;
  t.thresholds.assign(lm.float_thresholds.begin(), lm.float_thresholds.end());
  if (bits > 4) {
    // A start that is never too high: the thresholds surely passed at the bucket's lower edge, less a margin for rounding.
    t.bucket_start.resize(kernels::kBucketCount);
    for (size_t b = 0; b < kernels::kBucketCount; ++b) {
      const double edge = static_cast<double>(b) / kBucketsPerSigma * (1 - 1e-5);
      t.bucket_start[b] = levels_below(t.thresholds, edge);
      const double next = b + 1 < kernels::kBucketCount ? static_cast<double>(b + 1) / kBucketsPerSigma * (1 + 1e-5) : HUGE_VAL;
      if (levels_below(t.thresholds, next) - t.bucket_start[b] > static_cast<int>(kernels::kMaxSteps)) {
        fail(ErrorCode::kInternal, "eden: bucket ", b, " of the ", bits, "-bit levels is too wide");
      }
    }
  }
  return t;
}

class EdenFixed final : public SegmentCodec {
 public:
  explicit EdenFixed(const WireParams& p) : params_(p) {
    const int lowest = allocates() ? 1 : std::max<int>(1, static_cast<int>(p.rate >> 16));
    const int highest = allocates() ? 8 : std::min(8, lowest + 1);
    for (int bits = lowest; bits <= highest; ++bits) tables_[bits] = make_level_table(bits, false);
    // Where every coded coordinate has one bit the level is 1 and the scale absorbs it.
    unit_ = make_level_table(1, true);
    slice_code_.rate = p.rate;
  }

  bool fixed_size() const override { return !allocates(); }
  bool detects_nonfinite() const override { return true; }

  uint64_t segment_bytes(const SegmentShape& shape) const override {
    uint64_t bytes = uint64_t{shape.n_blocks} * (allocates() ? 5 : 4);
    for (uint32_t b = 0; b < shape.n_blocks; ++b) {
      const uint32_t length = shape.block_length(b);
      bytes += allocates() ? uint64_t{8} * kernels::plane_bytes(length) + 8 : eden_plan(length, params_.rate).bytes;
    }
    return bytes;
  }

  uint64_t head_bytes(const SegmentShape& shape) const override { return allocates() ? 0 : uint64_t{shape.n_blocks} * 4; }
  uint64_t length_from_head(std::span<const uint8_t> head, const SegmentShape& shape) const override {
    uint64_t bytes = head.size();
    for (uint32_t b = 0; b < shape.n_blocks; ++b) {
      if (load_u32(head.data() + size_t{4} * b) != 0) bytes += eden_plan(shape.block_length(b), params_.rate).bytes;
    }
    return bytes;
  }

  uint64_t encode(std::span<const float> x, const SegmentShape& shape, const TensorKeys& keys, std::span<uint8_t> dst,
                  Scratch& scratch, SegmentStats& stats) const override {
    uint64_t at = uint64_t{shape.n_blocks} * (allocates() ? 5 : 4);
    for (uint32_t b = 0; b < shape.n_blocks; ++b) {
      uint32_t rate = params_.rate;
      if (allocates()) {
        const uint8_t units = shape.block_rates != nullptr ? shape.block_rates[b] : default_units();
        dst[uint64_t{shape.n_blocks} * 4 + b] = units;
        rate = rate_of_units(units);
      }
      const EdenPlan plan = eden_plan(shape.block_length(b), rate);
      prefetch_block(x.data(), shape, b + 1);
      if (at + plan.bytes > dst.size()) fail(ErrorCode::kInternal, "eden: segment buffer too small");
      const uint32_t word = encode_block(x.subspan(shape.block_offset(b), plan.length), plan, rate, shape, b, keys,
                                         dst.subspan(at, plan.bytes), scratch, stats);
      store_u32(dst.data() + 4 * b, word);
      at += word == 0 ? 0 : plan.bytes;  // a block of zeros has no planes
    }
    return at;
  }

  uint64_t decode(std::span<const uint8_t> src, const SegmentShape& shape, const TensorKeys& keys, float weight,
                  bool accumulate, std::span<float> dst, Scratch& scratch) const override {
    uint64_t saturated = 0;
    for_each_block(src, shape, [&](uint32_t b, const EdenPlan& plan, uint32_t rate, uint32_t word, int rounds, auto codes) {
      prefetch_block(dst.data(), shape, b + 1);
      saturated += decode_block(codes, plan, rate, word, rounds, shape, b, keys, weight, accumulate,
                                dst.subspan(shape.block_offset(b), plan.length), scratch);
    });
    return saturated;
  }

  double decoded_norm2(std::span<const uint8_t> src, const SegmentShape& shape, const TensorKeys&,
                       Scratch& scratch) const override {
    double sum = 0;
    for_each_block(src, shape, [&](uint32_t, const EdenPlan& plan, uint32_t rate, uint32_t word, int, auto codes) {
      if (word == 0) return;
      const double scale = scale_of_word(word);
      sum += scale * scale * code_norm2(codes, plan, rate, scratch);
    });
    return sum;
  }

  const SliceCode* slice_code() const override { return allocates() ? nullptr : &slice_code_; }

 private:
  bool allocates() const { return (params_.flags & kFlagAllocate) != 0; }
  uint8_t default_units() const {
    return static_cast<uint8_t>(std::clamp<uint64_t>((uint64_t{params_.rate} * 20 + 32768) >> 16, 1, kAllocationRates));
  }

  uint32_t block_rate(std::span<const uint8_t> src, const SegmentShape& shape, uint32_t b) const {
    if (!allocates()) return params_.rate;
    const uint64_t at = uint64_t{shape.n_blocks} * 4 + b;
    const uint8_t units = src[at];
    if (units < 1 || units > kAllocationRates) {
      fail(ErrorCode::kCorruptData, "byte ", at, ": rate of block ", b, " is ", units, ", expected 1 to ", kAllocationRates);
    }
    return rate_of_units(units);
  }

  // Calls fn(block, plan, rate, scale word, rounds, codes) for every block of a segment, whose bytes it checks.
  template <class Fn>
  void for_each_block(std::span<const uint8_t> src, const SegmentShape& shape, const Fn& fn) const {
    const uint64_t head = uint64_t{shape.n_blocks} * (allocates() ? 5 : 4);
    if (src.size() < head)
      fail(ErrorCode::kCorruptData, "byte 0: eden segment of ", src.size(), " bytes, expected at least ", head);
    uint64_t at = head;
    for (uint32_t b = 0; b < shape.n_blocks; ++b) {
      const uint32_t word = load_u32(src.data() + 4 * b);
      const int rounds = rounds_of_word(params_, word, uint64_t{4} * b);
      const uint32_t rate = block_rate(src, shape, b);
      const EdenPlan plan = eden_plan(shape.block_length(b), rate);
      const uint64_t bytes = word == 0 ? 0 : plan.bytes;
      if (src.size() - at < bytes) {
        fail(ErrorCode::kCorruptData, "byte ", at, ": block ", b, " needs ", bytes, " bytes, ", src.size() - at, " are left");
      }
      fn(b, plan, rate, word, rounds, src.subspan(at, bytes));
      at += bytes;
    }
    if (at != src.size())
      fail(ErrorCode::kCorruptData, "byte ", at, ": ", src.size() - at, " bytes too many in an eden segment");
  }

  // Sum of the squared levels of a block's codes.
  double code_norm2(std::span<const uint8_t> codes, const EdenPlan& plan, uint32_t rate, Scratch& scratch) const {
    if (scratch.rotated.size() < plan.length) scratch.rotated.resize(plan.length);
    float* const y = scratch.rotated.data();
    double sum = 0;
    uint64_t at = 0;
    for (int i = 0; i < plan.n_parts; ++i) {
      const EdenPlan::Part part = plan.parts[i];
      const std::vector<float>& levels = table(rate, part.bits).levels;
      if (part.bits == 1) {
        sum += static_cast<double>(part.n) * levels[0] * levels[0];
      } else {
        kernels::dequantize_planes(codes.data() + at, part.n, part.bits, levels.data(), y);
        sum += kernels::dot(y, y, part.n);
      }
      at += static_cast<uint64_t>(part.bits) * kernels::plane_bytes(part.n);
    }
    return sum;
  }

  const LevelTable& table(uint32_t rate, int bits) const { return rate <= kOneBit ? unit_ : tables_[bits]; }

  uint32_t encode_block(std::span<const float> x, const EdenPlan& plan, uint32_t rate, const SegmentShape& shape, uint32_t b,
                        const TensorKeys& keys, std::span<uint8_t> dst, Scratch& scratch, SegmentStats& stats) const {
    const kernels::Magnitude mag = kernels::magnitude(x.data(), x.size());
    if (mag.max_abs_bits >= 0x7f800000u) throw_nonfinite(x, shape.block_offset(b));
    if (mag.max_abs_bits == 0) return 0;
    if (scratch.rotated.size() < x.size()) scratch.rotated.resize(x.size());
    if (scratch.extra.size() < x.size()) scratch.extra.resize(x.size());
    const BlockKey signs{keys.rotation, shape.first_block + b}, own{keys.own, shape.first_block + b};
    const bool three_rounds = block_takes_three_rounds(params_, mag);
    const std::span<float> y(scratch.rotated.data(), x.size());
    const double u = rotate_block(x, mag.max_abs_bits, three_rounds ? 3 : params_.rounds, signs, scratch, y.data());
    BlockSums sums;
    sums.x2 = mag.sum_squares;
    if (quantize(y, plan, rate, u, own, scratch, dst, sums)) {
      randomize_zeros(y, own);
      quantize(y, plan, rate, u, own, scratch, dst, sums);
    }
    const uint32_t word = make_scale_word(block_scale(params_.scale, sums), three_rounds);
    stats.norm2 += sums.x2;
    stats.error2 += block_error(scale_of_word(word), sums);
    return word;
  }

  // Codes of a rotated block; true if a coded coordinate is exactly zero, so that ties must be broken first.
  bool quantize(std::span<const float> y, const EdenPlan& plan, uint32_t rate, double u, const BlockKey& own, Scratch& scratch,
                std::span<uint8_t> dst, BlockSums& sums) const {
    const float* coded = y.data();
    sums.kept2 = sums.x2;
    if (plan.kept < plan.length) {
      const uint32_t start = window_start(own, plan.length);
      const uint32_t first = std::min(plan.kept, plan.length - start);
      std::copy_n(y.data() + start, first, scratch.extra.data());
      std::copy_n(y.data(), plan.kept - first, scratch.extra.data() + first);
      coded = scratch.extra.data();
      sums.kept2 = kernels::magnitude(coded, plan.kept).sum_squares / (u * u);
      sums.inverse_share = static_cast<double>(plan.length) / plan.kept;
    }
    const double sigma = u * std::sqrt(sums.x2 / static_cast<double>(plan.length));
    sums.dot = sums.q2 = 0;
    bool has_zero = false;
    uint64_t at = 0;
    for (int i = 0; i < plan.n_parts; ++i) {
      const EdenPlan::Part part = plan.parts[i];
      const LevelTable& t = table(rate, part.bits);
      float thresholds[128];
      for (size_t k = 0; k < t.thresholds.size(); ++k) thresholds[k] = static_cast<float>(t.thresholds[k] * sigma);
      QuantizeTable q{part.bits, thresholds, t.levels.data(), t.bucket_start.empty() ? nullptr : t.bucket_start.data(),
                      static_cast<float>(kBucketsPerSigma / sigma)};
      const kernels::QuantizeSums part_sums = kernels::quantize_planes(coded, part.n, q, dst.data() + at);
      sums.dot += part_sums.dot;
      sums.q2 += part_sums.q2;
      has_zero |= part_sums.has_zero;
      coded += part.n;
      at += static_cast<uint64_t>(part.bits) * kernels::plane_bytes(part.n);
    }
    sums.dot /= u;
    return has_zero;
  }

  uint64_t decode_block(std::span<const uint8_t> src, const EdenPlan& plan, uint32_t rate, uint32_t word, int rounds,
                        const SegmentShape& shape, uint32_t b, const TensorKeys& keys, float weight, bool accumulate,
                        std::span<float> dst, Scratch& scratch) const {
    if (word == 0) {
      if (!accumulate) std::fill(dst.begin(), dst.end(), 0.0f);
      return 0;
    }
    if (scratch.rotated.size() < plan.length) scratch.rotated.resize(plan.length);
    std::span<float> y(scratch.rotated.data(), plan.length);
    float* coded = y.data();
    if (plan.kept < plan.length) {
      if (scratch.extra.size() < plan.length) scratch.extra.resize(plan.length);
      coded = scratch.extra.data();
    }
    uint64_t at = 0, first = 0;
    double max_level = 0;
    for (int i = 0; i < plan.n_parts; ++i) {
      const EdenPlan::Part part = plan.parts[i];
      const std::vector<float>& levels = table(rate, part.bits).levels;
      kernels::dequantize_planes(src.data() + at, part.n, part.bits, levels.data(), coded + first);
      max_level = std::max<double>(max_level, levels.back());
      first += part.n;
      at += static_cast<uint64_t>(part.bits) * kernels::plane_bytes(part.n);
    }
    double scale = scale_of_word(word);
    if (shape.received != nullptr) {
      clear_missing(*shape.received, b, std::span(coded, plan.kept));
      scale *= shape.received->scale;
    }
    if (plan.kept < plan.length) {
      const uint32_t start = window_start({keys.own, shape.first_block + b}, plan.length);
      const uint32_t head = std::min(plan.kept, plan.length - start);
      std::fill(y.begin(), y.end(), 0.0f);
      std::copy_n(coded, head, y.data() + start);
      std::copy_n(coded + head, plan.kept - head, y.data());
    }
    const BlockKey signs{keys.rotation, shape.first_block + b};
    return unrotate_block(y, rounds, signs, scale, max_level, weight, accumulate, dst.data(), scratch);
  }

  WireParams params_;
  LevelTable tables_[kernels::kMaxPlaneBits + 1];
  LevelTable unit_;
  SliceCode slice_code_;
};

}  // namespace

std::unique_ptr<SegmentCodec> make_eden_fixed(const WireParams& params) { return std::make_unique<EdenFixed>(params); }

}  // namespace kpd::gradient
