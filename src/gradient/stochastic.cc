// gradient: sq and hadamard-sq, stochastic quantization without and with a rotation before it (stochastic.h; Suresh et al.,
// ICML 2017).
//
// Below one bit a coordinate exactly k of n values are coded and the receiver multiplies them by n/k: for sq a random subset of
// the coordinates, for hadamard-sq a random window of the rotated ones. Both sides derive the choice; nothing of it is sent.
#include "gradient/stochastic.h"

#include <algorithm>
#include <numbers>

#include "gradient/block_rotation.h"
#include "gradient/baselines.h"
#include "kernels/sums.h"
#include "kpd/base/exact_math.h"

namespace kpd::gradient {
namespace baselines {
namespace {

// codes[i] for z[i] with `steps` steps between lo and hi; words[i] are the random words.
void quantize(const float* z, size_t n, float lo, float hi, uint32_t steps, const uint32_t* words, uint16_t* codes) {
  const float top = static_cast<float>(steps);
  const float per_value = hi > lo ? top / (hi - lo) : 0.0f;
  for (size_t i = 0; i < n; ++i) {
    float u = (z[i] - lo) * per_value;
    u = u > 0.0f ? u : 0.0f;
    u = u < top ? u : top;
    const int32_t floor = static_cast<int32_t>(u);
    codes[i] = static_cast<uint16_t>(round_stochastically(floor, u - static_cast<float>(floor), words[i]));
  }
}

void dequantize(const uint16_t* codes, size_t n, float lo, float hi, uint32_t steps, float* z) {
  const float step = (hi - lo) / static_cast<float>(steps);
  for (size_t i = 0; i < n; ++i) z[i] = lo + static_cast<float>(static_cast<int32_t>(codes[i])) * step;
}

void dequantize(const RatePlan& plan, std::span<const uint16_t> codes, float lo, float hi, std::span<float> z) {
  dequantize(codes.data(), plan.fine, lo, hi, (2u << plan.bits) - 1, z.data());
  dequantize(codes.data() + plan.fine, plan.coded - plan.fine, lo, hi, (1u << plan.bits) - 1, z.data() + plan.fine);
}

}  // namespace

RatePlan rate_plan(uint32_t rate, uint32_t n, uint32_t values) {
  const uint64_t total = std::max<uint64_t>(1, (uint64_t{rate} * n + kOneBit / 2) / kOneBit);
  if (total < values) return {static_cast<uint32_t>(total), 0, 1};
  return {values, static_cast<uint32_t>(total % values), static_cast<unsigned>(total / values)};
}

void sq_write(std::span<float> z, const RatePlan& plan, double unit, const BlockKey& key, uint8_t* floats, uint8_t* bits,
              Scratch& scratch) {
  const Range range = range_of(z);
  const float sent_lo = saturate(range.lo * unit), sent_hi = saturate(range.hi * unit);
  write_float(floats, sent_lo);
  write_float(floats + 4, sent_hi);
  // What the receiver will see, in our unit: differs from the range only for denormal or saturated ends.
  const float lo = static_cast<float>(sent_lo / unit), hi = static_cast<float>(sent_hi / unit);

  const std::span<uint16_t> codes = grown(scratch.symbols, plan.coded);
  uint32_t words[kChunk];
  for (uint32_t first = 0; first < plan.coded; first += kChunk) {
    random_chunk(key, Purpose::kStochastic, first, words);
    const uint32_t count = std::min(kChunk, plan.coded - first);
    const uint32_t fine = plan.fine > first ? std::min(plan.fine - first, count) : 0;
    quantize(z.data() + first, fine, lo, hi, (2u << plan.bits) - 1, words, codes.data() + first);
    quantize(z.data() + first + fine, count - fine, lo, hi, (1u << plan.bits) - 1, words + fine, codes.data() + first + fine);
  }
  BitPacker packer(bits);
  for (uint32_t i = 0; i < plan.fine; ++i) packer.put(codes[i], plan.bits + 1);
  for (uint32_t i = plan.fine; i < plan.coded; ++i) packer.put(codes[i], plan.bits);
  packer.finish();
  dequantize(plan, codes, lo, hi, z);
}

double sq_read(std::span<const uint8_t> src, uint64_t floats_offset, uint64_t bits_offset, const RatePlan& plan,
               std::span<float> z, Scratch& scratch) {
  const float sent_lo = read_finite(src, floats_offset, "the smallest value");
  const float sent_hi = read_finite(src, floats_offset + 4, "the largest value");
  if (sent_lo > sent_hi) corrupt_at(floats_offset, "the smallest value exceeds the largest");
  const double unit = power_of_two(exponent_of(-sent_lo > sent_hi ? sent_lo : sent_hi));
  check_padding(src, bits_offset, plan.total_bits());

  const std::span<uint16_t> codes = grown(scratch.symbols, plan.coded);
  BitUnpacker unpacker(src.subspan(bits_offset, (plan.total_bits() + 7) / 8));
  for (uint32_t i = 0; i < plan.fine; ++i) codes[i] = static_cast<uint16_t>(unpacker.get(plan.bits + 1));
  for (uint32_t i = plan.fine; i < plan.coded; ++i) codes[i] = static_cast<uint16_t>(unpacker.get(plan.bits));
  dequantize(plan, codes, static_cast<float>(sent_lo / unit), static_cast<float>(sent_hi / unit), z);
  return unit;
}

double sq_limit(uint32_t rate, uint32_t n, double base) {
  const RatePlan plan = rate_plan(rate, n, n);
  if (plan.coded < n) return (1 + base) * n / plan.coded - 1;
  const double fine = static_cast<double>(plan.fine) / n;
  const double coarse_steps = static_cast<double>((1u << plan.bits) - 1),
               fine_steps = static_cast<double>((2u << plan.bits) - 1);
  return (1 - fine) * base / (coarse_steps * coarse_steps) + fine * base / (fine_steps * fine_steps);
}

}  // namespace baselines

namespace {

using namespace baselines;

// A segment is lo and hi of every block as floats, then the codes block by block, each block's padded to a byte; a block whose
// lo and hi are 0 has none.
class SqCodec final : public SegmentCodec {
 public:
  explicit SqCodec(const WireParams& params) : params_(params), rotates_(params.method == kHadamardSqId) {}
  bool fixed_size() const override { return true; }
  uint64_t segment_bytes(const SegmentShape& shape) const override {
    uint64_t bytes = uint64_t{8} * shape.n_blocks;
    for (uint32_t i = 0; i < shape.n_blocks; ++i) bytes += (plan_of(shape.block_length(i)).total_bits() + 7) / 8;
    return bytes;
  }
  uint64_t head_bytes(const SegmentShape& shape) const override { return uint64_t{8} * shape.n_blocks; }
  uint64_t length_from_head(std::span<const uint8_t> head, const SegmentShape& shape) const override {
    return bytes_from_head(head, shape, 2, [&](uint32_t n) { return (plan_of(n).total_bits() + 7) / 8; });
  }

