// gradient: QSGD (Alistarh, Grubic, Li, Tomioka, Vojnovic, "QSGD: Communication-Efficient SGD via Gradient Quantization and
// Encoding", NeurIPS 2017, sections 3.1 and 3.2).
//
// An element x becomes |x|_2 sign(x) l / s with |x|_2 the norm of its bucket, s the number of levels and l one of the two whole
// numbers around s |x| / |x|_2, chosen so that the mean is right. Levels are Elias (omega) codes; a bucket is written element
// by element or, where that is shorter, as the nonzeros with their gaps. `bits=b` means s = 2^(b-1), the levels that b bits
// with a sign would hold; the wire has less.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "gradient/baseline_tools.h"
#include "gradient/baselines.h"
#include "gradient/qsgd_fixed.h"
#include "kernels/sums.h"
#include "kpd/coding/elias.h"

namespace kpd::gradient {
namespace {

using namespace baselines;

constexpr int kLog2Bucket = 9;  // 512, the paper's
constexpr uint32_t kMaxLevels = 1u << (kMaxBits - 1);

// The bits of a code word, the last one lowest.
struct Word {
  uint32_t bits = 0;
  int length = 0;
};

Word omega(uint32_t k) {
  uint8_t bytes[8] = {};
  coding::BitWriter writer(bytes);
  coding::put_elias_omega(writer, k);
  writer.finish();
  const int length = coding::elias_omega_bits(k);
  uint32_t first = 0;  // no level has a code of more than 32 bits
  for (int i = 0; i < 4; ++i) first = first << 8 | bytes[i];
  return {first >> (32 - length), length};
}

// A segment is the norm of every bucket as a float, then one bit string padded to a byte: for every bucket whose norm is not
// zero
//   0, then for each element omega(l + 1) and, if l > 0, a sign bit (1: negative); or
//   1, omega(nonzeros + 1), then for each nonzero omega(distance to the one before, the first counted from -1), sign, omega(l).
// With code=fixed the digits of the buckets follow the norms, each bucket's padded to a byte.
class QsgdCodec final : public SegmentCodec {
 public:
  explicit QsgdCodec(const WireParams& params)
      : levels_(params.param),
        fixed_bits_((params.flags & kFlagFixedCode) != 0 ? params.rate / kOneBit : 0),
        max_norm_((params.flags & kFlagMaxNorm) != 0) {
    for (uint32_t l = 0; l <= levels_; ++l) {
      element_[l] = omega(l + 1);
      if (l == 0) continue;
      level_[l] = omega(l);
      element_[l] = {element_[l].bits << 1, element_[l].length + 1};  // the sign, 0
    }
  }
  bool fixed_size() const override { return fixed_bits_ > 0; }
  uint64_t segment_bytes(const SegmentShape& shape) const override {
    if (fixed_bits_ > 0) {
      uint64_t bytes = uint64_t{4} * shape.n_blocks;
      for (uint32_t i = 0; i < shape.n_blocks; ++i) bytes += digit_bytes(shape.block_length(i));
      return bytes;
    }
    // The first form with all elements at the longest code; the second is taken only where it is shorter.
    return uint64_t{4} * shape.n_blocks +
           (shape.n_blocks + shape.elements * static_cast<uint64_t>(element_[levels_].length) + 7) / 8;
  }

  uint64_t head_bytes(const SegmentShape& shape) const override { return fixed_bits_ > 0 ? uint64_t{4} * shape.n_blocks : 0; }
  uint64_t length_from_head(std::span<const uint8_t> head, const SegmentShape& shape) const override {
    return bytes_from_head(head, shape, 1, [&](uint32_t n) { return digit_bytes(n); });
  }

