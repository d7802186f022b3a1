// gradient: decoding the tensors of a file one by one (message.h).
#include <algorithm>
#include <functional>

#include "gradient/open_stream.h"
#include "gradient/baselines.h"
#include "kpd/base/error.h"
#include "kpd/base/threads.h"
#include "kpd/gradient/message.h"
#include "kpd/gradient/stream_info.h"
#include "kpd/gradient/file_decoder.h"
#include "kpd/gradient/decoder.h"

namespace kpd::gradient {

struct FileDecoder::Impl {
  std::span<const uint8_t> stream;
  const StreamInfo* info = nullptr;
  std::string_view name;
  int threads = 1;
  CodecCache codecs;
  std::vector<Scratch> scratch;
  std::vector<uint64_t> saturated;
  // The unit that the last tensor was in: its segments and, if it is joined, the one whose values are in `values`.
  static constexpr size_t kNone = ~size_t{0};
  size_t open_unit = kNone, held_segment = kNone;
  Unit unit;
  TensorKeys keys;
  std::vector<std::span<const uint8_t>> segments;
  std::vector<float> values;

  void open(size_t index);
  uint64_t decode_segment(size_t s, std::span<float> dst, Scratch& scratch_memory) const;
  uint64_t decode_joined(const TensorRecord& record, std::span<float> dst);
};

void FileDecoder::Impl::open(size_t index) {
  if (index == open_unit) return;
  open_unit = held_segment = kNone;
  const UnitRecord& record = info->units[index];
  unit = {.tensor = static_cast<uint32_t>(record.tensor),
          .n_pieces = static_cast<uint32_t>(record.members),
          .count = record.count,
          .params = record.params,
          .codec = codecs.get(record.params)};
  ByteReader r(stream, name);
  r.skip(record.offset, "earlier tensors");
  find_segments(r, unit, Limits{}, segments);
  if (r.offset() != record.offset + record.bytes)
    r.corrupt("tensor ", record.tensor, " ends here, at byte ", record.offset + record.bytes, " when it was inspected");
  keys = tensor_keys(RunSecret::from_seed(info->seed), info->manifest_hash, info->ids, unit.tensor, unit.params);
  open_unit = index;
}

uint64_t FileDecoder::Impl::decode_segment(size_t s, std::span<float> dst, Scratch& scratch_memory) const {
  try {
    return unit.codec->decode(segments[s], unit.segment(s), keys, 1.0f, false, dst, scratch_memory);
  } catch (const Error& e) {
    throw_in_part(e, unit, segments[s], stream, name);
  }
}

uint64_t FileDecoder::Impl::decode_joined(const TensorRecord& record, std::span<float> dst) {
  uint64_t n_saturated = 0;
  const uint64_t end = record.start + record.count;
  // The last segment has the unit's tail too, which may begin where a next one would.
  const uint64_t first = std::min<uint64_t>(record.start / (kBlocksPerSegment * unit.block()), segments.size() - 1);
  for (size_t s = first; s < segments.size(); ++s) {
    const SegmentShape shape = unit.segment(s);
    if (shape.first_element >= end) break;
    const uint64_t from = std::max(record.start, shape.first_element);
    const uint64_t to = std::min(end, shape.first_element + shape.elements);
    if (from >= to) continue;
    if (s != held_segment) {
      held_segment = kNone;
      values.resize(std::max<size_t>(values.size(), shape.elements));
      n_saturated += decode_segment(s, std::span(values.data(), shape.elements), scratch[0]);
      held_segment = s;
    }
    std::copy_n(values.data() + (from - shape.first_element), to - from, dst.data() + (from - record.start));
  }
  return n_saturated;
}

FileDecoder::FileDecoder(std::span<const uint8_t> stream, const StreamInfo& info, int threads, std::string_view name)
    : impl_(std::make_unique<Impl>()) {
  if (!info.is_file)
    fail(ErrorCode::kMismatch, name, ": this is a message; without its run secret only its receiver can decode it");
  impl_->stream = stream;
  impl_->info = &info;
  impl_->name = name;
  impl_->threads = threads <= 0 ? hardware_threads() : threads;
  impl_->scratch.resize(static_cast<size_t>(impl_->threads));
}
FileDecoder::~FileDecoder() = default;
FileDecoder::FileDecoder(FileDecoder&&) noexcept = default;
FileDecoder& FileDecoder::operator=(FileDecoder&&) noexcept = default;

void FileDecoder::decode(size_t index, std::span<float> dst, DecodeReport* report) {
  Impl& m = *impl_;
  if (index >= m.info->tensors.size()) fail(ErrorCode::kInvalidArgument, "tensor ", index, " of ", m.info->tensors.size());
  const TensorRecord& record = m.info->tensors[index];
  if (dst.size() != record.count)
    fail(ErrorCode::kInvalidArgument, "decode: ", dst.size(), " floats given, tensor ", index, " has ", record.count);
  m.open(record.unit);
  m.saturated.assign(m.scratch.size(), 0);
  if (m.unit.n_pieces > 1) {
    m.saturated[0] = m.decode_joined(record, dst);
  } else {
    const auto one = [&](size_t s, int worker) {
      const SegmentShape shape = m.unit.segment(s);
      m.saturated[static_cast<size_t>(worker)] +=
          m.decode_segment(s, dst.subspan(shape.first_element, shape.elements), m.scratch[static_cast<size_t>(worker)]);
    };
    parallel_for(m.segments.size(), m.threads, std::cref(one));
  }
  if (report == nullptr) return;
  *report = {record.count, 0};
  for (const uint64_t s : m.saturated) report->saturated += s;
}

void decode_file_tensor(std::span<const uint8_t> stream, const StreamInfo& info, size_t index, std::span<float> dst,
                        int threads, DecodeReport* report, std::string_view name) {
  FileDecoder(stream, info, threads, name).decode(index, dst, report);
}

std::span<const uint8_t> decode_file_exact(std::span<const uint8_t> stream, const StreamInfo& info, size_t index) {
  check_exact(info.manifest, index);
  const UnitRecord& unit = info.units[info.tensors[index].unit];
  if (unit.offset > stream.size() || unit.bytes > stream.size() - unit.offset) {
    fail(ErrorCode::kCorruptData, "byte ", unit.offset, ": ", unit.bytes, " bytes of a tensor, the stream has ", stream.size());
  }
  return stream.subspan(unit.offset, unit.bytes);
}

}  // namespace kpd::gradient
