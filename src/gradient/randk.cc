// gradient: random sparsification, "rand-k" (Konecny and Richtarik, "Randomized Distributed Mean Estimation: Accuracy vs.
// Communication", Frontiers in Applied Mathematics and Statistics, 2018).
//
// Exactly k = round(p n) elements of a block travel as float32, a random subset that both sides derive, and the receiver
// multiplies them by n/k; p = bits / 32. Exactly unbiased; the error is n/k - 1 for every input, on average over the subsets.
#include <algorithm>
#include <bit>

#include "gradient/baseline_tools.h"
#include "gradient/baselines.h"
#include "kernels/sums.h"

namespace kpd::gradient {
namespace {

using namespace baselines;

constexpr uint32_t kFloatBits = 32;
constexpr double kMinBits = 0.05;

uint32_t kept_of(uint32_t rate, uint32_t n) {
  constexpr uint64_t kWhole = uint64_t{kFloatBits} * kOneBit;
  return static_cast<uint32_t>(std::max<uint64_t>(1, (uint64_t{rate} * n + kWhole / 2) / kWhole));
}

double limit(const WireParams& params, uint64_t count) {
  if (count == 0) return static_cast<double>(kFloatBits) * kOneBit / params.rate - 1;
  const uint32_t n = usual_block(params, count);
  return static_cast<double>(n) / kept_of(params.rate, n) - 1;
}

// -0: a block whose kept elements are all 0, of which no more follow.
constexpr uint32_t kNoElements = 0x80000000u;

// A segment is the first kept element of every block, or kNoElements, then the others, block by block, in rising order of their
// index. An element that is -0 travels as 0.
class RandKCodec final : public SegmentCodec {
 public:
  explicit RandKCodec(const WireParams& params) : rate_(params.rate) {}
  bool fixed_size() const override { return true; }
  uint64_t segment_bytes(const SegmentShape& shape) const override {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < shape.n_blocks; ++i) bytes += uint64_t{4} * kept(shape.block_length(i));
    return bytes;
  }
  uint64_t head_bytes(const SegmentShape& shape) const override { return uint64_t{4} * shape.n_blocks; }
  uint64_t length_from_head(std::span<const uint8_t> head, const SegmentShape& shape) const override {
    uint64_t bytes = head.size();
    for (uint32_t i = 0; i < shape.n_blocks; ++i) {
      if (load_u32(head.data() + size_t{4} * i) != kNoElements) bytes += uint64_t{4} * (kept(shape.block_length(i)) - 1);
    }
    return bytes;
  }

  uint64_t encode(std::span<const float> x, const SegmentShape& shape, const TensorKeys& keys, std::span<uint8_t> dst,
                  Scratch& scratch, SegmentStats& stats) const override {
    uint8_t* out = dst.data() + head_bytes(shape);
    for (uint32_t i = 0; i < shape.n_blocks; ++i) {
      const uint32_t n = shape.block_length(i), k = kept(n);
      const std::span<const float> block = x.subspan(shape.block_offset(i), n);
      choose_subset(own_key(keys, shape, i), n, k, scratch.symbols);
      const std::span<float> z = grown(scratch.values, k), decoded = grown(scratch.extra, k);
      for (uint32_t j = 0; j < k; ++j) {
        z[j] = block[scratch.symbols[j]] + 0.0f;
        if (j > 0) write_float(out + size_t{4} * (j - 1), z[j]);
      }
      const bool none = std::all_of(z.begin(), z.end(), [](float v) { return v == 0; });
      store_u32(dst.data() + size_t{4} * i, none ? kNoElements : std::bit_cast<uint32_t>(z[0]));
      emit(z, factor(n, k), 1, false, decoded.data());
      const double norm2 = kernels::magnitude(block.data(), n).sum_squares;
      const double lost = k < n ? norm2 - sum_squares(z) : 0;
      stats.error2 += (lost > 0 ? lost : 0) + sum_squared_differences(decoded, z);
      stats.norm2 += norm2;
      if (!none) out += size_t{4} * (k - 1);
    }
    return static_cast<uint64_t>(out - dst.data());
  }

  uint64_t decode(std::span<const uint8_t> src, const SegmentShape& shape, const TensorKeys& keys, float weight,
                  bool accumulate, std::span<float> dst, Scratch& scratch) const override {
    check_segment_size(src, *this, shape);
    uint64_t offset = head_bytes(shape), saturated = 0;
    for (uint32_t i = 0; i < shape.n_blocks; ++i) {
      const uint32_t n = shape.block_length(i), k = kept(n);
      const uint64_t first = uint64_t{4} * i;
      if (load_u32(src.data() + first) == kNoElements) {
        if (!accumulate) std::fill_n(dst.data() + shape.block_offset(i), n, 0.0f);
        continue;
      }
      choose_subset(own_key(keys, shape, i), n, k, scratch.symbols);
      const std::span<float> y = grown(scratch.values, n);
      std::fill(y.begin(), y.end(), 0.0f);
      y[scratch.symbols[0]] = read_finite(src, first, "the element");
      for (uint32_t j = 1; j < k; ++j, offset += 4) y[scratch.symbols[j]] = read_finite(src, offset, "the element");
      saturated += emit(y, factor(n, k), weight, accumulate, dst.data() + shape.block_offset(i));
    }
    return saturated;
  }

 private:
  uint32_t kept(uint32_t n) const { return kept_of(rate_, n); }
  static double factor(uint32_t n, uint32_t k) { return static_cast<double>(n) / static_cast<double>(k); }
  uint32_t rate_;
};

WireParams parse(const Spec& spec) {
  return {.method = kRandKId, .log2_block = parse_block(spec), .rate = parse_bits(spec, 1, kMinBits, kFloatBits)};
}

std::unique_ptr<SegmentCodec> make(const WireParams& params) {
  check_fields("randk", params, {.min_rate = 1, .max_rate = kFloatBits * kOneBit});
  return std::make_unique<RandKCodec>(params);
}

}  // namespace

MethodEntry randk_entry() {
  return {{kRandKId,
           "randk",
           "0.05..32",
           "exactly",
           "32/bits-1",
           "Konecny and Richtarik, 2018",
           {{"bits", "0.05..32", "1"}, kBlockKey}},
          parse,
          make,
          limit,
          kRatesPerBit,
          kFloatBits};
}

}  // namespace kpd::gradient
