// gradient: what a stream says about itself.
#include "kpd/gradient/stream_info.h"

#include "gradient/open_stream.h"
#include "gradient/receiver.h"
#include "kpd/base/error.h"

namespace kpd::gradient {
namespace {

void check_elements(const ByteReader& r, uint64_t at, const Manifest& manifest, const Limits& limits) {
  uint64_t total = 0;
  for (size_t i = 0; i < manifest.size(); ++i) {
    const uint64_t count = manifest[i].count();
    if (count <= limits.max_total_elements - total) {
      total += count;
      continue;
    }
    r.throw_at(ErrorCode::kLimitExceeded, at, "more than ", limits.max_total_elements, " elements up to tensor ", i);
  }
}

void describe(const Units& units, const OpenStream& open, std::span<const uint8_t> stream, StreamInfo& info) {
  for (size_t u = 0; u < units.size(); ++u) {
    const Unit& unit = units[u];
    info.units.push_back(
        {unit.tensor, unit.n_pieces, unit.count, unit.params, open.offset_of(u), open.bytes_of(u, stream).size()});
  }
  for (size_t i = 0; i < info.manifest.size(); ++i) {
    const uint32_t u = units.unit_of(i);
    const UnitRecord& unit = info.units[u];
    const Piece& piece = units.piece_of(i);
    uint64_t bytes = unit.bytes;
    if (unit.members > 1) {
      bytes = static_cast<uint64_t>(static_cast<double>(unit.bytes) * static_cast<double>(piece.count) /
                                    static_cast<double>(unit.count));
    }
    info.tensors.push_back(
        {piece.count, info.manifest[i].dtype, units[u].record, unit.params, u, piece.start, unit.offset, bytes});
  }
}

}  // namespace

uint64_t StreamInfo::elements() const {
  uint64_t n = 0;
  for (const TensorRecord& t : tensors) n += t.count;
  return n;
}

StreamInfo read_stream_info(std::span<const uint8_t> stream, std::string_view name, const Limits& limits,
                            const Manifest* message_manifest) {
  ByteReader r(stream, name);
  StreamInfo info = read_header(r, stream, limits);
  const uint64_t table_at = r.offset();
  if (!info.is_file) {
    if (message_manifest == nullptr) {
      CodecTable table;
      read_codec_table(r, info.n_tensors, table);
      info.codecs = std::move(table.codecs);
      info.runs = std::move(table.runs);
      return info;
    }
    check_model(info, manifest_hash(*message_manifest), message_manifest->size(), name);
    info.manifest = *message_manifest;
  }
  check_elements(r, table_at, info.manifest, limits);
  CodecCache codecs;
  UnitTable table;
  table.read(r, stream.subspan(table_at), info.manifest, codecs);
  OpenStream open;
  open.read(r, stream, table.units(), limits);
  info.codecs = table.table().codecs;
  info.runs = table.table().runs;
  describe(table.units(), open, stream, info);
  return info;
}

}  // namespace kpd::gradient
