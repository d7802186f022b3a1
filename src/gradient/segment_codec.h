// gradient: the contract between a method and the stream.
//
// A tensor is cut into blocks of 2^log2_block elements; the last block also takes a tail that is shorter than a block (so it
// has up to 2B-1 elements; a tensor shorter than B is one block). 64 blocks are a segment, the unit of threads and of rANS
// flushes. A method encodes one segment at a time, independent of all others. Implementations are immutable and
// thread-safe; scratch memory is the caller's.
#pragma once

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "gradient/method_fields.h"
#include "gradient/random_words.h"
#include "kpd/base/memory.h"
#include "kpd/base/spec.h"
#include "kpd/gradient/codec.h"

namespace kpd::gradient {

inline constexpr uint64_t kBlocksPerSegment = 64;
inline constexpr uint64_t kMinCodedElements = 64;  // a shorter tensor travels as float32

struct SliceCode;  // gradient/eden_slices.h

// Which codes of a segment arrived (packets): code j of block b those of packet (first[b] + j) mod packets.
struct SliceMask {
  uint32_t packets = 1;
  const uint8_t* arrived = nullptr;  // [packets], nonzero: arrived
  const uint64_t* first = nullptr;   // [n_blocks]
  double scale = 1;                  // of every block: packets sent / packets arrived
};
// Sets the values of block b's codes that are missing to 0.
void clear_missing(const SliceMask& mask, uint32_t b, std::span<float> values);

// Where a segment lies in its tensor.
struct SegmentShape {
  uint64_t first_block = 0;  // index within the tensor; part of every BlockKey
  uint64_t first_element = 0;
  uint64_t elements = 0;
  uint32_t n_blocks = 0;  // 1..64
  uint32_t block = 4096;  // B
  // Encoding with kFlagAllocate only: the rate of each block, in units of kRateUnit bits; null: all have the tensor's rate.
  const uint8_t* block_rates = nullptr;
  // Decoding only: codes that did not arrive count as 0 and the block's scale is multiplied; null: all arrived.
  const SliceMask* received = nullptr;
  uint32_t block_offset(uint32_t i) const { return i * block; }
  uint32_t block_length(uint32_t i) const {
    return i + 1 == n_blocks ? static_cast<uint32_t>(elements - uint64_t{i} * block) : block;
  }
};
// How many segments a tensor of `count` elements has, and the i-th.
uint64_t segment_count(uint64_t count, uint32_t block);
SegmentShape segment_shape(uint64_t count, uint32_t block, uint64_t index);
// The length of most blocks and of the longest block of a tensor of `count` elements; 2^log2_block for count = 0, which stands
// for a large one.
uint32_t usual_block(const WireParams& params, uint64_t count);
uint32_t longest_block(const WireParams& params, uint64_t count);

// Philox keys of one unit. `rotation` may be shared by all clients (dither=shared); `own` never is. Ties, stochastic
// rounding, windows and dither draw from `own`, signs from `rotation`.
struct TensorKeys {
  uint64_t rotation = 0;
  uint64_t own = 0;
};

// Thrown by encode() of a codec that detects_nonfinite(); `index` is within the segment.
struct NonFiniteInput {
  uint64_t index;
};

// Replaces them by 0; returns how many there were.
inline uint64_t zero_nonfinite(std::span<float> x) {
  uint64_t bad = 0;
  for (float& v : x) {
    if (std::isfinite(v)) continue;
    v = 0;
    ++bad;
  }
  return bad;
}

struct SegmentStats {
  double norm2 = 0, error2 = 0;
  uint64_t nonfinite = 0;
};

// Per-thread memory, grown on first use and then reused. Aligned, so that no load of a vector crosses cache lines.
struct Scratch {
  AlignedBuffer<float> input;       // the stream's: a segment that could not be encoded where it lies
  AlignedBuffer<float> values;      // one block, method's own
  AlignedBuffer<float> rotated;     // one block
  AlignedBuffer<float> extra;       // method's own
  AlignedBuffer<uint8_t> bytes;     // method's own
  AlignedBuffer<uint16_t> symbols;  // method's own
  AlignedBuffer<uint32_t> words;    // random words
  AlignedBuffer<uint32_t> signs;    // of the block that is rotated
  std::vector<int16_t> escapes;     // method's own
  AlignedBuffer<float> unscaled;    // the stream's: a whole decoded segment that is not yet its caller's
};
// `b` holds at least n elements, and what it held is lost if it has to grow; never shrinks.
template <class T>
std::span<T> grown(AlignedBuffer<T>& b, size_t n) {
  if (b.size() < n) b.resize(n);
  return {b.data(), n};
}

// What an element that holds `old` becomes by a decoded value: v, or old + weight * v where values are accumulated, each
// limited to the float range. Counts a v beyond it.
inline float limited(double v, float weight, bool accumulate, float old, uint64_t& saturated) {
  constexpr double kMax = FLT_MAX;
  if (std::fabs(v) > kMax) {
    v = std::copysign(kMax, v);
    ++saturated;
  }
  if (accumulate) v = std::clamp(static_cast<double>(old) + static_cast<double>(weight) * v, -kMax, kMax);
  return static_cast<float>(v);
}

class SegmentCodec {
 public:
  virtual ~SegmentCodec() = default;
  // True if the bytes of a segment follow from its shape and its first head_bytes(shape) bytes; then no length travels.
  virtual bool fixed_size() const = 0;
  // Upper bound; the bytes of every segment of this shape if it is fixed_size() and has no head.
  virtual uint64_t segment_bytes(const SegmentShape& shape) const = 0;
  // The scale words or floats of all blocks of a fixed_size() segment, which tell blocks that have no codes.
  virtual uint64_t head_bytes(const SegmentShape&) const { return 0; }
  // For any bytes in the head, also wrong ones; `head` has head_bytes(shape).
  virtual uint64_t length_from_head(std::span<const uint8_t>, const SegmentShape& shape) const { return segment_bytes(shape); }
  // True if encode() itself finds NaN and Inf (it then throws NonFiniteInput); otherwise the caller scans first.
  virtual bool detects_nonfinite() const { return false; }
  // `x` holds the segment's elements, all finite unless detects_nonfinite(). Writes at most segment_bytes(shape); returns the
  // bytes written.
  virtual uint64_t encode(std::span<const float> x, const SegmentShape& shape, const TensorKeys& keys, std::span<uint8_t> dst,
                          Scratch& scratch, SegmentStats& stats) const = 0;
  // dst[i] = decoded (accumulate false) or dst[i] += weight * decoded (true). `src` is exactly the segment's bytes; hostile
  // bytes throw Error(kCorruptData) whose text starts with the byte offset inside the segment ("byte 12: ..."). Returns the
  // number of saturated values.
  virtual uint64_t decode(std::span<const uint8_t> src, const SegmentShape& shape, const TensorKeys& keys, float weight,
                          bool accumulate, std::span<float> dst, Scratch& scratch) const = 0;
  // The sum of squares of what decode() makes, without its inverse transform where there is one; finds everything that decode()
  // finds wrong. May be infinite.
  virtual double decoded_norm2(std::span<const uint8_t> src, const SegmentShape& shape, const TensorKeys& keys,
                               Scratch& scratch) const;
  // Packets (kpd/gradient/packets.h): what this method's codes are; null: it has no packetized form.
  virtual const SliceCode* slice_code() const { return nullptr; }

