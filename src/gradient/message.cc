// gradient: encoding of whole messages and files (message.h).
//
// Segments are independent, so they are encoded in parallel, each at the place where its worst case would lie; variable ones
// are then moved together.
#include "kpd/gradient/message.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>

#include "gradient/allocate.h"
#include "gradient/segment_codec.h"
#include "gradient/stream_format.h"
#include "kernels/hadamard.h"
#include "kpd/base/hash.h"
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

namespace {

struct Job {
  uint32_t tensor = 0;
  SegmentShape shape;
  uint64_t offset = 0;  // in dst: where the segment (after its length, if one travels) is encoded
  uint64_t max_bytes = 0;
  uint64_t bytes = 0;  // written
  SegmentStats stats;
};

// What nonfinite=pass turns a tensor into.
constexpr WireParams kRaw = {.method = 0, .log2_block = 12, .rate = 32u << 16};

struct TensorPlan {
  uint64_t count = 0;
  WireParams params;
  std::shared_ptr<const SegmentCodec> codec;  // null for an empty tensor
  std::vector<Job> jobs;
  uint64_t max_bytes = 0;  // record, lengths and segments
};

}  // namespace

struct Encoder::Impl {
  Manifest manifest;
  Codec codec;
  RunSecret secret;
  EncodeOptions options;
  uint64_t hash = 0;
  std::vector<TensorPlan> plans;
  CodecCache codecs;
  std::vector<Job*> jobs;
  std::vector<Scratch> scratch;
  std::vector<TensorKeys> keys;
  std::vector<double> energies;  // kFlagAllocate: per block of all tensors that are coded
  std::vector<uint32_t> lengths;
  std::vector<uint8_t> rates;
  std::vector<size_t> job_blocks;  // the first block of each job
  uint64_t body_bytes = 0;         // upper bound of records and segments
  uint64_t chunk_bytes = 0;        // of one chunk of a stream, whatever is encoded

  TensorPlan plan_tensor(uint32_t index, const WireParams& wanted) {
    TensorPlan p;
    p.count = manifest[index].count();
    p.params = resolve_params(wanted, p.count);
    p.max_bytes = kRecordBytes;
    if (p.count == 0) return p;
    p.codec = codecs.get(p.params);
    const uint32_t block = 1u << p.params.log2_block;
    const uint64_t n = segment_count(p.count, block);
    p.jobs.resize(n);
    for (uint64_t i = 0; i < n; ++i) {
      Job& j = p.jobs[i];
      j.tensor = index;
      j.shape = segment_shape(p.count, block, i);
      j.max_bytes = p.codec->segment_bytes(j.shape);
      p.max_bytes += j.max_bytes + (p.codec->fixed_size() ? 0 : 4);
    }
    return p;
  }

  void plan() {
    plans.clear();
    for (uint32_t i = 0; i < manifest.size(); ++i) plans.push_back(plan_tensor(i, codec.params()));
    body_bytes = 0;
    chunk_bytes = kMessageHeaderBytes;
    for (const TensorPlan& p : plans) {
      // nonfinite=pass may turn any tensor into float32.
      const bool may_be_raw = options.nonfinite == NonFinite::kPass && p.count > 0;
      body_bytes += std::max(p.max_bytes, may_be_raw ? kRecordBytes + 4 * p.count : 0);
      for (const Job& j : p.jobs) chunk_bytes = std::max(chunk_bytes, kRecordBytes + 4 + j.max_bytes);
      if (!may_be_raw) continue;
      const SegmentShape raw = segment_shape(p.count, 1u << kRaw.log2_block, 0);
      chunk_bytes = std::max(chunk_bytes, kRecordBytes + uint64_t{4} * raw.elements);
    }
    keys.resize(manifest.size());
    scratch.resize(static_cast<size_t>(std::max(1, options.threads)));
  }

  SegmentStats passed;  // what nonfinite=pass found

  // The stream form, chunk by chunk.
  struct Stream {
    enum Stage { kDone, kHeader, kTensors, kGivenUp };
    Stage stage = kDone;
    MessageIds ids;
    std::vector<TensorView> views;
    size_t tensor = 0, job = 0;
    uint32_t crc = 0;
    uint64_t bytes = 0;
  };
  Stream stream;

