// gradient: EDEN's codes cut into packet slices and put together again (docs/format/gradient.md, "Packets"), and the planes of
// raw low bits. Private.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "gradient/segment_codec.h"
#include "kpd/coding/rans.h"
#include "kpd/quant/gaussian_step.h"

namespace kpd::gradient {

// Low `bits` bits of n codes as bit planes, most significant plane first, and back.
void pack_low_bits(const uint16_t* codes, size_t n, int bits, uint8_t* planes);
void unpack_low_bits(const uint8_t* planes, size_t n, int bits, uint8_t* codes);

// A slice of a fixed-rate segment: for each non-zero block in order, its codes in order, each as its part's number of bits, one
// bit stream, least significant bit first, sign bit first, then the magnitude's most significant bit.
void split_fixed(uint32_t rate, std::span<const uint8_t> segment, const SegmentShape& shape, uint32_t slices,
                 std::vector<std::vector<uint8_t>>& out);
// `segment` is zeroed and has the segment's size.
void merge_fixed(uint32_t rate, std::span<const std::span<const uint8_t>> slices, std::span<const uint8_t> words,
                 const SegmentShape& shape, std::span<uint8_t> segment);

// A slice of an entropy-coded segment: the raw bits of its codes as one bit stream (code by code, least significant bit first),
// the length of the flush (u32), a rANS flush of its own, its escapes (i16).
void split_entropy(const quant::GaussianStep& step, const coding::RansEncodeTable& encode,
                   const coding::RansDecodeTable& decode, std::span<const uint8_t> segment, const SegmentShape& shape,
                   uint32_t slices, std::vector<std::vector<uint8_t>>& out);
// Returns the segment's bytes; `segment` has room for the most.
uint64_t merge_entropy(const quant::GaussianStep& step, const coding::RansEncodeTable& encode,
                       const coding::RansDecodeTable& decode, std::span<const std::span<const uint8_t>> slices,
                       std::span<const uint8_t> words, const SegmentShape& shape, std::span<uint8_t> segment);

}  // namespace kpd::gradient