  uint64_t encode(std::span<const float> x, const SegmentShape& shape, const TensorKeys& keys, std::span<uint8_t> dst,
                  Scratch& scratch, SegmentStats& stats) const override {
    uint8_t* bits = dst.data() + size_t{8} * shape.n_blocks;
    for (uint32_t i = 0; i < shape.n_blocks; ++i) {
      const uint32_t n = shape.block_length(i);
      const std::span<const float> block = x.subspan(shape.block_offset(i), n);
      const RatePlan plan = plan_of(n);
      const kernels::Magnitude magnitude = kernels::magnitude(block.data(), n);
      uint8_t* const floats = dst.data() + size_t{8} * i;
      if (magnitude.max_abs_bits == 0) {
        std::fill_n(floats, 8, uint8_t{0});
        continue;
      }
      const int e = exponent_of(magnitude.max_abs_bits);
      const double unit = power_of_two(e);
      const std::span<float> y = grown(scratch.rotated, n);
      emit(block, power_of_two(-e), 1, false, y.data());
      if (rotates_) BlockRotation(n, params_.rounds, rotation_key(keys, shape, i), scratch.signs).forward(y);
      const double norm2 = sum_squares(y);
      const BlockKey own = own_key(keys, shape, i);
      const std::span<float> z = grown(scratch.extra, size_t{2} * plan.coded).subspan(0, plan.coded);
      const std::span<float> kept = scratch.extra.values().subspan(plan.coded, plan.coded);
      gather(y, plan, own, z, scratch);
      std::copy(z.begin(), z.end(), kept.begin());
      sq_write(z, plan, unit, own, floats, bits, scratch);
      const float factor = sampling_factor(n, plan);
      for (float& v : z) v *= factor;
      // What was not kept is decoded as zero. A rotation keeps lengths, so the error may be taken before it is undone.
      const double lost = plan.coded < n ? norm2 - sum_squares(kept) : 0;
      stats.error2 += ((lost > 0 ? lost : 0) + sum_squared_differences(z, kept)) * unit * unit;
      stats.norm2 += magnitude.sum_squares;
      if (!all_zero(floats, 2)) bits += (plan.total_bits() + 7) / 8;
    }
    return static_cast<uint64_t>(bits - dst.data());
  }