  uint64_t encode(std::span<const float> x, const SegmentShape& shape, const TensorKeys& keys, std::span<uint8_t> dst,
                  Scratch& scratch, SegmentStats& stats) const override {
    const size_t bits_at = size_t{4} * shape.n_blocks;
    uint8_t* digits_at = dst.data() + bits_at;
    coding::BitWriter out(dst.subspan(bits_at));
    for (uint32_t i = 0; i < shape.n_blocks; ++i) {
      const uint32_t n = shape.block_length(i);
      const std::span<const float> block = x.subspan(shape.block_offset(i), n);
      const kernels::Magnitude magnitude = kernels::magnitude(block.data(), n);
      const float norm = max_norm_ ? std::bit_cast<float>(magnitude.max_abs_bits) : saturate(std::sqrt(magnitude.sum_squares));
      write_float(dst.data() + size_t{4} * i, norm);
      stats.norm2 += magnitude.sum_squares;
      if (norm == 0) continue;
      const std::span<uint16_t> codes = grown(scratch.symbols, n);
      quantize(block, norm, own_key(keys, shape, i), codes.data());
      stats.error2 += error_of(block, codes, norm, scratch);
      if (fixed_bits_ > 0) {
        write_digits(codes, digits_at, scratch);
        digits_at += digit_bytes(n);
      } else {
        write_bucket(codes, out);
      }
    }
    return fixed_bits_ > 0 ? static_cast<uint64_t>(digits_at - dst.data()) : bits_at + out.finish();
  }

  uint64_t decode(std::span<const uint8_t> src, const SegmentShape& shape, const TensorKeys&, float weight, bool accumulate,
                  std::span<float> dst, Scratch& scratch) const override {
    if (fixed_bits_ > 0) return decode_fixed(src, shape, weight, accumulate, dst, scratch);
    const uint64_t bits_at = uint64_t{4} * shape.n_blocks;
    if (src.size() < bits_at || src.size() > segment_bytes(shape)) {
      corrupt_at(src.size(), "the segment has ", src.size(), " bytes, expected ", bits_at, " to ", segment_bytes(shape));
    }
    coding::BitReader in(src.subspan(bits_at), bits_at);
    for (uint32_t i = 0; i < shape.n_blocks; ++i) {
      const float norm = read_norm(src, i);
      const std::span<float> y = grown(scratch.values, shape.block_length(i));
      if (norm == 0) {
        std::fill(y.begin(), y.end(), 0.0f);
      } else if (in.get(1) == 0) {
        read_elements(in, y);
      } else {
        read_nonzeros(in, y);
      }
      emit(y, step(norm), weight, accumulate, dst.data() + shape.block_offset(i));
    }
    in.finish();
    return 0;
  }

 private:
  static constexpr uint16_t kNegative = 0x8000;  // a code is the level, plus this

  uint64_t digit_bytes(uint32_t n) const { return (digit_bits(fixed_bits_, n) + 7) / 8; }
  static float read_norm(std::span<const uint8_t> src, uint32_t i) {
    const float norm = read_finite(src, uint64_t{4} * i, "the norm");
    if (norm < 0) corrupt_at(uint64_t{4} * i, "the norm is negative, expected 0 or more");
    return norm;
  }
  double step(float norm) const { return static_cast<double>(norm) / static_cast<double>(levels_); }
  static float signed_level(uint16_t code) {
    const float level = static_cast<float>(code & (kNegative - 1));
    return (code & kNegative) != 0 ? -level : level;
  }

  double error_of(std::span<const float> x, std::span<const uint16_t> codes, float norm, Scratch& scratch) const {
    const std::span<float> y = grown(scratch.values, x.size()), decoded = grown(scratch.extra, x.size());
    for (size_t k = 0; k < x.size(); ++k) y[k] = signed_level(codes[k]);
    emit(y, step(norm), 1, false, decoded.data());
    return sum_squared_differences(decoded, x);
  }