  // For codes with a shared rotation (kFlagDither): acc += weight * the decoded values in the rotated domain, before the
  // inverse transform; finish_rotated() then makes dst = (or +=) R^-1 acc once for all clients. Others throw
  // Error(kUnsupported).
  virtual void decode_rotated(std::span<const uint8_t> src, const SegmentShape& shape, const TensorKeys& keys, float weight,
                              std::span<float> acc, Scratch& scratch) const;
  virtual void finish_rotated(const SegmentShape& shape, const TensorKeys& keys, std::span<float> acc, Scratch& scratch) const;
};

// What a method's file provides; the registry (src/gradient/codec.cc) holds one entry a method.
struct MethodEntry {
  MethodRow row;
  // Spec -> wire fields; the keys were checked. Throws through spec.fail_at.
  WireParams (*parse)(const Spec& spec);
  // Checks fields read from a hostile stream, of which rounds were resolved: throws Error(kCorruptData) with what was expected,
  // else makes the codec.
  std::unique_ptr<SegmentCodec> (*make)(const WireParams& params);
  // Of the resolved params of a tensor of `count` elements, 0: a large one (Codec::limit_vnmse).
  double (*limit_vnmse)(const WireParams& params, uint64_t count);
  // Rates that Codec::with_bits tries: multiples of 1 / rates_per_bit up to max_bits; 0: the method has no key `bits`.
  int rates_per_bit = 0, max_bits = 0;
};
const std::vector<MethodEntry>& registry();

// Codecs by their resolved fields, shared by all tensors with the same ones: tables are made once, and a hostile stream cannot
// ask for more than kMaxCodecs sets of them. Codecs of earlier messages stay until their place is needed.
class CodecCache {
 public:
  static constexpr size_t kMaxCodecs = 64;
  void begin_message();
  // Throws what MethodEntry::make throws, and Error(kLimitExceeded) for the 65th distinct codec of one message.
  std::shared_ptr<const SegmentCodec> get(const WireParams& params);

 private:
  struct Entry {
    WireParams params;
    std::shared_ptr<const SegmentCodec> codec;
    bool used = false;  // by the current message
  };
  std::vector<Entry> entries_;
};
const MethodEntry& method_by_id(uint8_t id);  // throws Error(kUnsupported); kExactId too, which no spec names

}  // namespace kpd::gradient
