// gradient: how a tensor is cut into blocks and segments (segment_codec.h). Positions only, no bytes.
#include "gradient/segment_codec.h"

#include <algorithm>

#include "kernels/sums.h"
#include "kpd/base/error.h"

namespace kpd::gradient {
namespace {

// The last block takes the tail, so a tensor has floor(count / block) blocks, at least one.
uint64_t block_count(uint64_t count, uint32_t block) { return count < block ? 1 : count / block; }

}  // namespace

uint64_t segment_count(uint64_t count, uint32_t block) {
  if (count == 0) return 0;
  return (block_count(count, block) + kBlocksPerSegment - 1) / kBlocksPerSegment;
}

uint32_t usual_block(const WireParams& params, uint64_t count) {
  const uint64_t block = uint64_t{1} << params.log2_block;
  return static_cast<uint32_t>(count == 0 || count >= 2 * block ? block : count);
}

uint32_t longest_block(const WireParams& params, uint64_t count) {
  const uint64_t block = uint64_t{1} << params.log2_block;
  return static_cast<uint32_t>(count == 0 ? block : count < 2 * block ? count : block + count % block);
}

SegmentShape segment_shape(uint64_t count, uint32_t block, uint64_t index) {
  const uint64_t blocks = block_count(count, block);
  SegmentShape s;
  s.block = block;
  s.first_block = index * kBlocksPerSegment;
  s.first_element = s.first_block * block;
  const uint64_t left = blocks - s.first_block;
  s.n_blocks = static_cast<uint32_t>(left < kBlocksPerSegment ? left : kBlocksPerSegment);
  s.elements = left <= kBlocksPerSegment ? count - s.first_element : kBlocksPerSegment * block;
  return s;
}

void clear_missing(const SliceMask& mask, uint32_t b, std::span<float> values) {
  uint64_t packet = mask.first[b] % mask.packets;
  for (float& v : values) {
    if (mask.arrived[packet] == 0) v = 0;
    packet = packet + 1 == mask.packets ? 0 : packet + 1;
  }
}

double SegmentCodec::decoded_norm2(std::span<const uint8_t> src, const SegmentShape& shape, const TensorKeys& keys,
                                   Scratch& scratch) const {
  if (scratch.unscaled.size() < shape.elements) scratch.unscaled.resize(shape.elements);
  const std::span<float> values(scratch.unscaled.data(), shape.elements);
  decode(src, shape, keys, 1.0f, false, values, scratch);
  return kernels::magnitude(values.data(), values.size()).sum_squares;
}

void SegmentCodec::decode_rotated(std::span<const uint8_t>, const SegmentShape&, const TensorKeys&, float, std::span<float>,
                                  Scratch&) const {
  fail(ErrorCode::kUnsupported, "only codes with a shared rotation (dither=shared) can be summed before the inverse transform");
}

void SegmentCodec::finish_rotated(const SegmentShape&, const TensorKeys&, std::span<float>, Scratch&) const {
  fail(ErrorCode::kUnsupported, "only codes with a shared rotation (dither=shared) can be summed before the inverse transform");
}

}  // namespace kpd::gradient