  void write_digits(std::span<const uint16_t> codes, uint8_t* dst, Scratch& scratch) const {
    const std::span<uint8_t> digits = grown(scratch.bytes, codes.size());
    for (size_t k = 0; k < codes.size(); ++k) {
      digits[k] = static_cast<uint8_t>((codes[k] & kNegative) != 0 ? codes[k] - kNegative + levels_ : codes[k]);
    }
    pack_digits(fixed_bits_, digits, dst);
  }
  uint64_t decode_fixed(std::span<const uint8_t> src, const SegmentShape& shape, float weight, bool accumulate,
                        std::span<float> dst, Scratch& scratch) const {
    check_segment_size(src, *this, shape);
    uint64_t offset = uint64_t{4} * shape.n_blocks;
    for (uint32_t i = 0; i < shape.n_blocks; ++i) {
      const float norm = read_norm(src, i);
      const uint32_t n = shape.block_length(i);
      if (norm == 0) {
        if (!accumulate) std::fill_n(dst.data() + shape.block_offset(i), n, 0.0f);
        continue;
      }
      const uint64_t bytes = digit_bytes(n);
      check_padding(src, offset, digit_bits(fixed_bits_, n));
      const std::span<uint8_t> digits = grown(scratch.bytes, n);
      unpack_digits(fixed_bits_, src.subspan(offset, bytes), offset, digits);
      const std::span<float> y = grown(scratch.values, n);
      const int32_t top = static_cast<int32_t>(levels_);
      for (uint32_t k = 0; k < n; ++k) {
        const int32_t digit = digits[k];
        y[k] = static_cast<float>(digit > top ? top - digit : digit);
      }
      emit(y, step(norm), weight, accumulate, dst.data() + shape.block_offset(i));
      offset += bytes;
    }
    return 0;
  }

  void quantize(std::span<const float> x, float norm, const BlockKey& own, uint16_t* codes) const {
    const uint32_t n = static_cast<uint32_t>(x.size());
    const float top = static_cast<float>(levels_);
    uint32_t words[kChunk];
    for (uint32_t first = 0; first < n; first += kChunk) {
      random_chunk(own, Purpose::kStochastic, first, words);
      const uint32_t count = std::min(kChunk, n - first);
      const float* const p = x.data() + first;
      for (uint32_t i = 0; i < count; ++i) {
        const float u = std::abs(p[i]) / norm * top;
        const float v = u < top ? u : top;
        const int32_t floor = static_cast<int32_t>(v);
        const int32_t level = round_stochastically(floor, v - static_cast<float>(floor), words[i]);
        codes[first + i] = static_cast<uint16_t>(level + (p[i] < 0 && level > 0 ? kNegative : 0));
      }
    }
  }

  void write_bucket(std::span<const uint16_t> codes, coding::BitWriter& out) const {
    int64_t element_bits = 0, nonzero_bits = 0;
    uint32_t nonzeros = 0, before = UINT32_MAX;
    const uint32_t n = static_cast<uint32_t>(codes.size());
    for (uint32_t i = 0; i < n; ++i) {
      const uint32_t level = codes[i] & (kNegative - 1);
      element_bits += element_[level].length;
      if (level == 0) continue;
      nonzero_bits += coding::elias_omega_bits(i - before) + 1 + level_[level].length;
      before = i;
      ++nonzeros;
    }
    if (element_bits <= nonzero_bits + coding::elias_omega_bits(nonzeros + 1)) {
      out.put(0, 1);
      for (const uint16_t code : codes) {
        const Word word = element_[code & (kNegative - 1)];
        out.put(word.bits | code >> 15, word.length);
      }
      return;
    }
    out.put(1, 1);
    coding::put_elias_omega(out, nonzeros + 1);
    before = UINT32_MAX;
    for (uint32_t i = 0; i < n; ++i) {
      const uint32_t level = codes[i] & (kNegative - 1);
      if (level == 0) continue;
      coding::put_elias_omega(out, i - before);
      out.put(codes[i] >> 15, 1);
      out.put(level_[level].bits, level_[level].length);
      before = i;
    }
  }

