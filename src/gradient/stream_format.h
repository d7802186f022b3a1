// gradient: the bytes of header and records (docs/format/gradient.md, normative). Private; the one place with these numbers.
#pragma once

#include <cstdint>

#include "gradient/segment_codec.h"
#include "kpd/base/bytes.h"
#include "kpd/gradient/message.h"

namespace kpd::gradient {

inline constexpr uint8_t kMagic[4] = {'K', 'P', 'D', 'G'};
inline constexpr uint8_t kFormatMajor = 1;
inline constexpr uint8_t kFormatMinor = 0;
inline constexpr uint16_t kFlagMessage = 1;        // header flags: message form, else file form
inline constexpr uint16_t kFlagStreamed = 2;       // total length unknown when the header was written
inline constexpr uint16_t kFlagPackets = 4;        // the control part of a packetized message
inline constexpr uint64_t kUnknownLength = ~0ull;  // total length of a streamed one
inline constexpr uint64_t kFileHeaderBytes = 32;   // before manifest and extensions
inline constexpr uint64_t kMessageHeaderBytes = 88;
inline constexpr uint64_t kRecordBytes = 24;
inline constexpr uint64_t kChecksumBytes = 4;
inline constexpr uint64_t kLeastBlockBytes = 4;  // what every method spends at least on a block
inline constexpr uint64_t kExtensionHeadBytes = 6;
inline constexpr uint16_t kCriticalExtension = 0x8000;
inline constexpr uint64_t kSharedClient = ~0ull;  // the client id from which a shared rotation is derived

// Keys of tensor `index`: the first 8 bytes (little-endian) of SHA-256("kpd-gradient-1" secret[32] run round client index
// kind), all integers u64 little-endian, kind 0 = rotation, 1 = own. A shared rotation has client = kSharedClient.
TensorKeys tensor_keys(const RunSecret& secret, const MessageIds& ids, uint64_t index, const WireParams& params);

// Rounds of the rotation of a tensor of `count` elements for which none were asked: 5 where its first block has below 128
// elements, 4 below 512, 3 where it has below 4096 or the tensor at most 4096, else 2 (3 for drive and drive+, which have no
// way to ask for three where x needs them). Methods without a rotation are not asked.
uint8_t rounds_by_size(const WireParams& params, uint64_t count);
// What travels for a tensor of `count` elements under a codec's params: float32 below kMinCodedElements, rounds resolved (with
// kFlagSizedRounds where they follow from the size).
WireParams resolve_params(const WireParams& params, uint64_t count);

void write_record(ByteWriter& w, uint64_t count, DType dtype, const WireParams& params);
// Reads and checks one record; finds its codec.
struct CheckedRecord {
  TensorRecord record;
  std::shared_ptr<const SegmentCodec> codec;
};
CheckedRecord read_record(ByteReader& r, size_t index, const Limits& limits, CodecCache& codecs);

// A tensor's name from a hostile stream as an error shows it: in quotes, at most 64 bytes of it, control bytes as '?'.
std::string printable(std::string_view name);

// Tensor names are UTF-8 without control characters, unique, and fit a manifest; throws Error(kInvalidArgument) otherwise.
void check_manifest(const Manifest& manifest);
uint64_t manifest_bytes(const Manifest& manifest);
void write_manifest(ByteWriter& w, const Manifest& manifest);

// Header up to and including manifest and extensions; leaves the reader at the first record. Checks magic, version, lengths and
// the CRC-32. `control`: expects the control part of a packetized message, which nothing else accepts.
StreamInfo read_header(ByteReader& r, std::span<const uint8_t> stream, const Limits& limits, uint32_t* tensor_count,
                       bool control = false);

// The same in two steps, without the checks that need the whole stream: the first 24 bytes, then the rest of the header.
StreamInfo read_header_start(ByteReader& r, const Limits& limits, uint32_t* tensor_count, bool control);
void read_header_rest(ByteReader& r, const Limits& limits, uint32_t tensor_count, StreamInfo& info);

// Throws Error(kInvalidArgument) unless there is one view a tensor, each with the tensor's count.
void check_sources(const Manifest& manifest, std::span<const TensorView> tensors);
// Throws Error(kInvalidArgument) unless there is one destination a tensor, each with the tensor's count of floats.
void check_destinations(const Manifest& manifest, std::span<const std::span<float>> dst);
// Throws Error(kInvalidArgument) for a weight that is not finite, e.g. one divided by a sum of no weights.
void check_weight(float weight);
// Throws Error(kMismatch) unless run, round, client and base model are the expected ones.
void check_ids(const MessageIds& got, const MessageIds& expected, std::string_view name);

// Bytes of the next segment: read from the stream if its codec's segments vary, checked against what the shape and the limits
// allow.
uint64_t read_segment_bytes(ByteReader& r, const SegmentCodec& codec, const SegmentShape& shape, const Limits& limits);

// Where the segments of a tensor lie. `segments` gets one span each. Throws on lengths that disagree with the record.
void find_segments(ByteReader& r, const TensorRecord& record, const SegmentCodec& codec, const Limits& limits,
                   std::vector<std::span<const uint8_t>>& segments);

}  // namespace kpd::gradient
