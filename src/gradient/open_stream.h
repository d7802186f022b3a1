// gradient: where the segments of a whole stream lie, found and checked before anything is decoded. Private.
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
  // From behind the codec table, which `units` are of, up to the checksum. Allocates nothing once it has seen a stream as
  // large.
  void read(ByteReader& r, std::span<const uint8_t> stream, const Units& units, const Limits& limits);
  const std::vector<Part>& parts() const { return parts_; }  // in stream order
  // The bytes of a unit: segments and the lengths before them.
  std::span<const uint8_t> bytes_of(size_t unit, std::span<const uint8_t> stream) const {
    return stream.subspan(offsets_[unit], offsets_[unit + 1] - offsets_[unit]);
  }
  uint64_t offset_of(size_t unit) const { return offsets_[unit]; }

 private:
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
