// gradient: a stream's units and where their segments lie, found and checked before anything is decoded. Private.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "gradient/stream_format.h"
#include "gradient/units.h"

namespace kpd::gradient {

// One segment.
struct Part {
  uint32_t unit = 0;
  SegmentShape shape;
  std::span<const uint8_t> bytes;
};

class OpenStream {
 public:
  // From the codec table up to the checksum, for a stream of the tensors of `manifest`. A table that equals that of the last
  // stream is not looked at again, so a steady flow of messages of one manifest (which must stay the same) allocates nothing.
  void read(ByteReader& r, std::span<const uint8_t> stream, const Manifest& manifest, const Limits& limits, CodecCache& codecs);
  const CodecTable& table() const { return table_; }
  const Units& units() const { return units_; }
  const std::vector<Part>& parts() const { return parts_; }  // in stream order
  // The bytes of a unit: segments and the lengths before them.
  std::span<const uint8_t> bytes_of(size_t unit, std::span<const uint8_t> stream) const {
    return stream.subspan(offsets_[unit], offsets_[unit + 1] - offsets_[unit]);
  }
  uint64_t offset_of(size_t unit) const { return offsets_[unit]; }

 private:
  CodecTable table_;
  std::vector<uint8_t> table_bytes_;  // as they were; empty: none was right
  Units units_;
  std::vector<Part> parts_;
  std::vector<std::span<const uint8_t>> spans_;
  std::vector<uint64_t> offsets_;  // of every unit, and of the checksum
};

// Throws a segment's Error again with the stream's name and the place within the stream.
[[noreturn]] void throw_in_part(const Error& e, const Unit& unit, std::span<const uint8_t> bytes,
                                std::span<const uint8_t> stream, std::string_view name);

// Throws Error(kInvalidArgument) unless tensor `index` is there and of an exact type.
void check_exact(const Manifest& manifest, size_t index);

}  // namespace kpd::gradient
