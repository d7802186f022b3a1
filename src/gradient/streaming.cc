// gradient: the incremental decoder (kpd/gradient/streaming.h). One state a part of the format; a part is parsed when it is
// complete.
#include "kpd/gradient/streaming.h"

#include <algorithm>

#include "gradient/stream_format.h"
#include "kpd/base/hash.h"

namespace kpd::gradient {
namespace {

inline constexpr uint64_t kHeaderStartBytes = 24;

}  // namespace

struct StreamDecoder::Impl {
  enum Stage { kIdle, kHeader, kRecord, kLength, kSegment, kChecksum, kDone };

  Manifest manifest;
  RunSecret secret;
  Limits limits;
  uint64_t hash = 0;
  CodecCache codecs;
  Scratch scratch;

  Stage stage = kIdle;
  MessageIds expected;
  float weight = 1;
  std::vector<std::span<float>> acc;
  std::vector<uint8_t> pending;  // of the part being collected
  uint64_t offset = 0;           // of the part in the message
  uint64_t needed = 0;           // bytes of the part
  uint32_t crc = 0;
  uint64_t elements = 0, announced_bytes = 0;
  size_t tensor = 0;
  uint64_t segment = 0, segments = 0;
  CheckedRecord record;
  TensorKeys keys;
  MessageIds ids;

