// gradient: decoding of messages and files (message.h). Everything that can be checked without decoding is checked before a
// caller's memory is touched.
#include <algorithm>
#include <cmath>
#include <functional>
#include <mutex>

#include "gradient/segment_codec.h"
#include "gradient/stream_format.h"
#include "kpd/base/threads.h"
#include "kpd/gradient/message.h"

namespace kpd::gradient {
namespace {

struct Part {
  uint32_t tensor = 0;
  SegmentShape shape;
  std::span<const uint8_t> bytes;
};

// One tensor of a stream, ready to be decoded.
struct OpenTensor {
  TensorRecord record;
  std::shared_ptr<const SegmentCodec> codec;
  TensorKeys keys;
};

// Throws a segment's Error again with the stream's name and the place within the stream.
[[noreturn]] void throw_in_part(const Error& e, const Part& part, std::span<const uint8_t> stream, std::string_view name) {
  const uint64_t at = static_cast<uint64_t>(part.bytes.data() - stream.data());
  throw Error(e.code(), str(name, ": tensor ", part.tensor, ", segment at byte ", at, ": ", e.what()));
}

// Decodes one segment.
enum class Into { kSet, kAdd, kAddRotated };

uint64_t decode_part(const Part& part, const OpenTensor& t, std::span<const uint8_t> stream, std::string_view name,
                     float weight, Into into, std::span<float> dst, Scratch& scratch) {
  const bool accumulate = into != Into::kSet;
  const std::span<float> out = dst.subspan(part.shape.first_element, part.shape.elements);
  const int exponent = t.record.params.exponent;
  try {
    if (into == Into::kAddRotated && t.record.params.method != 0) {
      t.codec->decode_rotated(part.bytes, part.shape, t.keys, std::ldexp(weight, exponent), out, scratch);
      return 0;
    }
    if (exponent == 0) return t.codec->decode(part.bytes, part.shape, t.keys, weight, accumulate, out, scratch);
    // Rare: a power of two on top of the codec's own scales. Decode apart, then scale.
    if (scratch.unscaled.size() < out.size()) scratch.unscaled.resize(out.size());
    const std::span<float> values(scratch.unscaled.data(), out.size());
    uint64_t saturated = t.codec->decode(part.bytes, part.shape, t.keys, 1.0f, false, values, scratch);
    for (size_t i = 0; i < out.size(); ++i) {
      out[i] = limited(std::ldexp(static_cast<double>(values[i]), exponent), weight, accumulate, out[i], saturated);
    }
    return saturated;
  } catch (const Error& e) {
    throw_in_part(e, part, stream, name);
  }
}

double part_norm2(const Part& part, const OpenTensor& t, std::span<const uint8_t> stream, std::string_view name,
                  Scratch& scratch) {
  try {
    return std::ldexp(t.codec->decoded_norm2(part.bytes, part.shape, t.keys, scratch), 2 * t.record.params.exponent);
  } catch (const Error& e) {
    throw_in_part(e, part, stream, name);
  }
}

void open_tensor(ByteReader& r, size_t index, const Limits& limits, CodecCache& codecs, OpenTensor& tensor,
                 std::vector<Part>& parts, std::vector<std::span<const uint8_t>>& spans) {
  CheckedRecord c = read_record(r, index, limits, codecs);
  find_segments(r, c.record, *c.codec, limits, spans);
  c.record.bytes = r.offset() - c.record.offset;
  for (size_t i = 0; i < spans.size(); ++i) {
    parts.push_back(
        {static_cast<uint32_t>(index), segment_shape(c.record.count, 1u << c.record.params.log2_block, i), spans[i]});
  }
  tensor.record = c.record;
  tensor.codec = std::move(c.codec);
}

void check_end(const ByteReader& r, std::span<const uint8_t> stream) {
  if (r.remaining() != kChecksumBytes) {
    r.corrupt("the tensors end here, expected the ", kChecksumBytes, "-byte checksum to end the stream of ", stream.size(),
              " bytes");
  }
}

}  // namespace

uint64_t StreamInfo::elements() const {
  uint64_t n = 0;
  for (const TensorRecord& t : tensors) n += t.count;
  return n;
}

StreamInfo read_stream_info(std::span<const uint8_t> stream, std::string_view name, const Limits& limits) {
  ByteReader r(stream, name);
  uint32_t count = 0;
  StreamInfo info = read_header(r, stream, limits, &count);
  std::vector<std::span<const uint8_t>> spans;
  std::vector<Part> parts;
  CodecCache codecs;
  uint64_t total = 0;
  for (uint32_t i = 0; i < count; ++i) {
    OpenTensor t;
    parts.clear();
    open_tensor(r, i, limits, codecs, t, parts, spans);
    total += t.record.count;
    if (total > limits.max_total_elements) {
      r.throw_at(static_cast<int>(ErrorCode::kLimitExceeded), t.record.offset,
                 str("more than ", limits.max_total_elements, " elements up to tensor ", i));
    }
    if (info.is_file && info.manifest[i].count() != t.record.count) {
      r.throw_at(static_cast<int>(ErrorCode::kCorruptData), t.record.offset,
                 str("tensor ", printable(info.manifest[i].name), " has ", t.record.count, " elements, its shape says ",
                     info.manifest[i].count()));
    }
    if (info.is_file && info.manifest[i].dtype != t.record.dtype) {
      r.throw_at(static_cast<int>(ErrorCode::kCorruptData), t.record.offset,
                 str("tensor '", info.manifest[i].name, "': record and manifest disagree on the dtype"));
    }
    info.tensors.push_back(t.record);
  }
  check_end(r, stream);
  return info;
}

struct Decoder::Impl {
  Manifest manifest;
  RunSecret secret;
  DecodeOptions options;
  uint64_t hash = 0;
  std::vector<uint64_t> counts;
  CodecCache codecs;
  std::vector<OpenTensor> tensors;
  std::vector<Part> parts;
  std::vector<std::span<const uint8_t>> spans;
  std::vector<Scratch> scratch;
  std::vector<uint64_t> saturated;
  std::vector<double> norms2;  // a segment

