// gradient: encoding of whole messages and files (message.h).
//
// Segments are independent, so they are encoded in parallel, each at the place where its worst case would lie; variable ones
// are then moved together.
#include "kpd/gradient/message.h"

#include <algorithm>
#include <cstring>
#include <functional>

#include "gradient/encode_plan.h"
#include "gradient/stream_format.h"
#include "kpd/base/hash.h"
#include "kpd/base/crc32.h"
#include "kpd/base/threads.h"

namespace kpd::gradient {

uint64_t TensorInfo::count() const {
  uint64_t n = 1;
  for (const uint64_t d : shape) {
    if (d != 0 && n > (uint64_t{1} << 62) / d) fail(ErrorCode::kLimitExceeded, "tensor '", name, "': shape overflows");
    n *= d;
  }
  return n;
}

uint64_t manifest_hash(const Manifest& manifest) {
  std::vector<uint8_t> bytes(4 + manifest_bytes(manifest));
  ByteWriter w(bytes);
  w.u32(static_cast<uint32_t>(manifest.size()));
  write_manifest(w, manifest);
  return hash64(bytes);
}

RunSecret RunSecret::from_seed(uint64_t seed) {
  uint8_t text[16];
  std::memcpy(text, "kpd-seed", 8);
  store_u64(text + 8, seed);
  RunSecret s;
  s.bytes = sha256(text);
  return s;
}

struct Encoder::Impl {
  Impl(Manifest the_manifest, CodecPolicy policy, RunSecret the_secret, const EncodeOptions& the_options)
      : options(the_options), secret(the_secret), plan(std::move(the_manifest), std::move(policy), options) {
    hash = manifest_hash(plan.manifest());
  }

  EncodeOptions options;
  RunSecret secret;
  EncodePlan plan;
  uint64_t hash = 0;

  // The stream form, chunk by chunk.
  struct Stream {
    enum Stage { kDone, kHeader, kSegments, kGivenUp };
    Stage stage = kDone;
    MessageIds ids;
    std::vector<TensorView> views;
    size_t job = 0;
    uint32_t crc = 0;
    uint64_t bytes = 0;
  };
  Stream stream;

