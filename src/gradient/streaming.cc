// gradient: the incremental decoder (kpd/gradient/streaming.h). One state a part of the format; a part is parsed when it is
// complete.
#include "kpd/gradient/streaming.h"

#include <algorithm>

#include "gradient/receiver.h"
#include "kpd/base/crc32.h"
#include "kpd/gradient/stream_info.h"

namespace kpd::gradient {
namespace {

inline constexpr uint64_t kHeaderStartBytes = 24;

}  // namespace

struct StreamDecoder::Impl {
  enum Stage { kIdle, kHeader, kTable, kLength, kSegment, kChecksum, kDone };

  Impl(Manifest manifest, RunSecret secret, const Limits& limits) : receiver(std::move(manifest), secret, limits) {}

  Receiver receiver;
  Scratch scratch;

  Stage stage = kIdle;
  MessageIds expected;
  float weight = 1;
  std::vector<std::span<float>> acc;
  std::vector<uint8_t> pending;  // of the part being collected
  uint64_t offset = 0;           // of the part in the message
  uint64_t needed = 0;           // bytes of the part; taking it may raise them
  uint32_t crc = 0;
  uint64_t elements = 0, announced_bytes = 0;
  uint64_t covered = 0, run_at = 0;  // of a codec table that is coming in: tensors assigned, place of the next run
  size_t unit = 0;
  uint64_t segment = 0;
  TensorKeys keys;

  bool part_goes_on = false;

