// gradient: the bytes of header and codec table (docs/format/gradient.md, normative). Private; the one place with these
// numbers.
#pragma once

#include <cstdint>

#include "gradient/segment_codec.h"
#include "gradient/units.h"
#include "kpd/base/bytes.h"
#include "kpd/gradient/message.h"
#include "kpd/gradient/stream_info.h"

namespace kpd::gradient {

inline constexpr uint8_t kMagic[4] = {'K', 'P', 'D', 'G'};
inline constexpr uint8_t kFormatMajor = 2;
inline constexpr uint8_t kFormatMinor = 0;
inline constexpr uint16_t kFlagMessage = 1;          // header flags: message form, else file form
inline constexpr uint16_t kFlagStreamed = 2;         // total length unknown when the header was written
inline constexpr uint16_t kFlagPackets = 4;          // the control part of a packetized message
inline constexpr uint16_t kFlagAuthenticated = 8;    // a message with a MAC field
inline constexpr uint64_t kUnknownLength = ~0ull;    // total length of a streamed one
inline constexpr uint64_t kFileHeaderBytes = 48;     // before manifest and extensions
inline constexpr uint64_t kMessageHeaderBytes = 72;  // without the MAC field
inline constexpr uint64_t kMacOffset = kMessageHeaderBytes, kMacBytes = 16;
inline constexpr uint64_t kRecordBytes = 14;  // of a codec
inline constexpr uint32_t kMaxTableCodecs = 256;
inline constexpr uint64_t kLeastManifestEntry = 4;  // bytes of a tensor in a manifest: no name, no dimension
inline constexpr uint64_t kChecksumBytes = 4;
inline constexpr uint64_t kLeastBlockBytes = 4;  // what every method spends at least on a block
inline constexpr uint64_t kExtensionHeadBytes = 6;
inline constexpr uint16_t kCriticalExtension = 0x8000;
inline constexpr uint16_t kMetadataExtension = 1;  // of files: texts in pairs, each length u32 and bytes

// Keys of the unit that begins with tensor `index`: the first 8 bytes (little-endian) of SHA-256("kpd-gradient-2" secret[32]
// manifest-hash run round client index kind), all integers u64 little-endian; kind 0 = rotation, 1 = own, 2 = the rotation that
// all clients share (with client = 0), so no client's id can meet it.
TensorKeys tensor_keys(const RunSecret& secret, uint64_t manifest_hash, const MessageIds& ids, uint64_t index,
                       const WireParams& params);

// What travels for a tensor of `count` elements that is not joined.
WireParams resolve_params(const WireParams& record, uint64_t count, DType dtype = DType::kFloat32);

void write_record(ByteWriter& w, const WireParams& record);
// Number of codecs, records, runs; bytes of the same.
void write_codec_table(ByteWriter& w, const CodecTable& table);
uint64_t codec_table_bytes(const CodecTable& table);
// Reads and checks the codec table of a stream of `tensors` tensors.
void read_codec_table(ByteReader& r, uint64_t tensors, CodecTable& table);
// The units of a table just read; errors get the table's place in the stream.
void build_units(const ByteReader& r, uint64_t table_at, const Manifest& manifest, const CodecTable& table, CodecCache& codecs,
                 Units& units);

// A tensor's name from a hostile stream as an error shows it: in quotes, at most 64 bytes of it, control bytes as '?'.
std::string printable(std::string_view name);

// Tensor names are UTF-8 without control characters, unique, and fit a manifest; throws Error(kInvalidArgument) otherwise.
void check_manifest(const Manifest& manifest);
uint64_t manifest_bytes(const Manifest& manifest);
void write_manifest(ByteWriter& w, const Manifest& manifest);
// The extension with its head; nothing for no metadata. Throws Error(kInvalidArgument) for what is not UTF-8 or too long.
uint64_t metadata_bytes(const FileMetadata& metadata);
void write_metadata(ByteWriter& w, const FileMetadata& metadata);

// Header up to and including manifest and extensions; leaves the reader at the codec table. Checks magic, version, lengths and
// the CRC-32. `control`: expects the control part of a packetized message, which nothing else accepts.
StreamInfo read_header(ByteReader& r, std::span<const uint8_t> stream, const Limits& limits, bool control = false);

// The same in two steps, without the checks that need the whole stream: the first 24 bytes, then the rest of the header.
StreamInfo read_header_start(ByteReader& r, const Limits& limits, bool control);
void read_header_rest(ByteReader& r, const Limits& limits, StreamInfo& info);

// Throws Error(kInvalidArgument) unless there is one view a tensor, each with the tensor's count and a type that it may have.
void check_sources(const Manifest& manifest, std::span<const TensorView> tensors);
// Throws Error(kInvalidArgument) unless there is one destination a tensor, each with the tensor's count of floats; one of an
// exact type may be empty.
void check_destinations(const Manifest& manifest, std::span<const std::span<float>> dst);
// The tensors that stand back to back in `all`.
std::vector<std::span<float>> spans_of(const Manifest& manifest, std::span<float> all);
// Throws Error(kInvalidArgument) for a weight that is not finite, e.g. one divided by a sum of no weights.
void check_weight(float weight);
// Throws Error(kMismatch) unless the header is that of a message about `tensors` tensors with this manifest hash.
void check_model(const StreamInfo& info, uint64_t manifest_hash, uint64_t tensors, std::string_view name);
// Throws Error(kMismatch) unless run, round, client and base model are the expected ones.
void check_ids(const MessageIds& got, const MessageIds& expected, std::string_view name);

// Bytes of the next segment: what its head says, or read from the stream if its codec's segments vary; checked against what the
// shape and the limits allow. Takes the length, not the head.
uint64_t read_segment_bytes(ByteReader& r, const WireParams& params, const SegmentCodec& codec, const SegmentShape& shape,
                            const Limits& limits);

// Where the segments of a unit lie. `segments` gets one span each. Throws on lengths that disagree with the stream.
void find_segments(ByteReader& r, const Unit& unit, const Limits& limits, std::vector<std::span<const uint8_t>>& segments);

}  // namespace kpd::gradient