  void prepare(std::span<const TensorView> tensors, const MessageIds& ids, const RunSecret& with);
  uint64_t close_gaps(std::span<uint8_t> dst, uint64_t end) const;
  uint64_t next_chunk(std::span<uint8_t> dst, EncodeReport* report);
  uint64_t encode(std::span<const TensorView> tensors, const MessageIds& ids, const RunSecret& with, bool file, uint64_t seed,
                  std::span<uint8_t> dst, EncodeReport* report);
  uint64_t write_header(ByteWriter& w, const MessageIds& ids, bool file, uint64_t seed, uint64_t total) const;
  void encode_job(Job& job, const TensorView& tensor, std::span<uint8_t> dst, Scratch& s) const;
  // Raw tensors take no part in a rate by energy.
  bool travels_raw(const Job& job) const { return plans[job.tensor].params.method == 0; }
  void measure_energies(std::span<const TensorView> tensors);
  void apply_pass_policy(std::span<const TensorView> tensors, SegmentStats& stats);
  void fill_report(EncodeReport& report, uint64_t bytes, const SegmentStats& extra) const;
  [[noreturn]] void refuse(const Job& job, uint64_t index) const {
    fail(ErrorCode::kInvalidArgument, "tensor '", manifest[job.tensor].name, "': element ", job.shape.first_element + index,
         " is not finite");
  }
};

uint64_t Encoder::Impl::write_header(ByteWriter& w, const MessageIds& ids, bool file, uint64_t seed, uint64_t total) const {
  const uint64_t header = file ? kFileHeaderBytes + manifest_bytes(manifest) : kMessageHeaderBytes;
  w.bytes(kMagic);
  w.u8(kFormatMajor);
  w.u8(kFormatMinor);
  w.u16(static_cast<uint16_t>((file ? 0 : kFlagMessage) | (total == kUnknownLength ? kFlagStreamed : 0)));
  w.u32(static_cast<uint32_t>(header));
  w.u32(static_cast<uint32_t>(manifest.size()));
  w.u64(total);  // 0: filled in when it is known
  if (file) {
    w.u64(seed);
    write_manifest(w, manifest);
  } else {
    w.u64(hash);
    w.u64(ids.run);
    w.u64(ids.round);
    w.u64(ids.client);
    w.u64(ids.base_model_hash);
    w.u64(ids.weight);
    w.u64(0);  // MAC
    w.u64(0);
  }
  return header;
}

void Encoder::Impl::encode_job(Job& job, const TensorView& tensor, std::span<uint8_t> dst, Scratch& s) const {
  const TensorPlan& plan = plans[job.tensor];
  const SegmentShape& shape = job.shape;
  job.stats = {};
  std::span<const float> x;
  const auto copy_in = [&] {
    if (s.input.size() < shape.elements) s.input.resize(shape.elements);
    std::span<float> values(s.input.data(), shape.elements);
    load_floats(tensor, shape.first_element, values);
    x = values;
    return values;
  };
  const bool in_place = tensor.dtype == DType::kFloat32 && reinterpret_cast<uintptr_t>(tensor.data) % alignof(float) == 0;
  if (in_place) {
    x = {static_cast<const float*>(tensor.data) + shape.first_element, shape.elements};
  } else {
    copy_in();
  }
  const bool raw = plan.params.method == 0;  // float32 carries anything
  if (!plan.codec->detects_nonfinite() && !(raw && options.nonfinite == NonFinite::kPass)) {
    const auto bad = std::find_if(x.begin(), x.end(), [](float v) { return !std::isfinite(v); });
    if (bad != x.end()) {
      if (options.nonfinite != NonFinite::kZero) refuse(job, static_cast<uint64_t>(bad - x.begin()));
      job.stats.nonfinite = zero_nonfinite(copy_in());
    }
  }
  const TensorKeys& k = keys[job.tensor];
  try {
    job.bytes = plan.codec->encode(x, shape, k, dst, s, job.stats);
  } catch (const NonFiniteInput& e) {
    if (options.nonfinite != NonFinite::kZero) refuse(job, e.index);
    job.stats = {};
    job.stats.nonfinite = zero_nonfinite(copy_in());
    job.bytes = plan.codec->encode(x, shape, k, dst, s, job.stats);
  }
}

void Encoder::Impl::measure_energies(std::span<const TensorView> tensors) {
  lengths.clear();
  std::vector<size_t>& starts = job_blocks;
  starts.clear();
  for (const Job* j : jobs) {
    starts.push_back(lengths.size());
    if (travels_raw(*j)) continue;
    for (uint32_t b = 0; b < j->shape.n_blocks; ++b) lengths.push_back(j->shape.block_length(b));
  }
  energies.resize(lengths.size());
  const auto measure_one = [&](size_t i, int worker) {
    if (travels_raw(*jobs[i])) return;
    const SegmentShape& shape = jobs[i]->shape;
    std::vector<float>& values = scratch[static_cast<size_t>(worker)].rotated;
    for (uint32_t b = 0; b < shape.n_blocks; ++b) {
      const uint32_t length = shape.block_length(b);
      if (values.size() < length) values.resize(length);
      load_floats(tensors[jobs[i]->tensor], shape.first_element + shape.block_offset(b), std::span(values.data(), length));
      kernels::Magnitude m = kernels::magnitude(values.data(), length);
      if (m.max_abs_bits >= 0x7f800000u) {
        zero_nonfinite(std::span(values.data(), length));  // as encoding will, where it does not refuse
        m = kernels::magnitude(values.data(), length);
      }
      energies[starts[i] + b] = m.sum_squares;
    }
  };
  parallel_for(jobs.size(), options.threads, std::cref(measure_one));
}

