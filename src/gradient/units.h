// gradient: what is coded as one vector, and how (docs/format/gradient.md, "Units"). Private.
//
// A stream's codec table and the manifest decide it on both sides: a tensor is a unit of its own, but tensors shorter than a
// block may be joined, and what is too short or of an exact type is not coded by its codec at all.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "gradient/segment_codec.h"
#include "kpd/gradient/message.h"
#include "kpd/gradient/stream_info.h"

namespace kpd::gradient {

// The codecs of a stream and which tensors have which.
struct CodecTable {
  std::vector<WireParams> codecs;
  std::vector<CodecRun> runs;
};

struct Unit {
  uint32_t tensor = 0;  // the first; the unit's place in the stream and its index in keys
  uint32_t first_piece = 0, n_pieces = 1;
  uint64_t count = 0;  // elements
  uint8_t record = 0;  // in the codec table
  WireParams params;   // resolved
  std::shared_ptr<const SegmentCodec> codec;
  uint32_t block() const { return 1u << params.log2_block; }
  uint64_t segments() const { return segment_count(count, block()); }
  SegmentShape segment(uint64_t i) const { return segment_shape(count, block(), i); }
};

// Elements [start, start + count) of a unit are a tensor.
struct Piece {
  uint32_t tensor = 0;
  uint64_t start = 0, count = 0;
};

class Units {
 public:
  // Throws what CodecCache::get throws. `table` covers the manifest. In manifest order of their first tensors.
  void build(const Manifest& manifest, const CodecTable& table, CodecCache& codecs);
  size_t size() const { return list_.size(); }
  const Unit& operator[](size_t i) const { return list_[i]; }
  auto begin() const { return list_.begin(); }
  auto end() const { return list_.end(); }
  std::span<const Piece> pieces(const Unit& u) const { return std::span(pieces_).subspan(u.first_piece, u.n_pieces); }
  // Where tensor i is: its unit and its piece there.
  uint32_t unit_of(size_t tensor) const { return unit_of_[tensor]; }
  const Piece& piece_of(size_t tensor) const { return pieces_[piece_of_[tensor]]; }

  // Calls fn(tensor, first element within it, where these begin in the segment, how many) for the tensors of a segment.
  template <class Fn>
  void for_each_piece(const Unit& u, const SegmentShape& shape, const Fn& fn) const {
    const std::span<const Piece> all = pieces(u);
    const uint64_t first = shape.first_element, end = first + shape.elements;
    auto p = std::upper_bound(all.begin(), all.end(), first, [](uint64_t at, const Piece& q) { return at < q.start; });
    for (p = p == all.begin() ? p : p - 1; p != all.end() && p->start < end; ++p) {
      const uint64_t from = std::max(first, p->start), to = std::min(end, p->start + p->count);
      if (from < to) fn(p->tensor, from - p->start, from - first, to - from);
    }
  }

 private:
  struct Joined {
    uint64_t count = 0;    // elements of all members
    uint32_t members = 0;  // of all,
    uint32_t placed = 0;   // so far
    uint32_t unit = 0;     // once it has a place
  };
  void add_unit(uint32_t tensor, uint64_t count, uint8_t record, const WireParams& params, CodecCache& codecs);
  std::vector<Unit> list_;
  std::vector<Piece> pieces_;
  std::vector<uint32_t> unit_of_, piece_of_;
  std::vector<Joined> joined_;  // a codec of the table
};

// Adds a joined segment's decoded values to its tensors, or sets them: dst[i] is tensor i. Returns how many were limited to the
// float range.
uint64_t scatter(const Units& units, const Unit& unit, const SegmentShape& shape, std::span<const float> values, float weight,
                 bool accumulate, std::span<const std::span<float>> dst);

// Decodes one segment into the tensors it belongs to. A destination of an exact type may be empty.
uint64_t decode_into(const Units& units, const Unit& unit, const SegmentShape& shape, std::span<const uint8_t> bytes,
                     const TensorKeys& keys, float weight, bool accumulate, std::span<const std::span<float>> dst,
                     Scratch& scratch);

// Rounds of the rotation of a unit of `count` elements whose codec's record leaves them open: 5 where its first block has below
// 128 elements, 4 below 512, 3 where it has below 4096 or the unit at most 4096, else 2 (3 for drive and drive+, which have no
// way to ask for three where x needs them). Methods without a rotation are not asked.
uint8_t rounds_by_size(const WireParams& params, uint64_t count);
// True for methods with a rotation: their records may leave the rounds open and ask for joining.
bool rotates(uint8_t method);
// A codec's params for a unit of `count` elements: rounds chosen, an entropy code that would be all flush replaced by the fixed
// code of its rate.
WireParams resolve_record(const WireParams& record, uint64_t count);
// What is not coded: raw floats, and elements of an exact type.
WireParams raw_params();
WireParams exact_params(DType dtype);
// True for a tensor that is coded together with others under `record`.
bool is_joined(const WireParams& record, DType dtype, uint64_t count);

}  // namespace kpd::gradient
