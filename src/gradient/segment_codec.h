// gradient: the contract between a method and the stream.
//
// A tensor is cut into blocks of 2^log2_block elements; the last block also takes a tail that is shorter than a block (so it has up to 2B-1
// elements; a tensor shorter than B is one block). 64 blocks are a segment, the unit of threads, of rANS flushes and of packets. A method
// encodes one segment at a time, independent of all others. Implementations are immutable and thread-safe; scratch memory is the caller's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kpd/base/spec.h"
#include "kpd/gradient/codec.h"
#include "kpd/gradient/message.h"
#include "kpd/transform/hadamard.h"

namespace kpd::gradient {

inline constexpr uint64_t kBlocksPerSegment = 64;
inline constexpr double kRateUnit = 0.05;          // of a block's own rate (kFlagAllocate)
inline constexpr uint8_t kAutoRounds = 255;         // in a Codec's params: 3 up to 4096 elements, 2 beyond; resolved in the record
inline constexpr uint64_t kMinCodedElements = 64;  // a shorter tensor travels as float32

// Where a segment lies in its tensor.
struct SegmentShape {
  uint64_t first_block = 0;  // index within the tensor; part of every BlockKey
  uint64_t first_element = 0;
  uint64_t elements = 0;
  uint32_t n_blocks = 0;     // 1..64
  uint32_t block = 4096;     // B
  // Encoding with kFlagAllocate only: the rate of each block, in units of kRateUnit bits; null: all have the tensor's rate.
  const uint8_t* block_rates = nullptr;
  uint32_t block_offset(uint32_t i) const { return i * block; }
  uint32_t block_length(uint32_t i) const {
    return i + 1 == n_blocks ? static_cast<uint32_t>(elements - uint64_t{i} * block) : block;
  }
};
// How many segments a tensor of `count` elements has, and the i-th.
uint64_t segment_count(uint64_t count, uint32_t block);
SegmentShape segment_shape(uint64_t count, uint32_t block, uint64_t index);

// Philox keys of one tensor. `rotation` may be shared by all clients (dither=shared); `own` never is. Ties, stochastic rounding, windows
// and dither draw from `own`, signs from `rotation`.
struct TensorKeys {
  uint64_t rotation = 0;
  uint64_t own = 0;
};

// Thrown by encode() of a codec that detects_nonfinite(); `index` is within the segment.
struct NonFiniteInput {
  uint64_t index;
};

struct SegmentStats {
  double norm2 = 0, error2 = 0;
  uint64_t reseeded = 0, over_limit = 0, nonfinite = 0;
};

// Per-thread memory, grown on first use and then reused.
struct Scratch {
  std::vector<float> values;      // one block in, as float32
  std::vector<float> rotated;     // one block
  std::vector<float> extra;       // method's own
  std::vector<uint8_t> bytes;     // method's own
  std::vector<uint16_t> symbols;  // method's own
  std::vector<uint32_t> words;    // random words
  std::vector<int16_t> escapes;   // method's own
};

class SegmentCodec {
 public:
  virtual ~SegmentCodec() = default;
  // True if every segment of a shape has the same number of bytes, segment_bytes(); then no length travels.
  virtual bool fixed_size() const = 0;
  // Exact (fixed_size) or the upper bound.
  virtual uint64_t segment_bytes(const SegmentShape& shape) const = 0;
  // True if encode() itself finds NaN and Inf (it then throws NonFiniteInput); otherwise the caller scans first.
  virtual bool detects_nonfinite() const { return false; }
  // `x` holds the segment's elements, all finite unless detects_nonfinite(). Writes at most segment_bytes(shape); returns the bytes written.
  virtual uint64_t encode(std::span<const float> x, const SegmentShape& shape, const TensorKeys& keys,
                          std::span<uint8_t> dst, Scratch& scratch, SegmentStats& stats) const = 0;
  // dst[i] = decoded (accumulate false) or dst[i] += weight * decoded (true). `src` is exactly the segment's bytes; hostile bytes throw
  // Error(kCorruptData) whose text starts with the byte offset inside the segment ("byte 12: ..."). Returns the number of saturated values.
  virtual uint64_t decode(std::span<const uint8_t> src, const SegmentShape& shape, const TensorKeys& keys, float weight,
                          bool accumulate, std::span<float> dst, Scratch& scratch) const = 0;
  // For codes with a shared rotation (kFlagDither): acc += weight * the decoded values in the rotated domain, before the inverse transform;
  // finish_rotated() then makes dst = (or +=) R^-1 acc once for all clients. Others throw Error(kUnsupported).
  virtual void decode_rotated(std::span<const uint8_t> src, const SegmentShape& shape, const TensorKeys& keys, float weight,
                              std::span<float> acc, Scratch& scratch) const;
  virtual void finish_rotated(const SegmentShape& shape, const TensorKeys& keys, std::span<float> acc) const;
};

// What a method's file provides; the registry (src/gradient/registry.cc) holds one entry a method.
struct MethodEntry {
  MethodRow row;
  // Spec -> wire fields; the keys were checked. Throws through spec.fail_at.
  WireParams (*parse)(const Spec& spec);
  // Checks fields read from a hostile stream: throws Error(kCorruptData) with what was expected, else makes the codec. `count` is the
  // tensor's number of elements (methods pick rounds=3 below 4096 at encode time, and write it in the record).
  std::unique_ptr<SegmentCodec> (*make)(const WireParams& params);
  double (*limit_vnmse)(const WireParams& params);
};
const std::vector<MethodEntry>& registry();
const MethodEntry& method_by_id(uint8_t id);  // throws Error(kUnsupported)

}  // namespace kpd::gradient