void Encoder::Impl::apply_pass_policy(std::span<const TensorView> tensors, SegmentStats& stats) {
  bool changed = false;
  float buffer[4096];
  for (uint32_t i = 0; i < plans.size(); ++i) {
    uint64_t bad = 0;
    for (uint64_t at = 0; at < plans[i].count; at += 4096) {
      const std::span<float> part(buffer, std::min<uint64_t>(4096, plans[i].count - at));
      load_floats(tensors[i], at, part);
      for (const float v : part) bad += std::isfinite(v) ? 0 : 1;
    }
    stats.nonfinite += bad;
    const WireParams wanted = resolve_params(bad > 0 ? kRaw : codec.params(), plans[i].count);
    if (wanted == plans[i].params) continue;
    plans[i] = plan_tensor(i, wanted);
    changed = true;
  }
  if (changed) jobs.clear();
}

void Encoder::Impl::fill_report(EncodeReport& report, uint64_t bytes, const SegmentStats& extra) const {
  report = {};
  report.stream_bytes = bytes;
  report.nonfinite = extra.nonfinite;
  for (const TensorPlan& p : plans) {
    report.elements += p.count;
    for (const Job& j : p.jobs) {
      report.blocks += j.shape.n_blocks;
      if (std::isfinite(j.stats.norm2)) {
        report.norm2 += j.stats.norm2;
        report.error2 += j.stats.error2;
      }
      report.nonfinite += j.stats.nonfinite;
    }
  }
}

void Encoder::Impl::prepare(std::span<const TensorView> tensors, const MessageIds& ids, const RunSecret& with) {
  check_sources(manifest, tensors);
  if (stream.stage != Stream::kDone) stream.stage = Stream::kGivenUp;  // it would go on with this one's plans and keys
  passed = {};
  if (options.nonfinite == NonFinite::kPass) apply_pass_policy(tensors, passed);
  const bool first = jobs.empty();
  for (uint32_t i = 0; i < plans.size(); ++i) {
    keys[i] = tensor_keys(with, ids, i, plans[i].params);
    for (Job& j : plans[i].jobs) {
      if (first) jobs.push_back(&j);
    }
  }
  if ((codec.params().flags & kFlagAllocate) == 0) return;
  measure_energies(tensors);
  allocate_rates(energies, lengths, codec.params(), rates);
  size_t b = 0;
  for (Job* j : jobs) {
    if (travels_raw(*j)) continue;
    j->shape.block_rates = rates.data() + b;
    b += j->shape.n_blocks;
  }
}

uint64_t Encoder::Impl::encode(std::span<const TensorView> tensors, const MessageIds& ids, const RunSecret& with, bool file,
                               uint64_t seed, std::span<uint8_t> dst, EncodeReport* report) {
  prepare(tensors, ids, with);
  ByteWriter w(dst);
  const uint64_t header = write_header(w, ids, file, seed, 0);
  uint64_t at = header;
  for (TensorPlan& p : plans) {
    at += kRecordBytes;
    for (Job& j : p.jobs) {
      at += p.codec->fixed_size() ? 0 : 4;
      j.offset = at;
      at += j.max_bytes;
    }
  }
  if (at + kChecksumBytes > dst.size())
    fail(ErrorCode::kInvalidArgument, "encode: ", dst.size(), " bytes of room, ", at + kChecksumBytes, " may be needed");
  // By reference: a std::function of so many captures would allocate.
  const auto encode_one = [&](size_t i, int worker) {
    Job& j = *jobs[i];
    encode_job(j, tensors[j.tensor], dst.subspan(j.offset, j.max_bytes), scratch[static_cast<size_t>(worker)]);
  };
  parallel_for(jobs.size(), options.threads, std::cref(encode_one));
  const uint64_t end = close_gaps(dst, header);
  const uint64_t total = end + kChecksumBytes;
  store_u64(dst.data() + 16, total);
  store_u32(dst.data() + end, crc32(dst.first(end)));
  if (report != nullptr) fill_report(*report, total, passed);
  return total;
}

