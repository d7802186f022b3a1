// gradient: reading and writing of header, manifest, codec table and segment positions (docs/format/gradient.md).
#include "gradient/stream_format.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <unordered_set>
#include <utility>

#include "kpd/base/utf8.h"
#include "gradient/eden.h"
#include "gradient/baselines.h"
#include "kpd/base/hash.h"
#include "kpd/base/crc32.h"
#include "kpd/gradient/stream_info.h"

namespace kpd::gradient {
namespace {

enum KeyKind : uint64_t { kRotationKey = 0, kOwnKey = 1, kSharedRotationKey = 2 };

uint64_t derive(const RunSecret& secret, uint64_t manifest_hash, const MessageIds& ids, uint64_t client, uint64_t index,
                KeyKind kind) {
  static constexpr char kLabel[] = "kpd-gradient-2";  // 14 bytes without the final 0
  uint8_t text[14 + 32 + 6 * 8];
  ByteWriter w(text);
  w.text(std::string_view(kLabel, 14));
  w.bytes(secret.bytes);
  w.u64(manifest_hash);
  w.u64(ids.run);
  w.u64(ids.round);
  w.u64(client);
  w.u64(index);
  w.u64(kind);
  return hash64(text);
}

// Product of dims, at most `max`.
uint64_t checked_count(const ByteReader& r, const std::vector<uint64_t>& shape, uint64_t max, const std::string& name) {
  uint64_t count = 1;
  for (const uint64_t d : shape) {
    if (d != 0 && count > max / d)
      r.throw_at(ErrorCode::kLimitExceeded, r.offset(), "tensor ", printable(name), " has more than ", max, " elements");
    count *= d;
  }
  return count;
}

// Names go into files and error lines.
bool is_plain_utf8(std::string_view text, bool control_characters = false) {
  for (size_t i = 0; i < text.size();) {
    const uint8_t c = static_cast<uint8_t>(text[i]);
    const Utf8Sequence s = utf8_sequence_at(text, i);
    if (!s.whole || (!control_characters && (c < 0x20 || c == 0x7f))) return false;
    i += s.bytes;
  }
  return true;
}

Manifest read_manifest(ByteReader& r, uint32_t tensor_count, const Limits& limits) {
  Manifest m;
  std::unordered_set<std::string> names;
  for (uint32_t i = 0; i < tensor_count; ++i) {
    TensorInfo t;
    const uint16_t name_bytes = r.u16("length of a tensor name");
    if (name_bytes > limits.max_name_bytes) {
      r.throw_at(ErrorCode::kLimitExceeded, r.offset() - 2, "name of tensor ", i, " has ", name_bytes, " bytes, the limit is ",
                 limits.max_name_bytes);
    }
    const auto name = r.take(name_bytes, "tensor name");
    t.name.assign(name.begin(), name.end());
    if (!is_plain_utf8(t.name)) r.corrupt("name of tensor ", i, " is not UTF-8 without control characters");
    if (!names.insert(t.name).second) r.corrupt("two tensors are named ", printable(t.name));
    const uint8_t dtype = r.u8("tensor dtype");
    if (dtype >= kDTypes) r.corrupt("dtype ", dtype, " of tensor ", printable(t.name), ", expected 0 to ", kDTypes - 1);
    t.dtype = static_cast<DType>(dtype);
    const uint8_t dims = r.u8("number of dimensions");
    if (dims > limits.max_dims) {
      r.throw_at(ErrorCode::kLimitExceeded, r.offset() - 1, "tensor ", printable(t.name), " has ", dims,
                 " dimensions, the limit is ", limits.max_dims);
    }
    for (uint8_t d = 0; d < dims; ++d) t.shape.push_back(r.u64("dimension"));
    checked_count(r, t.shape, limits.max_elements, t.name);
    m.push_back(std::move(t));
  }
  return m;
}

std::string read_text(ByteReader& r, uint64_t end) {
  const uint32_t bytes = r.u32("length of a string");
  if (bytes > end - r.offset()) r.corrupt("a string of ", bytes, " bytes passes the end ", end, " of the metadata");
  const auto text = r.take(bytes, "text");
  std::string out(text.begin(), text.end());
  if (!is_plain_utf8(out, true)) r.corrupt("a string of the metadata is not UTF-8");
  return out;
}

void read_metadata(ByteReader& r, uint64_t bytes, const Limits& limits, FileMetadata& metadata) {
  const uint64_t end = r.offset() + bytes;
  while (r.offset() < end) {
    if (end - r.offset() < 8) r.corrupt("the metadata ends within a pair of strings");
    if (metadata.size() == limits.max_tensors) {
      r.throw_at(ErrorCode::kLimitExceeded, r.offset(), "metadata of more than ", limits.max_tensors, " pairs of strings");
    }
    std::string key = read_text(r, end);
    if (end - r.offset() < 4) r.corrupt("the metadata ends within a pair of strings");
    metadata.emplace_back(std::move(key), read_text(r, end));
  }
}

void read_extensions(ByteReader& r, uint64_t header_bytes, const Limits& limits, StreamInfo& info) {
  bool has_metadata = false;
  while (r.offset() < header_bytes) {
    if (header_bytes - r.offset() < kExtensionHeadBytes)
      r.corrupt("header extension cut short by the header length ", header_bytes);
    const uint16_t type = r.u16("extension type");
    const uint32_t bytes = r.u32("extension length");
    if (bytes > header_bytes - r.offset())
      r.corrupt("header extension of ", bytes, " bytes passes the header's end ", header_bytes);
    if ((type & kCriticalExtension) != 0) {
      r.throw_at(ErrorCode::kUnsupported, r.offset() - kExtensionHeadBytes, "critical extension ", type,
                 " is not known to this version");
    }
    if (info.is_file && type == kMetadataExtension) {
      if (std::exchange(has_metadata, true)) r.corrupt("a second extension of metadata");
      read_metadata(r, bytes, limits, info.metadata);
    } else {
      r.skip(bytes, "extension");
    }
  }
}

// Elements travel as they are, however many a block.
bool is_plain(uint8_t method) { return method == kFloat32Id || method == kBf16Id || method == kExactId; }

}  // namespace

TensorKeys tensor_keys(const RunSecret& secret, uint64_t manifest_hash, const MessageIds& ids, uint64_t index,
                       const WireParams& params) {
  const bool shared = (params.flags & kFlagDither) != 0;
  return {shared ? derive(secret, manifest_hash, ids, 0, index, kSharedRotationKey)
                 : derive(secret, manifest_hash, ids, ids.client, index, kRotationKey),
          derive(secret, manifest_hash, ids, ids.client, index, kOwnKey)};
}

WireParams resolve_params(const WireParams& record, uint64_t count, DType dtype) {
  if (dtype_is_exact(dtype)) return exact_params(dtype);
  return count < kMinCodedElements ? raw_params() : resolve_record(record, count);
}

std::string printable(std::string_view name) {
  constexpr size_t kShown = 64;
  std::string out = "'";
  for (const char c : name.substr(0, kShown)) out += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
  return out + (name.size() > kShown ? "...'" : "'");
}

void check_manifest(const Manifest& manifest) {
  std::unordered_set<std::string_view> names;
  for (const TensorInfo& t : manifest) {
    if (!is_plain_utf8(t.name) || t.name.size() > Limits{}.max_name_bytes || t.shape.size() > Limits{}.max_dims) {
      fail(ErrorCode::kInvalidArgument, "tensor ", printable(t.name),
           ": expected a name in UTF-8 without control characters, at most ", Limits{}.max_name_bytes, " bytes, and at most ",
           Limits{}.max_dims, " dimensions");
    }
    if (!names.insert(t.name).second) fail(ErrorCode::kInvalidArgument, "two tensors are named ", printable(t.name));
  }
}

uint64_t manifest_bytes(const Manifest& manifest) {
  uint64_t bytes = 0;
  for (const TensorInfo& t : manifest) bytes += 2 + t.name.size() + 2 + 8 * t.shape.size();
  return bytes;
}

void write_manifest(ByteWriter& w, const Manifest& manifest) {
  for (const TensorInfo& t : manifest) {
    if (t.name.size() > 65535 || t.shape.size() > 255)
      fail(ErrorCode::kInvalidArgument, "tensor name or shape too long: ", t.name);
    w.u16(static_cast<uint16_t>(t.name.size()));
    w.text(t.name);
    w.u8(static_cast<uint8_t>(t.dtype));
    w.u8(static_cast<uint8_t>(t.shape.size()));
    for (const uint64_t d : t.shape) w.u64(d);
  }
}

uint64_t metadata_bytes(const FileMetadata& metadata) {
  uint64_t bytes = metadata.empty() ? 0 : kExtensionHeadBytes;
  for (const auto& [key, value] : metadata) bytes += 8 + key.size() + value.size();
  return bytes;
}

void write_metadata(ByteWriter& w, const FileMetadata& metadata) {
  if (metadata.empty()) return;
  const uint64_t bytes = metadata_bytes(metadata) - kExtensionHeadBytes;
  if (bytes > Limits{}.max_header_bytes)
    fail(ErrorCode::kInvalidArgument, "metadata of ", bytes, " bytes, the limit is ", Limits{}.max_header_bytes);
  w.u16(kMetadataExtension);
  w.u32(static_cast<uint32_t>(bytes));
  for (const auto& [key, value] : metadata) {
    for (const std::string* text : {&key, &value}) {
      if (!is_plain_utf8(*text, true)) fail(ErrorCode::kInvalidArgument, "metadata ", printable(key), ": is not UTF-8");
      w.u32(static_cast<uint32_t>(text->size()));
      w.text(*text);
    }
  }
}

StreamInfo read_header_start(ByteReader& r, const Limits& limits, bool control) {
  StreamInfo info;
  const auto magic = r.take(4, "magic 'KPDG'");
  if (!std::equal(magic.begin(), magic.end(), kMagic)) {
    r.throw_at(ErrorCode::kCorruptData, 0, "not a kpd gradient stream: expected the magic bytes 'KPDG'");
  }
  info.major = r.u8("major version");
  info.minor = r.u8("minor version");
  if (info.major != kFormatMajor) {
    r.throw_at(ErrorCode::kUnsupported, 4, "format version ", info.major, ".", info.minor, ", this program reads ",
               kFormatMajor, ".x");
  }
  const uint16_t flags = r.u16("header flags");
  info.is_file = (flags & kFlagMessage) == 0;
  info.is_streamed = (flags & kFlagStreamed) != 0;
  info.is_authenticated = (flags & kFlagAuthenticated) != 0;
  if ((flags & ~(kFlagMessage | kFlagStreamed | kFlagPackets | kFlagAuthenticated)) != 0)
    r.corrupt("unknown header flags ", flags);
  if (info.is_file && info.is_authenticated) r.corrupt("header flags ", flags, ": a file has no MAC field");
  if (((flags & kFlagPackets) != 0) != control) {
    r.throw_at(ErrorCode::kUnsupported, 6,
               control ? "not the control part of a packetized message"
                       : "the control part of a packetized message; it needs its packets");
  }
  info.header_bytes = r.u32("header length");
  info.n_tensors = r.u32("number of tensors");
  info.total_bytes = r.u64("total length");
  const uint64_t fixed = info.is_file ? kFileHeaderBytes : kMessageHeaderBytes + (info.is_authenticated ? kMacBytes : 0);
  if (info.header_bytes < fixed) {
    r.throw_at(ErrorCode::kCorruptData, 8, "header length ", info.header_bytes, " is too short");
  }
  if (info.header_bytes > limits.max_header_bytes) {
    r.throw_at(ErrorCode::kLimitExceeded, 8, "a header of ", info.header_bytes, " bytes, the limit is ",
               limits.max_header_bytes);
  }
  if (info.n_tensors > limits.max_tensors) {
    r.throw_at(ErrorCode::kLimitExceeded, 12, info.n_tensors, " tensors, the limit is ", limits.max_tensors);
  }
  if (info.is_file && info.n_tensors > (info.header_bytes - fixed) / kLeastManifestEntry) {
    r.throw_at(ErrorCode::kCorruptData, 12, info.n_tensors, " tensors do not fit a header of ", info.header_bytes, " bytes");
  }
  return info;
}

void read_header_rest(ByteReader& r, const Limits& limits, StreamInfo& info) {
  if (info.is_file) {
    info.seed = r.u64("seed");
    info.ids.round = r.u64("round");
    info.ids.client = r.u64("client");
    info.manifest = read_manifest(r, info.n_tensors, limits);
    info.manifest_hash = manifest_hash(info.manifest);
  } else {
    info.manifest_hash = r.u64("manifest hash");
    info.ids.run = r.u64("run id");
    info.ids.round = r.u64("round");
    info.ids.client = r.u64("client");
    info.ids.base_model_hash = r.u64("base model hash");
    info.ids.weight = r.u64("weight");
    if (info.is_authenticated) {
      const auto mac = r.take(kMacBytes, "MAC field");
      std::copy(mac.begin(), mac.end(), info.mac.begin());
    }
  }
  if (r.offset() > info.header_bytes) {
    r.throw_at(ErrorCode::kCorruptData, 8, "header length ", info.header_bytes, ", but the manifest ends at ", r.offset());
  }
  read_extensions(r, info.header_bytes, limits, info);
}

StreamInfo read_header(ByteReader& r, std::span<const uint8_t> stream, const Limits& limits, bool control) {
  StreamInfo info = read_header_start(r, limits, control);
  if (info.is_streamed ? info.total_bytes != kUnknownLength : info.total_bytes != stream.size()) {
    r.throw_at(ErrorCode::kCorruptData, 16, "the header says ", info.total_bytes, " bytes, there are ", stream.size());
  }
  info.total_bytes = stream.size();
  if (stream.size() < kChecksumBytes || info.header_bytes > stream.size() - kChecksumBytes) {
    r.throw_at(ErrorCode::kCorruptData, 8, "header length ", info.header_bytes, " does not fit a stream of ", stream.size(),
               " bytes");
  }
  const uint64_t body = stream.size() - kChecksumBytes;
  if (crc32(stream.first(body)) != load_u32(stream.data() + body)) {
    r.throw_at(ErrorCode::kCorruptData, body, "checksum mismatch: the stream is damaged");
  }
  read_header_rest(r, limits, info);
  return info;
}

void check_sources(const Manifest& manifest, std::span<const TensorView> tensors) {
  if (tensors.size() != manifest.size()) {
    fail(ErrorCode::kInvalidArgument, tensors.size(), " tensors given, the manifest has ", manifest.size());
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorInfo& wanted = manifest[i];
    if (tensors[i].count != wanted.count()) {
      fail(ErrorCode::kInvalidArgument, "tensor '", wanted.name, "' has ", tensors[i].count, " elements, the manifest says ",
           wanted.count());
    }
    if (dtype_is_exact(wanted.dtype) ? tensors[i].dtype != wanted.dtype : dtype_is_exact(tensors[i].dtype)) {
      fail(ErrorCode::kInvalidArgument, "tensor '", wanted.name, "' is ", dtype_name(tensors[i].dtype), ", the manifest says ",
           dtype_name(wanted.dtype));
    }
  }
}

void check_destinations(const Manifest& manifest, std::span<const std::span<float>> dst) {
  if (dst.size() != manifest.size()) {
    fail(ErrorCode::kInvalidArgument, "decode: ", dst.size(), " destinations, the manifest has ", manifest.size(), " tensors");
  }
  for (size_t i = 0; i < dst.size(); ++i) {
    if (dst[i].size() == manifest[i].count() || (dst[i].empty() && dtype_is_exact(manifest[i].dtype))) continue;
    fail(ErrorCode::kInvalidArgument, "decode: destination of '", manifest[i].name, "' has ", dst[i].size(),
         " floats, expected ", manifest[i].count());
  }
}

std::vector<std::span<float>> spans_of(const Manifest& manifest, std::span<float> all) {
  std::vector<std::span<float>> spans;
  size_t at = 0;
  for (const TensorInfo& info : manifest) {
    spans.push_back(all.subspan(at, info.count()));
    at += info.count();
  }
  return spans;
}

void check_weight(float weight) {
  if (!std::isfinite(weight)) fail(ErrorCode::kInvalidArgument, "decode: weight ", weight, ", expected a finite number");
}

void check_model(const StreamInfo& info, uint64_t manifest_hash, uint64_t tensors, std::string_view name) {
  if (info.is_file) fail(ErrorCode::kMismatch, name, ": this is a file, expected a message");
  if (info.manifest_hash == manifest_hash && info.n_tensors == tensors) return;
  fail(ErrorCode::kMismatch, name, ": the message is about another model: manifest hash ", info.manifest_hash, ", expected ",
       manifest_hash);
}

void check_ids(const MessageIds& got, const MessageIds& expected, std::string_view name) {
  const auto same = [&](uint64_t value, uint64_t want, const char* what) {
    if (value != want)
      throw Error(ErrorCode::kMismatch, str(name, ": the message has ", what, " ", value, ", expected ", want));
  };
  same(got.run, expected.run, "run");
  same(got.round, expected.round, "round");
  same(got.client, expected.client, "client");
  same(got.base_model_hash, expected.base_model_hash, "base model hash");
}

uint64_t read_segment_bytes(ByteReader& r, const WireParams& params, const SegmentCodec& codec, const SegmentShape& shape,
                            const Limits& limits) {
  const uint64_t most = codec.segment_bytes(shape);
  uint64_t bytes = most;
  if (!codec.fixed_size()) {
    bytes = r.u32("length of a segment");
    if (bytes > most) r.corrupt("segment of ", bytes, " bytes, at most ", most, " are possible");
  } else if (const uint64_t head = codec.head_bytes(shape); head > 0) {
    ByteReader ahead = r;
    bytes = codec.length_from_head(ahead.take(head, "head of a segment"), shape);
  }
  if (is_plain(params.method)) return bytes;
  if (bytes < kLeastBlockBytes * shape.n_blocks || bytes < shape.elements / limits.max_elements_per_byte) {
    r.corrupt("segment of ", bytes, " bytes claims ", shape.elements, " elements");
  }
  return bytes;
}

void find_segments(ByteReader& r, const Unit& unit, const Limits& limits, std::vector<std::span<const uint8_t>>& segments) {
  segments.clear();
  if (unit.count == 0) return;
  if (unit.count > limits.max_elements) {
    r.throw_at(ErrorCode::kLimitExceeded, r.offset(), "tensor ", unit.tensor, ": ", unit.count, " elements, the limit is ",
               limits.max_elements);
  }
  // Elements as they are take their bytes and every other method at least 4 a block, so this also bounds the list before it
  // grows.
  const uint64_t least = is_plain(unit.params.method)
                             ? unit.count * (unit.params.rate >> 19)
                             : kLeastBlockBytes * std::max<uint64_t>(1, unit.count >> unit.params.log2_block);
  if (least > r.remaining()) {
    r.corrupt("a tensor of ", unit.count, " elements needs at least ", least, " bytes, ", r.remaining(), " are left");
  }
  const uint64_t n = unit.segments();
  segments.reserve(n);
  for (uint64_t i = 0; i < n; ++i) {
    const uint64_t bytes = read_segment_bytes(r, unit.params, *unit.codec, unit.segment(i), limits);
    segments.push_back(r.take(bytes, "segment"));
  }
}

}  // namespace kpd::gradient
