// gradient: see open_stream.h.
#include "gradient/open_stream.h"

#include "kpd/base/error.h"

namespace kpd::gradient {

void OpenStream::read(ByteReader& r, std::span<const uint8_t> stream, const Units& units, const Limits& limits) {
  parts_.clear();
  offsets_.clear();
  for (uint32_t u = 0; u < units.size(); ++u) {
    offsets_.push_back(r.offset());
    find_segments(r, units[u], limits, spans_);
    for (size_t s = 0; s < spans_.size(); ++s) parts_.push_back({u, units[u].segment(s), spans_[s]});
  }
  offsets_.push_back(r.offset());
  if (r.remaining() != kChecksumBytes) {
    r.corrupt("the tensors end here, expected the ", kChecksumBytes, "-byte checksum to end the stream of ", stream.size(),
              " bytes");
  }
}

void throw_in_part(const Error& e, const Unit& unit, std::span<const uint8_t> bytes, std::span<const uint8_t> stream,
                   std::string_view name) {
  const uint64_t at = static_cast<uint64_t>(bytes.data() - stream.data());
  throw Error(e.code(), str(name, ": tensor ", unit.tensor, ", segment at byte ", at, ": ", e.what()), at);
}

void check_exact(const Manifest& manifest, size_t index) {
  if (index >= manifest.size()) fail(ErrorCode::kInvalidArgument, "tensor ", index, " of ", manifest.size());
  if (dtype_is_exact(manifest[index].dtype)) return;
  fail(ErrorCode::kInvalidArgument, "tensor '", manifest[index].name, "' is ", dtype_name(manifest[index].dtype),
       ", which is decoded to floats");
}

}  // namespace kpd::gradient