  // Reuses the codec of the last message where the record is the same, so that a steady stream of messages allocates nothing.
  void open(ByteReader& r, std::span<const uint8_t> stream, uint32_t count);
  StreamInfo header(ByteReader& r, std::span<const uint8_t> stream, uint32_t* count) const;
  // Of the rotated sum in progress: the rotations, from its first message.
  std::vector<WireParams> rotated_params;
  std::vector<TensorKeys> rotated_keys;
  void join_rotated_sum(float weight, std::string_view name);
  void open_message(std::span<const uint8_t> stream, const MessageIds& expected, std::string_view name);
  double norm2(std::span<const uint8_t> stream, const MessageIds& expected, std::string_view name);
  void run(std::span<const uint8_t> stream, const MessageIds& expected, float weight, Into into,
           std::span<const std::span<float>> dst, DecodeReport* report, std::string_view name);
};

StreamInfo Decoder::Impl::header(ByteReader& r, std::span<const uint8_t> stream, uint32_t* count) const {
  StreamInfo info = read_header(r, stream, options.limits, count);
  if (info.is_file) throw Error(ErrorCode::kMismatch, str(r.name(), ": this is a file, expected a message"));
  if (info.manifest_hash != hash || *count != manifest.size()) {
    throw Error(ErrorCode::kMismatch,
                str(r.name(), ": the message is about another model: manifest hash ", info.manifest_hash, ", expected ", hash));
  }
  return info;
}

void Decoder::Impl::open(ByteReader& r, std::span<const uint8_t> stream, uint32_t count) {
  codecs.begin_message();
  parts.clear();
  tensors.resize(count);
  for (uint32_t i = 0; i < count; ++i) {
    OpenTensor& t = tensors[i];
    // Peek at the record: if its bytes equal the last one's, its codec is ready.
    ByteReader ahead = r;
    const bool known = t.codec != nullptr && r.remaining() >= kRecordBytes && [&] {
      uint8_t last[kRecordBytes];
      ByteWriter w(last);
      write_record(w, t.record.count, t.record.dtype, t.record.params);
      const auto now = ahead.take(kRecordBytes, "record");
      return std::equal(now.begin(), now.end(), last);
    }();
    if (known) {
      codecs.get(t.record.params);  // counts it
      r.skip(kRecordBytes, "record");
      find_segments(r, t.record, *t.codec, options.limits, spans);
      for (size_t s = 0; s < spans.size(); ++s) {
        parts.push_back({i, segment_shape(t.record.count, 1u << t.record.params.log2_block, s), spans[s]});
      }
    } else {
      t.codec.reset();
      open_tensor(r, i, options.limits, codecs, t, parts, spans);
    }
    if (t.record.count != counts[i]) {
      r.corrupt("tensor '", manifest[i].name, "' has ", t.record.count, " elements, the manifest says ", counts[i]);
    }
    if (t.record.dtype != manifest[i].dtype)
      r.corrupt("tensor '", manifest[i].name, "': record and manifest disagree on the dtype");
  }
  check_end(r, stream);
}

// All is checked before anything is kept or added.
void Decoder::Impl::join_rotated_sum(float weight, std::string_view name) {
  const bool first = rotated_keys.empty();
  for (size_t i = 0; i < tensors.size(); ++i) {
    const WireParams& p = tensors[i].record.params;
    if (p.method != 0 && (p.flags & kFlagDither) == 0) {
      throw Error(ErrorCode::kUnsupported, str(name, ": only codes with dither=shared are summed before the inverse rotation"));
    }
    if (weight != 0 && !std::isnormal(std::ldexp(weight, p.exponent))) {
      throw Error(ErrorCode::kUnsupported, str(name, ": tensor ", i, ": exponent ", p.exponent, " with weight ", weight,
                                               " is too large or too small for a sum of rotated codes"));
    }
    if (first) continue;
    if (p.log2_block != rotated_params[i].log2_block || p.rounds != rotated_params[i].rounds ||
        p.method != rotated_params[i].method || (p.method != 0 && tensors[i].keys.rotation != rotated_keys[i].rotation)) {
      throw Error(ErrorCode::kMismatch, str(name, ": tensor ", i, " has another rotation than the sum it is added to"));
    }
  }
  if (!first) return;
  for (const OpenTensor& t : tensors) {
    rotated_params.push_back(t.record.params);
    rotated_keys.push_back(t.keys);
  }
}

void Decoder::Impl::open_message(std::span<const uint8_t> stream, const MessageIds& expected, std::string_view name) {
  ByteReader r(stream, name);
  uint32_t count = 0;
  const StreamInfo info = header(r, stream, &count);
  check_ids(info.ids, expected, name);
  open(r, stream, count);
  for (uint32_t i = 0; i < count; ++i) tensors[i].keys = tensor_keys(secret, info.ids, i, tensors[i].record.params);
}

double Decoder::Impl::norm2(std::span<const uint8_t> stream, const MessageIds& expected, std::string_view name) {
  open_message(stream, expected, name);
  norms2.assign(parts.size(), 0.0);
  const auto one = [&](size_t i, int worker) {
    norms2[i] = part_norm2(parts[i], tensors[parts[i].tensor], stream, name, scratch[static_cast<size_t>(worker)]);
  };
  parallel_for(parts.size(), options.threads, std::cref(one));
  double sum = 0;
  for (const double n : norms2) sum += n;
  return sum;
}

void Decoder::Impl::run(std::span<const uint8_t> stream, const MessageIds& expected, float weight, Into into,
                        std::span<const std::span<float>> dst, DecodeReport* report, std::string_view name) {
  check_destinations(manifest, dst);
  check_weight(weight);
  open_message(stream, expected, name);
  if (into == Into::kAddRotated) join_rotated_sum(weight, name);
  saturated.assign(scratch.size(), 0);
  // By reference: a std::function of so many captures would allocate.
  const auto decode_one = [&](size_t i, int worker) {
    const Part& part = parts[i];
    saturated[static_cast<size_t>(worker)] += decode_part(part, tensors[part.tensor], stream, name, weight, into,
                                                          dst[part.tensor], scratch[static_cast<size_t>(worker)]);
  };
  parallel_for(parts.size(), options.threads, std::cref(decode_one));
  if (report == nullptr) return;
  *report = {};
  for (const uint64_t c : counts) report->elements += c;
  for (const uint64_t s : saturated) report->saturated += s;
}

Decoder::Decoder(Manifest manifest, RunSecret secret, DecodeOptions options) : impl_(std::make_unique<Impl>()) {
  impl_->manifest = std::move(manifest);
  impl_->secret = secret;
  impl_->options = options;
  if (impl_->options.threads <= 0) impl_->options.threads = hardware_threads();
  impl_->hash = manifest_hash(impl_->manifest);
  for (const TensorInfo& t : impl_->manifest) impl_->counts.push_back(t.count());
  impl_->scratch.resize(static_cast<size_t>(impl_->options.threads));
}
Decoder::~Decoder() = default;
Decoder::Decoder(Decoder&&) noexcept = default;
Decoder& Decoder::operator=(Decoder&&) noexcept = default;

MessageIds Decoder::peek(std::span<const uint8_t> message, std::string_view name) const {
  ByteReader r(message, name);
  uint32_t count = 0;
  return impl_->header(r, message, &count).ids;
}

double Decoder::norm(std::span<const uint8_t> message, const MessageIds& expected, std::string_view name) {
  return std::sqrt(impl_->norm2(message, expected, name));
}

void Decoder::decode(std::span<const uint8_t> message, const MessageIds& expected, std::span<const std::span<float>> dst,
                     DecodeReport* report, std::string_view name) {
  impl_->run(message, expected, 1.0f, Into::kSet, dst, report, name);
}

void Decoder::decode_add(std::span<const uint8_t> message, const MessageIds& expected, float weight,
                         std::span<const std::span<float>> acc, DecodeReport* report, std::string_view name) {
  impl_->run(message, expected, weight, Into::kAdd, acc, report, name);
}

void Decoder::decode_rotated_add(std::span<const uint8_t> message, const MessageIds& expected, float weight,
                                 std::span<const std::span<float>> acc, DecodeReport* report, std::string_view name) {
  impl_->run(message, expected, weight, Into::kAddRotated, acc, report, name);
}

void Decoder::finish_rotated(std::span<const std::span<float>> acc) {
  Impl& m = *impl_;
  check_destinations(m.manifest, acc);
  for (size_t i = 0; i < m.rotated_keys.size(); ++i) {
    const WireParams& p = m.rotated_params[i];
    if (p.method == 0) continue;
    const auto codec = m.codecs.get(p);
    const uint32_t block = 1u << p.log2_block;
    parallel_for(segment_count(m.counts[i], block), m.options.threads, [&](size_t s, int) {
      const SegmentShape shape = segment_shape(m.counts[i], block, s);
      codec->finish_rotated(shape, m.rotated_keys[i], acc[i].subspan(shape.first_element, shape.elements));
    });
  }
  drop_rotated();
}

void Decoder::drop_rotated() {
  impl_->rotated_keys.clear();
  impl_->rotated_params.clear();
}

void decode_file_tensor(std::span<const uint8_t> stream, const StreamInfo& info, size_t index, std::span<float> dst,
                        int threads, DecodeReport* report, std::string_view name) {
  if (!info.is_file)
    fail(ErrorCode::kMismatch, name, ": this is a message; without its run secret only its receiver can decode it");
  if (index >= info.tensors.size()) fail(ErrorCode::kInvalidArgument, "tensor ", index, " of ", info.tensors.size());
  const TensorRecord& record = info.tensors[index];
  if (dst.size() != record.count)
    fail(ErrorCode::kInvalidArgument, "decode: ", dst.size(), " floats given, tensor ", index, " has ", record.count);
  ByteReader r(stream, name);
  r.skip(record.offset, "earlier tensors");
  OpenTensor t;
  std::vector<Part> parts;
  std::vector<std::span<const uint8_t>> spans;
  CodecCache codecs;
  open_tensor(r, index, Limits{}, codecs, t, parts, spans);
  if (t.record.count != record.count)
    r.corrupt("tensor ", index, " has ", t.record.count, " elements, ", record.count, " when it was inspected");
  t.keys = tensor_keys(RunSecret::from_seed(info.seed), MessageIds{}, index, t.record.params);
  const int n_threads = threads <= 0 ? hardware_threads() : threads;
  std::vector<Scratch> scratch(static_cast<size_t>(n_threads));
  std::vector<uint64_t> saturated(static_cast<size_t>(n_threads));
  parallel_for(parts.size(), n_threads, [&](size_t i, int worker) {
    const size_t at = static_cast<size_t>(worker);
    saturated[at] += decode_part(parts[i], t, stream, name, 1.0f, Into::kSet, dst, scratch[at]);
  });
  if (report == nullptr) return;
  *report = {record.count, 0};
  for (const uint64_t s : saturated) report->saturated += s;
}

}  // namespace kpd::gradient
