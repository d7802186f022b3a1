// gradient: EDEN's codes as packets carry them (docs/format/gradient.md, "Packets"), and the planes of raw low bits. Private.
//
// The codes of a message are numbered: groups (a segment's blocks) in order, blocks with a non-zero word in order, the codes of
// a block in the order of section 7 or 8. Of P packets each carries the numbers that are alike modulo P, its *class*, so that
// any loss takes the same share of every block, as nearly as whole codes allow.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "gradient/eden.h"
#include "gradient/segment_codec.h"
#include "kpd/coding/rans.h"
#include "kpd/quant/gaussian_step.h"

namespace kpd::gradient {

// Low `bits` bits of n codes as bit planes, most significant plane first, and back.
void pack_low_bits(const uint16_t* codes, size_t n, int bits, uint8_t* planes);
void unpack_low_bits(const uint8_t* planes, size_t n, int bits, uint8_t* codes);

// What the codes of a segment are (SegmentCodec::slice_code). Fixed: a code of b bits is sign * 2^(b - 1) + magnitude code.
// Entropy: u = index + bias, or an escape.
struct SliceCode {
  uint32_t rate = 0;                          // fixed
  const quant::GaussianStep* step = nullptr;  // entropy; else null, as the tables
  const coding::RansEncodeTable* encode = nullptr;
  const coding::RansDecodeTable* decode = nullptr;
  EdenPlan plan(uint32_t length) const;  // how many codes a block has, and, fixed, how many bits each
};

inline constexpr uint16_t kEscapeCode = 0xffff;  // no u is as large
struct Escape {
  uint64_t place = 0;  // in the list of codes
  int16_t index = 0;
};
struct CodeList {
  std::vector<uint16_t> codes;
  std::vector<Escape> escapes;  // one for each kEscapeCode, in order
};

// The codes of a segment that decodes, and a segment that decodes to them; `words` are the blocks' scale words.
void read_codes(const SliceCode& code, std::span<const uint8_t> segment, const SegmentShape& shape, CodeList& out);
void write_codes(const SliceCode& code, const CodeList& codes, std::span<const uint8_t> words, const SegmentShape& shape,
                 std::vector<uint8_t>& segment);

// Where a group's codes stand among the message's.
struct CodeGroup {
  SliceCode code;
  uint64_t first = 0, count = 0;  // numbers
  uint32_t coded_blocks = 0;      // with a non-zero word
  EdenPlan plan, last_plan;       // of a coded block, of the last one
  // The number of bits of code `number` in the bit string.
  int width(uint64_t number) const;
};
// `first` is the number of the group's first code.
CodeGroup code_group(const SliceCode& code, std::span<const uint8_t> words, const SegmentShape& shape, uint64_t first);
// The number of the first code of each block of the group, as SliceMask wants them.
void first_numbers(const CodeGroup& group, std::span<const uint8_t> words, std::span<uint64_t> first);

// A packet's payload: the codes of class `residue` modulo `packets`: one bit string of the codes of groups in order (fixed: all
// their bits, entropy: raw low bits; least significant first), one serial rANS flush of the symbols, the escapes.
std::vector<uint8_t> write_payload(std::span<const CodeGroup> groups, std::span<const CodeList> codes, uint32_t packets,
                                   uint32_t residue);
// Code k of the result has the number residue + k * packets. Throws Error(kCorruptData).
CodeList read_payload(std::span<const CodeGroup> groups, uint64_t total_codes, uint32_t packets, uint32_t residue,
                      std::span<const uint8_t> payload);
// The codes of the packets that arrived.
struct ArrivedCodes {
  std::vector<CodeList> lists;
  std::vector<uint32_t> list_of;  // by class: 1 + its place in `lists`, 0: lost
};
// A group's codes; those of a packet that is lost become valid ones.
void gather_codes(const CodeGroup& group, const ArrivedCodes& packets, CodeList& out);

}  // namespace kpd::gradient