  void expect(Stage next, uint64_t bytes) {
    stage = next;
    needed = bytes;
  }
  // Handles the complete part; returns false if the part turns out to be longer.
  void take(std::span<const uint8_t> part);
  void take_header(std::span<const uint8_t> part);
  void take_record(std::span<const uint8_t> part);
  void take_segment(std::span<const uint8_t> part);
  void next_segment();
  SegmentShape shape() const { return segment_shape(record.record.count, 1u << record.record.params.log2_block, segment); }
};

void StreamDecoder::Impl::take_header(std::span<const uint8_t> part) {
  ByteReader r(part, "message");
  uint32_t count = 0;
  StreamInfo info = read_header_start(r, limits, &count, false);
  if (info.is_file) fail(ErrorCode::kMismatch, "message: this is a file, expected a message");
  if (part.size() < info.header_bytes) {
    needed = info.header_bytes;
    return;
  }
  read_header_rest(r, limits, count, info);
  if (info.manifest_hash != hash || count != manifest.size()) {
    fail(ErrorCode::kMismatch, "message: it is about another model: manifest hash ", info.manifest_hash, ", expected ", hash);
  }
  check_ids(info.ids, expected, "message");
  ids = info.ids;
  announced_bytes = info.total_bytes;
  tensor = 0;
  manifest.empty() ? expect(kChecksum, kChecksumBytes) : expect(kRecord, kRecordBytes);
}

void StreamDecoder::Impl::take_record(std::span<const uint8_t> part) {
  ByteReader r(part, "message", offset);
  record = read_record(r, tensor, limits, codecs);
  if (record.record.count != manifest[tensor].count() || record.record.dtype != manifest[tensor].dtype) {
    fail(ErrorCode::kCorruptData, "message: byte ", offset, ": tensor '", manifest[tensor].name,
         "' is not what the manifest says");
  }
  keys = tensor_keys(secret, ids, tensor, record.record.params);
  segment = 0;
  segments = segment_count(record.record.count, 1u << record.record.params.log2_block);
  next_segment();
}

void StreamDecoder::Impl::next_segment() {
  if (segment < segments) {
    record.codec->fixed_size() ? expect(kSegment, record.codec->segment_bytes(shape())) : expect(kLength, 4);
  } else if (++tensor < manifest.size()) {
    expect(kRecord, kRecordBytes);
  } else {
    expect(kChecksum, kChecksumBytes);
  }
}

void StreamDecoder::Impl::take_segment(std::span<const uint8_t> part) {
  const SegmentShape s = shape();
  const int exponent = record.record.params.exponent;
  if (exponent != 0)
    fail(ErrorCode::kUnsupported, "message: byte ", offset, ": a tensor with exponent ", exponent,
         " cannot be decoded while it arrives");
  try {
    record.codec->decode(part, s, keys, weight, true, acc[tensor].subspan(s.first_element, s.elements), scratch);
  } catch (const Error& e) {
    throw Error(e.code(), str("message: tensor ", tensor, ", segment at byte ", offset, ": ", e.what()));
  }
  elements += s.elements;
  ++segment;
  next_segment();
}

void StreamDecoder::Impl::take(std::span<const uint8_t> part) {
  switch (stage) {
    case kHeader:
      return take_header(part);
    case kRecord:
      return take_record(part);
    case kLength: {
      ByteReader r(part, "message", offset);
      return expect(kSegment, read_segment_bytes(r, *record.codec, shape(), limits));
    }
    case kSegment:
      return take_segment(part);
    case kChecksum:
      if (load_u32(part.data()) != crc)
        fail(ErrorCode::kCorruptData, "message: byte ", offset, ": checksum mismatch: the message is damaged");
      if (announced_bytes != kUnknownLength && announced_bytes != offset + kChecksumBytes) {
        fail(ErrorCode::kCorruptData, "message: the header says ", announced_bytes, " bytes, it ended after ",
             offset + kChecksumBytes);
      }
      return expect(kDone, 0);
    default:
      fail(ErrorCode::kCorruptData, "message: byte ", offset, ": bytes after the message's end");
  }
}

StreamDecoder::StreamDecoder(Manifest manifest, RunSecret secret, Limits limits) : impl_(std::make_unique<Impl>()) {
  impl_->manifest = std::move(manifest);
  impl_->secret = secret;
  impl_->limits = limits;
  impl_->hash = manifest_hash(impl_->manifest);
}
StreamDecoder::~StreamDecoder() = default;
StreamDecoder::StreamDecoder(StreamDecoder&&) noexcept = default;
StreamDecoder& StreamDecoder::operator=(StreamDecoder&&) noexcept = default;

void StreamDecoder::begin(const MessageIds& expected, float weight, std::span<const std::span<float>> acc) {
  Impl& m = *impl_;
  check_destinations(m.manifest, acc);
  check_weight(weight);
  m.codecs.begin_message();
  m.expected = expected;
  m.weight = weight;
  m.acc.assign(acc.begin(), acc.end());
  m.pending.clear();
  m.offset = 0;
  m.crc = 0;
  m.elements = 0;
  m.expect(Impl::kHeader, kHeaderStartBytes);
}

void StreamDecoder::feed(std::span<const uint8_t> bytes) {
  Impl& m = *impl_;
  if (m.stage == Impl::kIdle) fail(ErrorCode::kInvalidArgument, "feed: no message was begun");
  if (m.stage == Impl::kDone && !bytes.empty())
    fail(ErrorCode::kCorruptData, "message: byte ", m.offset, ": bytes after the message's end");
  while (!bytes.empty() || (m.needed == 0 && m.stage != Impl::kDone)) {
    if (m.stage == Impl::kDone) fail(ErrorCode::kCorruptData, "message: byte ", m.offset, ": bytes after the message's end");
    const uint64_t missing = m.needed - m.pending.size();
    const size_t n = static_cast<size_t>(std::min<uint64_t>(missing, bytes.size()));
    m.pending.insert(m.pending.end(), bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(n));
    bytes = bytes.subspan(n);
    if (m.pending.size() < m.needed) return;
    const uint64_t needed = m.needed;
    const Impl::Stage stage = m.stage;
    m.take(m.pending);
    if (m.stage == stage && stage == Impl::kHeader && m.needed > needed) continue;  // the header is longer than its start
    if (stage != Impl::kChecksum) m.crc = crc32(m.pending, m.crc);
    m.offset += m.pending.size();
    m.pending.clear();
  }
}

bool StreamDecoder::done() const { return impl_->stage == Impl::kDone; }
uint64_t StreamDecoder::elements() const { return impl_->elements; }

}  // namespace kpd::gradient