  uint64_t decode(std::span<const uint8_t> src, const SegmentShape& shape, const TensorKeys& keys, float weight,
                  bool accumulate, std::span<float> dst, Scratch& scratch) const override {
    check_segment_size(src, *this, shape);
    uint64_t offset = uint64_t{8} * shape.n_blocks;
    uint64_t saturated = 0;
    for (uint32_t i = 0; i < shape.n_blocks; ++i) {
      const uint32_t n = shape.block_length(i);
      const RatePlan plan = plan_of(n);
      if (all_zero(src.data() + size_t{8} * i, 2)) {
        if (!accumulate) std::fill_n(dst.data() + shape.block_offset(i), n, 0.0f);
        continue;
      }
      const std::span<float> y = grown(scratch.rotated, n);
      const std::span<float> z = plan.coded < n ? grown(scratch.extra, plan.coded) : y;
      const double unit = sq_read(src, uint64_t{8} * i, offset, plan, z, scratch);
      if (plan.coded < n) scatter(z, plan, own_key(keys, shape, i), y, scratch);
      if (rotates_) BlockRotation(n, params_.rounds, rotation_key(keys, shape, i), scratch.signs).inverse(y);
      saturated += emit(y, unit, weight, accumulate, dst.data() + shape.block_offset(i));
      offset += (plan.total_bits() + 7) / 8;
    }
    return saturated;
  }

 private:
  RatePlan plan_of(uint32_t n) const { return rate_plan(params_.rate, n, n); }
  static float sampling_factor(uint32_t n, const RatePlan& plan) {
    return static_cast<float>(static_cast<double>(n) / static_cast<double>(plan.coded));
  }

  // z = the coded values of y.
  void gather(std::span<const float> y, const RatePlan& plan, const BlockKey& own, std::span<float> z, Scratch& scratch) const {
    const uint32_t n = static_cast<uint32_t>(y.size());
    if (plan.coded == n) {
      std::copy(y.begin(), y.end(), z.begin());
    } else if (rotates_) {
      const uint32_t start = window_start(own, n), head = std::min(n - start, plan.coded);
      std::copy_n(y.begin() + start, head, z.begin());
      std::copy_n(y.begin(), plan.coded - head, z.begin() + head);
    } else {
      choose_subset(own, n, plan.coded, scratch.symbols);
      for (uint32_t i = 0; i < plan.coded; ++i) z[i] = y[scratch.symbols[i]];
    }
  }

  // y = z times n / coded where a value was coded, else 0.
  void scatter(std::span<const float> z, const RatePlan& plan, const BlockKey& own, std::span<float> y,
               Scratch& scratch) const {
    const uint32_t n = static_cast<uint32_t>(y.size());
    const float factor = sampling_factor(n, plan);
    std::fill(y.begin(), y.end(), 0.0f);
    if (rotates_) {
      const uint32_t start = window_start(own, n), head = std::min(n - start, plan.coded);
      for (uint32_t i = 0; i < head; ++i) y[start + i] = z[i] * factor;
      for (uint32_t i = head; i < plan.coded; ++i) y[i - head] = z[i] * factor;
    } else {
      choose_subset(own, n, plan.coded, scratch.symbols);
      for (uint32_t i = 0; i < plan.coded; ++i) y[scratch.symbols[i]] = z[i] * factor;
    }
  }

  WireParams params_;
  bool rotates_;
};

WireParams parse_sq(const Spec& spec) {
  return {.method = kSqId, .log2_block = parse_block(spec), .rate = parse_bits(spec, 1, kMinBits, kMaxBits)};
}

WireParams parse_hadamard_sq(const Spec& spec) {
  WireParams params = parse_sq(spec);
  params.method = kHadamardSqId;
  params.rounds = parse_rounds(spec);
  return params;
}

std::unique_ptr<SegmentCodec> make_sq(const WireParams& params) {
  const bool rotates = params.method == kHadamardSqId;
  check_fields(rotates ? "hadamard-sq" : "sq", params, {.rotates = rotates, .min_rate = 1, .max_rate = kMaxBits * kOneBit});
  return std::make_unique<SqCodec>(params);
}

}  // namespace

MethodEntry sq_entry() {
  return {{kSqId,
           "sq",
           "0.05..8",
           "exactly",
           "block/(2 (2^bits-1)^2), the worst input",
           "Suresh et al., ICML 2017",
           {kBitsKey, kBlockKey}},
          parse_sq,
          make_sq,
          // (hi - lo)^2 <= 2 |x|^2 and a step's variance is at most its square / 4.
          [](const WireParams& params, uint64_t count) {
            const uint32_t n = longest_block(params, count);
            return sq_limit(params.rate, n, 0.5 * n);
          },
          kRatesPerBit,
          kMaxBits};
}

MethodEntry hadamard_sq_entry() {
  return {{kHadamardSqId,
           "hadamard-sq",
           "0.05..8",
           "exactly",
           "(2 ln(block)+2)/(2^bits-1)^2",
           "Suresh et al., ICML 2017",
           {kBitsKey, kBlockKey, kRoundsKey}},
          parse_hadamard_sq,
          make_sq,
          [](const WireParams& params, uint64_t count) {
            const uint32_t n = longest_block(params, count);
            return sq_limit(params.rate, n, 2 * std::numbers::ln2 * exact_log2(n) + 2);
          },
          kRatesPerBit,
          kMaxBits};
}

}  // namespace kpd::gradient