// Writes records and lengths and moves variable segments to their final place; nothing moves right. Returns the end.
uint64_t Encoder::Impl::close_gaps(std::span<uint8_t> dst, uint64_t end) const {
  for (uint32_t i = 0; i < plans.size(); ++i) {
    const TensorPlan& p = plans[i];
    ByteWriter record(dst.subspan(end, kRecordBytes));
    write_record(record, p.count, manifest[i].dtype, p.params);
    end += kRecordBytes;
    for (const Job& j : p.jobs) {
      if (!p.codec->fixed_size()) {
        store_u32(dst.data() + end, static_cast<uint32_t>(j.bytes));
        end += 4;
      }
      if (end != j.offset) std::memmove(dst.data() + end, dst.data() + j.offset, j.bytes);
      end += j.bytes;
    }
  }
  return end;
}

uint64_t Encoder::Impl::next_chunk(std::span<uint8_t> dst, EncodeReport* report) {
  if (stream.stage == Stream::kGivenUp) {
    fail(ErrorCode::kInvalidArgument,
         "next_chunk: the stream was given up, by an error or for another message of this encoder");
  }
  ByteWriter w(dst);
  if (stream.stage == Stream::kHeader) {
    write_header(w, stream.ids, false, 0, kUnknownLength);
    stream.stage = Stream::kTensors;
  } else if (stream.stage == Stream::kTensors && stream.tensor < plans.size()) {
    TensorPlan& p = plans[stream.tensor];
    if (stream.job == 0) write_record(w, p.count, manifest[stream.tensor].dtype, p.params);
    if (stream.job < p.jobs.size()) {
      Job& j = p.jobs[stream.job];
      const bool fixed = p.codec->fixed_size();
      const size_t at = w.size() + (fixed ? 0 : 4);
      if (dst.size() < at + j.max_bytes)
        fail(ErrorCode::kInvalidArgument, "next_chunk: ", dst.size(), " bytes of room, ", at + j.max_bytes, " may be needed");
      stream.stage = Stream::kGivenUp;  // unless this returns
      encode_job(j, stream.views[stream.tensor], dst.subspan(at, j.max_bytes), scratch[0]);
      stream.stage = Stream::kTensors;
      if (!fixed) w.u32(static_cast<uint32_t>(j.bytes));
      w.reserve(j.bytes);
    }
    if (++stream.job >= p.jobs.size()) {
      ++stream.tensor;
      stream.job = 0;
    }
  } else if (stream.stage == Stream::kTensors) {
    w.u32(stream.crc);
    stream.stage = Stream::kDone;
    if (report != nullptr) fill_report(*report, stream.bytes + kChecksumBytes, passed);
  }
  stream.crc = crc32(dst.first(w.size()), stream.crc);
  stream.bytes += w.size();
  return w.size();
}

Encoder::Encoder(Manifest manifest, Codec codec, RunSecret secret, EncodeOptions options) : impl_(std::make_unique<Impl>()) {
  impl_->manifest = std::move(manifest);
  impl_->codec = std::move(codec);
  impl_->secret = secret;
  impl_->options = options;
  if (impl_->options.threads <= 0) impl_->options.threads = hardware_threads();
  check_manifest(impl_->manifest);
  impl_->hash = manifest_hash(impl_->manifest);
  impl_->plan();
}
Encoder::~Encoder() = default;
Encoder::Encoder(Encoder&&) noexcept = default;
Encoder& Encoder::operator=(Encoder&&) noexcept = default;

uint64_t Encoder::max_bytes() const {
  return std::max(kMessageHeaderBytes, kFileHeaderBytes + manifest_bytes(impl_->manifest)) + impl_->body_bytes + kChecksumBytes;
}

uint64_t Encoder::encode_message(std::span<const TensorView> tensors, const MessageIds& ids, std::span<uint8_t> dst,
                                 EncodeReport* report) {
  return impl_->encode(tensors, ids, impl_->secret, false, 0, dst, report);
}

uint64_t Encoder::encode_file(std::span<const TensorView> tensors, uint64_t seed, std::span<uint8_t> dst,
                              EncodeReport* report) {
  return impl_->encode(tensors, MessageIds{}, RunSecret::from_seed(seed), true, seed, dst, report);
}

void Encoder::begin_stream(std::span<const TensorView> tensors, const MessageIds& ids) {
  impl_->prepare(tensors, ids, impl_->secret);
  Impl::Stream& s = impl_->stream;
  s.stage = Impl::Stream::kHeader;
  s.ids = ids;
  s.views.assign(tensors.begin(), tensors.end());
  s.tensor = s.job = s.bytes = 0;
  s.crc = 0;
}

uint64_t Encoder::max_chunk_bytes() const { return impl_->chunk_bytes; }

uint64_t Encoder::next_chunk(std::span<uint8_t> dst, EncodeReport* report) { return impl_->next_chunk(dst, report); }

const Manifest& Encoder::manifest() const { return impl_->manifest; }
const Codec& Encoder::codec() const { return impl_->codec; }

}  // namespace kpd::gradient