  void expect(Stage next, uint64_t bytes) {
    stage = next;
    needed = bytes;
  }
  // The part turns out to be longer.
  void go_on(uint64_t bytes) {
    needed = bytes;
    part_goes_on = true;
  }
  void take(std::span<const uint8_t> part);
  void take_header(std::span<const uint8_t> part);
  void take_table(std::span<const uint8_t> part);
  bool table_is_complete(std::span<const uint8_t> part);
  void take_length(std::span<const uint8_t> part);
  void take_segment(std::span<const uint8_t> part);
  void take_checksum(std::span<const uint8_t> part);
  void next_segment();
};

void StreamDecoder::Impl::take_header(std::span<const uint8_t> part) {
  ByteReader r(part, "message");
  StreamInfo info = read_header_start(r, receiver.limits(), false);
  if (info.is_file) fail(ErrorCode::kMismatch, "message: this is a file, expected a message");
  if (part.size() < info.header_bytes) {
    return go_on(info.header_bytes);
  }
  read_header_rest(r, receiver.limits(), info);
  receiver.accept(info, expected, "message");
  announced_bytes = info.total_bytes;
  covered = run_at = 0;
  expect(kTable, 2);
}

// Whether the codec table is complete, or so wrong that reading it will say so; else it goes on for as far as is sure.
bool StreamDecoder::Impl::table_is_complete(std::span<const uint8_t> part) {
  const uint32_t n = load_u16(part.data());
  const size_t tensors = receiver.manifest().size();
  const uint64_t records = 2 + kRecordBytes * n;
  if (n > kMaxTableCodecs || n > tensors) return true;
  if (part.size() < records) {
    go_on(records);
    return false;
  }
  run_at = std::max(run_at, records);
  while (covered < tensors) {
    uint64_t run = 0, at = run_at + 1;
    bool ends = false;
    for (int shift = 0; at < part.size() && shift < 63 && !ends; shift += 7, ++at) {
      run |= static_cast<uint64_t>(part[at] & 0x7f) << shift;
      ends = part[at] < 0x80;
    }
    if (!ends && at < part.size()) return true;
    if (!ends) {
      go_on(std::max<uint64_t>(run_at + 2, part.size() + 1));
      return false;
    }
    if (run == 0 || run > tensors - covered) return true;
    covered += run;
    run_at = at;
  }
  return true;
}

void StreamDecoder::Impl::take_table(std::span<const uint8_t> part) {
  if (!table_is_complete(part)) return;
  ByteReader r(part, "message", offset);
  receiver.read_units(r, part);
  unit = 0;
  segment = 0;
  next_segment();
}

void StreamDecoder::Impl::next_segment() {
  const Units& units = receiver.units();
  while (unit < units.size() && segment == units[unit].segments()) {
    ++unit;
    segment = 0;
  }
  if (unit == units.size()) return expect(kChecksum, kChecksumBytes);
  const Unit& u = units[unit];
  if (segment == 0) keys = receiver.keys(u);
  const SegmentShape shape = u.segment(segment);
  if (!u.codec->fixed_size()) return expect(kLength, 4);
  const uint64_t head = u.codec->head_bytes(shape);
  expect(kSegment, head > 0 ? head : u.codec->segment_bytes(shape));
}

void StreamDecoder::Impl::take_length(std::span<const uint8_t> part) {
  const Unit& u = receiver.units()[unit];
  ByteReader r(part, "message", offset);
  expect(kSegment, read_segment_bytes(r, u.params, *u.codec, u.segment(segment), receiver.limits()));
}

void StreamDecoder::Impl::take_segment(std::span<const uint8_t> part) {
  const Unit& u = receiver.units()[unit];
  const SegmentShape shape = u.segment(segment);
  if (u.codec->fixed_size()) {
    ByteReader r(part, "message", offset);
    const uint64_t bytes = read_segment_bytes(r, u.params, *u.codec, shape, receiver.limits());
    if (bytes > part.size()) return go_on(bytes);  // this was its head
  }
  try {
    decode_into(receiver.units(), u, shape, part, keys, weight, true, acc, scratch);
  } catch (const Error& e) {
    throw Error(e.code(), str("message: tensor ", u.tensor, ", segment at byte ", offset, ": ", e.what()), offset);
  }
  elements += shape.elements;
  ++segment;
  next_segment();
}

void StreamDecoder::Impl::take_checksum(std::span<const uint8_t> part) {
  if (load_u32(part.data()) != crc)
    fail_at(ErrorCode::kCorruptData, "message", offset, "checksum mismatch: the message is damaged");
  if (announced_bytes != kUnknownLength && announced_bytes != offset + kChecksumBytes) {
    fail(ErrorCode::kCorruptData, "message: the header says ", announced_bytes, " bytes, it ended after ",
         offset + kChecksumBytes);
  }
  expect(kDone, 0);
}

void StreamDecoder::Impl::take(std::span<const uint8_t> part) {
  switch (stage) {
    case kHeader:
      return take_header(part);
    case kTable:
      return take_table(part);
    case kLength:
      return take_length(part);
    case kSegment:
      return take_segment(part);
    case kChecksum:
      return take_checksum(part);
    default:
      fail_at(ErrorCode::kCorruptData, "message", offset, "bytes after the message's end");
  }
}

StreamDecoder::StreamDecoder(Manifest manifest, RunSecret secret, Limits limits)
    : impl_(std::make_unique<Impl>(std::move(manifest), secret, limits)) {}
StreamDecoder::~StreamDecoder() = default;
StreamDecoder::StreamDecoder(StreamDecoder&&) noexcept = default;
StreamDecoder& StreamDecoder::operator=(StreamDecoder&&) noexcept = default;

void StreamDecoder::begin(const MessageIds& expected, float weight, std::span<const std::span<float>> acc) {
  Impl& m = *impl_;
  m.receiver.check_target(acc, weight);
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
    fail_at(ErrorCode::kCorruptData, "message", m.offset, "bytes after the message's end");
  while (!bytes.empty() || (m.needed == 0 && m.stage != Impl::kDone)) {
    if (m.stage == Impl::kDone) fail_at(ErrorCode::kCorruptData, "message", m.offset, "bytes after the message's end");
    const uint64_t missing = m.needed - m.pending.size();
    const size_t n = static_cast<size_t>(std::min<uint64_t>(missing, bytes.size()));
    m.pending.insert(m.pending.end(), bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(n));
    bytes = bytes.subspan(n);
    if (m.pending.size() < m.needed) return;
    const Impl::Stage stage = m.stage;
    m.part_goes_on = false;
    m.take(m.pending);
    if (m.part_goes_on) continue;
    if (stage != Impl::kChecksum) m.crc = crc32(m.pending, m.crc);
    m.offset += m.pending.size();
    m.pending.clear();
  }
}

bool StreamDecoder::done() const { return impl_->stage == Impl::kDone; }
uint64_t StreamDecoder::elements() const { return impl_->elements; }

}  // namespace kpd::gradient
