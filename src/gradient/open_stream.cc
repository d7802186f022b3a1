// gradient: see open_stream.h.
#include "gradient/open_stream.h"

#include <algorithm>

#include "kpd/base/error.h"

namespace kpd::gradient {

void OpenStream::read(ByteReader& r, std::span<const uint8_t> stream, const Manifest& manifest, const Limits& limits,
                      CodecCache& codecs) {
  const uint64_t table_at = r.offset();
  const std::span<const uint8_t> rest = stream.subspan(table_at);
  // A table tells its own end, so one that begins with all of the last one's bytes is the last one.
  const bool known = !table_bytes_.empty() && rest.size() >= table_bytes_.size() &&
                     std::equal(table_bytes_.begin(), table_bytes_.end(), rest.begin());
  if (known) {
    r.skip(table_bytes_.size(), "codec table");
  } else {
    table_bytes_.clear();
    codecs.begin_message();
    read_codec_table(r, manifest.size(), table_);
    build_units(r, table_at, manifest, table_, codecs, units_);
    table_bytes_.assign(rest.begin(), rest.begin() + static_cast<ptrdiff_t>(r.offset() - table_at));
  }
  parts_.clear();
  offsets_.clear();
  for (uint32_t u = 0; u < units_.size(); ++u) {
    offsets_.push_back(r.offset());
    find_segments(r, units_[u], limits, spans_);
    for (size_t s = 0; s < spans_.size(); ++s) parts_.push_back({u, units_[u].segment(s), spans_[s]});
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
  throw Error(e.code(), str(name, ": tensor ", unit.tensor, ", segment at byte ", at, ": ", e.what()));
}

void check_exact(const Manifest& manifest, size_t index) {
  if (index >= manifest.size()) fail(ErrorCode::kInvalidArgument, "tensor ", index, " of ", manifest.size());
  if (dtype_is_exact(manifest[index].dtype)) return;
  fail(ErrorCode::kInvalidArgument, "tensor '", manifest[index].name, "' is ", dtype_name(manifest[index].dtype),
       ", which is decoded to floats");
}

}  // namespace kpd::gradient