  void read_elements(coding::BitReader& in, std::span<float> y) const {
    for (float& v : y) {
      const float level = static_cast<float>(coding::get_elias_omega(in, levels_ + 1) - 1);
      v = level > 0 && in.get(1) != 0 ? -level : level;
    }
  }
  void read_nonzeros(coding::BitReader& in, std::span<float> y) const {
    std::fill(y.begin(), y.end(), 0.0f);
    const uint32_t n = static_cast<uint32_t>(y.size());
    const uint32_t nonzeros = coding::get_elias_omega(in, n + 1) - 1;
    uint32_t next = 0;
    for (uint32_t i = 0; i < nonzeros; ++i) {
      if (next == n) in.corrupt("a nonzero beyond the last element");
      next += coding::get_elias_omega(in, n - next);
      const bool negative = in.get(1) != 0;
      const float level = static_cast<float>(coding::get_elias_omega(in, levels_));
      y[next - 1] = negative ? -level : level;
    }
  }

  uint32_t levels_;
  uint32_t fixed_bits_;  // of code=fixed, else 0
  bool max_norm_;        // the largest magnitude is the norm
  std::array<Word, kMaxLevels + 1> level_, element_;
};

WireParams parse(const Spec& spec) {
  static constexpr std::string_view kNorms[] = {"l2", "max"}, kCodes[] = {"elias", "fixed"};
  const bool max_norm = spec.choice("norm", 0, kNorms) == 1, fixed = spec.choice("code", 0, kCodes) == 1;
  const int64_t bits = spec.integer("bits", 4, fixed ? kMinFixedBits : 1, kMaxBits);
  return {.method = kQsgdId,
          .log2_block = parse_block(spec, kLog2Bucket),
          .flags = static_cast<uint16_t>((max_norm ? kFlagMaxNorm : 0) | (fixed ? kFlagFixedCode : 0)),
          .rate = static_cast<uint32_t>(bits) * kOneBit,
          .param = (1u << (bits - 1)) - (fixed ? 1 : 0)};
}

std::unique_ptr<SegmentCodec> make(const WireParams& params) {
  const bool fixed = (params.flags & kFlagFixedCode) != 0;
  check_fields("qsgd", params,
               {.flags = kFlagMaxNorm | kFlagFixedCode,
                .min_rate = (fixed ? kMinFixedBits : 1) * kOneBit,
                .max_rate = kMaxBits * kOneBit,
                .min_param = 1,
                .max_param = kMaxLevels});
  if (fixed) {
    const uint64_t bits = params.rate / kOneBit;
    check_field("qsgd", "rate of the fixed code", params.rate, bits * kOneBit, bits * kOneBit);
    check_field("qsgd", "levels of the fixed code", params.param, (1u << (bits - 1)) - 1, (1u << (bits - 1)) - 1);
  }
  return std::make_unique<QsgdCodec>(params);
}

// The worst bucket of the largest magnitude M: m others at t M / s each, 0 <= t <= 1, with the error m t (1 - t) (M / s)^2. Its
// largest ratio to |x|^2 = M^2 + m t^2 (M / s)^2 over t is (sqrt(1 + m / s^2) - 1) / 2, and it rises with m.
double limit(const WireParams& params, uint64_t count) {
  const double n = longest_block(params, count), s = params.param;
  if ((params.flags & kFlagMaxNorm) != 0) return (std::sqrt(1 + (n - 1) / (s * s)) - 1) / 2;
  return std::min(n / (s * s), std::sqrt(n) / s);
}

}  // namespace

MethodEntry qsgd_entry() {
  return {
      {kQsgdId,
       "qsgd",
       "1..8, fewer on the wire",
       "exactly",
       "min(block/s^2, sqrt(block)/s), s = 2^(bits-1); norm=max (sqrt(1+block/s^2)-1)/2",
       "QSGD, Alistarh et al., NeurIPS 2017",
       {{"bits", "1..8", "4"}, {"norm", "l2|max", "l2"}, {"code", "elias|fixed", "elias"}, {"block", kBlockKey.values, "512"}}},
      parse,
      make,
      limit,
      1,
      kMaxBits};
}

}  // namespace kpd::gradient
