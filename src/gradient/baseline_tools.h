// gradient: what the baselines share: scaling by powers of two, fixed-order sums, bit strings,
// random subsets and the last step of a decoder. Private.
//
// Everything here decides stream bytes or decoded values, so it uses only IEEE + - * / sqrt in a written order.
#pragma once

#include <cfloat>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "gradient/segment_codec.h"
#include "kpd/base/bytes.h"
#include "kpd/base/error.h"

namespace kpd::gradient::baselines {

// --- scaling.
// 2^e as a double, -1000 < e < 1000.
double power_of_two(int e);
// e with 2^e <= |v| < 2^(e+1), for the raw bits of |v|; 0 for v = 0. Denormals too.
int exponent_of(uint32_t abs_bits);
int exponent_of(float v);
// To a float on the wire; beyond the float range it saturates.
float saturate(double v);

// --- sums in double: lane i % 8 takes element i, then lanes l + 4, l + 2, l + 1 are added to l.
double sum_abs(std::span<const float> y);
double sum_squares(std::span<const float> y);
double sum_squared_differences(std::span<const float> a, std::span<const float> b);
// Smallest and largest; n > 0, no NaN.
struct Range {
  float lo, hi;
};
Range range_of(std::span<const float> y);

// --- random choices of one block; the words are Philox words of (own key, block).
inline BlockKey rotation_key(const TensorKeys& keys, const SegmentShape& shape, uint32_t i) {
  return {keys.rotation, shape.first_block + i};
}
inline BlockKey own_key(const TensorKeys& keys, const SegmentShape& shape, uint32_t i) {
  return {keys.own, shape.first_block + i};
}
// Random words come in chunks of this many, so that they stay in registers and first-level cache.
inline constexpr uint32_t kChunk = 256;
// The words [first, first + kChunk) of the block's sequence for `purpose`; first is a multiple of 4.
void random_chunk(const BlockKey& key, Purpose purpose, uint32_t first, uint32_t (&words)[kChunk]);
// `below` or below + 1, the latter with probability `fraction` in [0, 1]: the mean is below + fraction. 24 random bits are
// compared with an integer, no float comparison is random.
inline int32_t round_stochastically(int32_t below, float fraction, uint32_t word) {
  const int32_t threshold = static_cast<int32_t>(fraction * 16777216.0f);  // 2^24
  return below + (static_cast<int32_t>(word >> 8) < threshold ? 1 : 0);
}
// Exactly k of n indices, each subset equally likely (Knuth, TAOCP 2, 3.4.2, algorithm S, with words of Purpose::kWindow),
// rising.
void choose_subset(const BlockKey& key, uint32_t n, uint32_t k, AlignedBuffer<uint16_t>& indices);

// --- bit strings: bit j is bit j % 8 of byte j / 8; a value's lowest bit comes first.
class BitPacker {
 public:
  explicit BitPacker(uint8_t* dst) : dst_(dst) {}
  void put(uint64_t value, unsigned bits) {  // bits <= 32
    acc_ |= value << fill_;
    fill_ += bits;
    if (fill_ >= 32) {
      store_u32(dst_, static_cast<uint32_t>(acc_));
      dst_ += 4;
      acc_ >>= 32;
      fill_ -= 32;
    }
  }
  // Pads with zero bits to a byte; returns one past the last byte.
  uint8_t* finish() {
    for (; fill_ > 0; fill_ -= fill_ < 8 ? fill_ : 8, acc_ >>= 8) *dst_++ = static_cast<uint8_t>(acc_);
    return dst_;
  }

 private:
  uint8_t* dst_;
  uint64_t acc_ = 0;
  unsigned fill_ = 0;
};
// Reads what BitPacker wrote; never past the span, beyond which all bits are zero.
class BitUnpacker {
 public:
  explicit BitUnpacker(std::span<const uint8_t> src) : next_(src.data()), end_(src.data() + src.size()) {}
  uint32_t get(unsigned bits) {  // bits <= 32
    if (fill_ < bits) refill();
    const uint32_t v = static_cast<uint32_t>(acc_ & ((uint64_t{1} << bits) - 1));
    acc_ >>= bits;
    fill_ -= bits;
    return v;
  }

 private:
  void refill() {
    if (end_ - next_ >= 4) {
      acc_ |= static_cast<uint64_t>(load_u32(next_)) << fill_;
      next_ += 4;
    } else {
      for (unsigned at = fill_; next_ != end_; at += 8) acc_ |= static_cast<uint64_t>(*next_++) << at;
    }
    fill_ += 32;
  }
  const uint8_t* next_;
  const uint8_t* end_;
  uint64_t acc_ = 0;
  unsigned fill_ = 0;
};

// --- decoding.
// Throws Error(kCorruptData, "byte OFFSET: TEXT").
template <class... Args>
[[noreturn]] void corrupt_at(uint64_t offset, const Args&... args) {
  fail(ErrorCode::kCorruptData, "byte ", offset, ": ", args...);
}
// The segment must have exactly `expected` bytes, or those that its head says.
void check_segment_size(std::span<const uint8_t> src, uint64_t expected);
void check_segment_size(std::span<const uint8_t> src, const SegmentCodec& codec, const SegmentShape& shape);
// True if `n` floats in a segment's head are 0: their block has no codes.
bool all_zero(const uint8_t* floats, uint32_t n);
// The bytes of a segment with this head of `floats` floats a block, code_bytes(elements) of codes in each block that has some.
template <class CodeBytes>
uint64_t bytes_from_head(std::span<const uint8_t> head, const SegmentShape& shape, uint32_t floats,
                         const CodeBytes& code_bytes) {
  uint64_t bytes = head.size();
  for (uint32_t i = 0; i < shape.n_blocks; ++i) {
    if (!all_zero(head.data() + size_t{4} * floats * i, floats)) bytes += code_bytes(shape.block_length(i));
  }
  return bytes;
}
// A finite float at `offset`.
float read_finite(std::span<const uint8_t> src, uint64_t offset, std::string_view what);
void write_float(uint8_t* dst, float v);
// The zero bits that fill the last byte of a string of `bits` bits at `offset`.
void check_padding(std::span<const uint8_t> src, uint64_t offset, uint64_t bits);

// dst[i] = v, or dst[i] += weight * v, with v = float(y[i] * factor) saturated; returns how many were.
uint64_t emit(std::span<const float> y, double factor, float weight, bool accumulate, float* dst);

}  // namespace kpd::gradient::baselines