  void prepare(std::span<const TensorView> tensors, const MessageIds& ids, const RunSecret& with);
  uint64_t close_gaps(std::span<uint8_t> dst, uint64_t end);
  uint64_t next_chunk(std::span<uint8_t> dst, EncodeReport* report);
  void next_segment(ByteWriter& w, std::span<uint8_t> dst);
  uint64_t encode(std::span<const TensorView> tensors, const MessageIds& ids, const RunSecret& with, const FileIds* file,
                  std::span<uint8_t> dst, EncodeReport* report);
  uint64_t message_header_bytes() const { return kMessageHeaderBytes + (options.authenticated ? kMacBytes : 0); }
  uint64_t file_header_bytes() const {
    return kFileHeaderBytes + manifest_bytes(plan.manifest()) + metadata_bytes(options.metadata);
  }
  void write_header(ByteWriter& w, const MessageIds& ids, const FileIds* file, uint64_t total) const;
};

// Up to the first segment.
void Encoder::Impl::write_header(ByteWriter& w, const MessageIds& ids, const FileIds* file, uint64_t total) const {
  const Manifest& manifest = plan.manifest();
  const uint64_t header = file != nullptr ? file_header_bytes() : message_header_bytes();
  w.bytes(kMagic);
  w.u8(kFormatMajor);
  w.u8(kFormatMinor);
  w.u16(static_cast<uint16_t>((file != nullptr ? 0 : kFlagMessage) | (total == kUnknownLength ? kFlagStreamed : 0) |
                              (file == nullptr && options.authenticated ? kFlagAuthenticated : 0)));
  w.u32(static_cast<uint32_t>(header));
  w.u32(static_cast<uint32_t>(manifest.size()));
  w.u64(total);  // 0: filled in when it is known
  if (file != nullptr) {
    w.u64(file->seed);
    w.u64(file->round);
    w.u64(file->client);
    write_manifest(w, manifest);
    write_metadata(w, options.metadata);
  } else {
    w.u64(hash);
    w.u64(ids.run);
    w.u64(ids.round);
    w.u64(ids.client);
    w.u64(ids.base_model_hash);
    w.u64(ids.weight);
    for (uint64_t i = kMessageHeaderBytes; i < header; ++i) w.u8(0);  // the MAC field
  }
  write_codec_table(w, plan.table());
}

void Encoder::Impl::prepare(std::span<const TensorView> tensors, const MessageIds& ids, const RunSecret& with) {
  if (stream.stage != Stream::kDone) stream.stage = Stream::kGivenUp;  // it would go on with this one's plan and keys
  plan.prepare(tensors, hash, ids, with);
}

uint64_t Encoder::Impl::encode(std::span<const TensorView> tensors, const MessageIds& ids, const RunSecret& with,
                               const FileIds* file, std::span<uint8_t> dst, EncodeReport* report) {
  // A file's keys come from what it carries alone.
  prepare(tensors, ids, with);
  ByteWriter w(dst);
  write_header(w, ids, file, 0);
  const uint64_t start = w.size();
  uint64_t at = start;
  std::vector<Job>& jobs = plan.jobs();
  for (Job& j : jobs) {
    at += plan.has_length(j) ? 4 : 0;
    j.offset = at;
    at += j.max_bytes;
  }
  if (at + kChecksumBytes > dst.size())
    fail(ErrorCode::kInvalidArgument, "encode: ", dst.size(), " bytes of room, ", at + kChecksumBytes, " may be needed");
  // By reference: a std::function of so many captures would allocate.
  const auto encode_one = [&](size_t i, int worker) {
    Job& j = jobs[i];
    plan.encode(j, tensors, dst.subspan(j.offset, j.max_bytes), plan.scratch()[static_cast<size_t>(worker)]);
    if (options.on_progress) options.on_progress(j.shape.elements);
  };
  parallel_for(jobs.size(), options.threads, std::cref(encode_one));
  const uint64_t end = close_gaps(dst, start);
  const uint64_t total = end + kChecksumBytes;
  store_u64(dst.data() + 16, total);
  store_u32(dst.data() + end, crc32(dst.first(end)));
  if (report != nullptr) plan.report(total, *report);
  return total;
}

// Writes lengths and moves segments to their final place; nothing moves right. Returns the end.
uint64_t Encoder::Impl::close_gaps(std::span<uint8_t> dst, uint64_t end) {
  for (const Job& j : plan.jobs()) {
    if (plan.has_length(j)) {
      store_u32(dst.data() + end, static_cast<uint32_t>(j.bytes));
      end += 4;
    }
    if (end != j.offset) std::memmove(dst.data() + end, dst.data() + j.offset, j.bytes);
    end += j.bytes;
  }
  return end;
}

void Encoder::Impl::next_segment(ByteWriter& w, std::span<uint8_t> dst) {
  Job& j = plan.jobs()[stream.job];
  const size_t at = plan.has_length(j) ? 4 : 0;
  if (dst.size() < at + j.max_bytes)
    fail(ErrorCode::kInvalidArgument, "next_chunk: ", dst.size(), " bytes of room, ", at + j.max_bytes, " may be needed");
  stream.stage = Stream::kGivenUp;  // unless this returns
  plan.encode(j, stream.views, dst.subspan(at, j.max_bytes), plan.scratch()[0]);
  stream.stage = Stream::kSegments;
  if (at > 0) w.u32(static_cast<uint32_t>(j.bytes));
  w.reserve(j.bytes);
  ++stream.job;
}

uint64_t Encoder::Impl::next_chunk(std::span<uint8_t> dst, EncodeReport* report) {
  if (stream.stage == Stream::kGivenUp) {
    fail(ErrorCode::kInvalidArgument,
         "next_chunk: the stream was given up, by an error or for another message of this encoder");
  }
  ByteWriter w(dst);
  if (stream.stage == Stream::kHeader) {
    write_header(w, stream.ids, nullptr, kUnknownLength);
    stream.stage = Stream::kSegments;
  } else if (stream.stage == Stream::kSegments && stream.job < plan.jobs().size()) {
    next_segment(w, dst);
  } else if (stream.stage == Stream::kSegments) {
    w.u32(stream.crc);
    stream.stage = Stream::kDone;
    if (report != nullptr) plan.report(stream.bytes + kChecksumBytes, *report);
  }
  stream.crc = crc32(dst.first(w.size()), stream.crc);
  stream.bytes += w.size();
  return w.size();
}

namespace {

EncodeOptions with_threads(EncodeOptions options) {
  if (options.threads <= 0) options.threads = hardware_threads();
  return options;
}

}  // namespace

Encoder::Encoder(Manifest manifest, CodecPolicy policy, RunSecret secret, EncodeOptions options)
    : impl_(std::make_unique<Impl>(std::move(manifest), std::move(policy), secret, with_threads(options))) {}
Encoder::~Encoder() = default;
Encoder::Encoder(Encoder&&) noexcept = default;
Encoder& Encoder::operator=(Encoder&&) noexcept = default;

uint64_t Encoder::max_bytes() const {
  return std::max(impl_->message_header_bytes(), impl_->file_header_bytes()) + impl_->plan.most_bytes() + kChecksumBytes;
}

uint64_t Encoder::encode_message(std::span<const TensorView> tensors, const MessageIds& ids, std::span<uint8_t> dst,
                                 EncodeReport* report) {
  return impl_->encode(tensors, ids, impl_->secret, nullptr, dst, report);
}

uint64_t Encoder::encode_file(std::span<const TensorView> tensors, const FileIds& ids, std::span<uint8_t> dst,
                              EncodeReport* report) {
  MessageIds keys;
  keys.round = ids.round;
  keys.client = ids.client;
  return impl_->encode(tensors, keys, RunSecret::from_seed(ids.seed), &ids, dst, report);
}

void Encoder::begin_stream(std::span<const TensorView> tensors, const MessageIds& ids) {
  impl_->prepare(tensors, ids, impl_->secret);
  Impl::Stream& s = impl_->stream;
  s.stage = Impl::Stream::kHeader;
  s.ids = ids;
  s.views.assign(tensors.begin(), tensors.end());
  s.job = s.bytes = 0;
  s.crc = 0;
}

uint64_t Encoder::max_chunk_bytes() const {
  return std::max(impl_->message_header_bytes() + impl_->plan.most_table_bytes(), impl_->plan.most_segment_bytes());
}

uint64_t Encoder::next_chunk(std::span<uint8_t> dst, EncodeReport* report) { return impl_->next_chunk(dst, report); }

const Manifest& Encoder::manifest() const { return impl_->plan.manifest(); }
const CodecPolicy& Encoder::policy() const { return impl_->plan.policy(); }
std::span<const UnitReport> Encoder::unit_reports() { return impl_->plan.unit_reports(); }

}  // namespace kpd::gradient
