// gradient: decoding of messages (message.h). Everything that can be checked without decoding is checked before a caller's
// memory is touched.
#include <algorithm>
#include <cmath>
#include <functional>

#include "gradient/open_stream.h"
#include "gradient/baselines.h"
#include "gradient/receiver.h"
#include "kpd/base/threads.h"
#include "kpd/gradient/message.h"
#include "kpd/gradient/stream_info.h"
#include "kpd/gradient/decoder.h"

namespace kpd::gradient {
namespace {

enum class Into { kSet, kAdd, kAddRotated };

}  // namespace

struct Decoder::Impl {
  Impl(Manifest manifest, RunSecret secret, const DecodeOptions& o)
      : receiver(std::move(manifest), secret, o.limits),
        threads(o.threads > 0 ? o.threads : hardware_threads()),
        scratch(static_cast<size_t>(threads)) {}

  Receiver receiver;
  int threads;
  OpenStream open;
  std::vector<TensorKeys> keys;  // a unit
  std::vector<Scratch> scratch;
  std::vector<uint64_t> saturated;
  std::vector<double> norms2;  // a segment

  // Of the rotated sum in progress: the rotations, from its first message.
  std::vector<WireParams> rotated_params;
  std::vector<TensorKeys> rotated_keys;

  void join_rotated_sum(std::string_view name);
  void open_message(std::span<const uint8_t> stream, const MessageIds& expected, std::string_view name);
  double norm2(std::span<const uint8_t> stream, const MessageIds& expected, const std::span<const std::span<float>>* dst,
               std::string_view name);
  uint64_t decode_part(const Part& part, std::span<const uint8_t> stream, std::string_view name, float weight, Into into,
                       std::span<const std::span<float>> dst, Scratch& s) const;
  void run(std::span<const uint8_t> stream, const MessageIds& expected, float weight, Into into,
           std::span<const std::span<float>> dst, DecodeReport* report, std::string_view name);
  uint64_t add_part_bf16(const Part& part, std::span<const uint8_t> stream, std::string_view name, float weight,
                         std::span<const BFloat16Span> acc, Scratch& s) const;
  template <class DecodeOne>
  void run_parts(DecodeReport* report, const DecodeOne& decode_one);
};

// All is checked before anything is kept or added.
void Decoder::Impl::join_rotated_sum(std::string_view name) {
  const Units& units = receiver.units();
  const bool first = rotated_keys.empty();
  for (size_t i = 0; i < units.size(); ++i) {
    const WireParams& p = units[i].params;
    const bool plain = p.method == kFloat32Id || p.method == kExactId;
    if (!plain && (p.flags & kFlagDither) == 0) {
      throw Error(ErrorCode::kUnsupported, str(name, ": only codes with dither=shared are summed before the inverse rotation"));
    }
    if (first) continue;
    if (p.log2_block != rotated_params[i].log2_block || p.rounds != rotated_params[i].rounds ||
        p.method != rotated_params[i].method || (!plain && keys[i].rotation != rotated_keys[i].rotation)) {
      throw Error(ErrorCode::kMismatch,
                  str(name, ": tensor ", units[i].tensor, " has another rotation than the sum it is added to"));
    }
  }
  if (!first) return;
  for (size_t i = 0; i < units.size(); ++i) {
    rotated_params.push_back(units[i].params);
    rotated_keys.push_back(keys[i]);
  }
}

void Decoder::Impl::open_message(std::span<const uint8_t> stream, const MessageIds& expected, std::string_view name) {
  ByteReader r(stream, name);
  receiver.accept(read_header(r, stream, receiver.limits()), expected, name);
  receiver.read_units(r, stream.subspan(r.offset()));
  open.read(r, stream, receiver.units(), receiver.limits());
  keys.resize(receiver.units().size());
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = receiver.keys(receiver.units()[i]);
}

double Decoder::Impl::norm2(std::span<const uint8_t> stream, const MessageIds& expected,
                            const std::span<const std::span<float>>* dst, std::string_view name) {
  open_message(stream, expected, name);
  const std::vector<Part>& parts = open.parts();
  norms2.assign(parts.size(), 0.0);
  const auto one = [&](size_t i, int worker) {
    const Part& part = parts[i];
    const Unit& unit = receiver.units()[part.unit];
    if (dst != nullptr && unit.params.method == kExactId && (*dst)[unit.tensor].empty()) return;
    try {
      norms2[i] = unit.codec->decoded_norm2(part.bytes, part.shape, keys[part.unit], scratch[static_cast<size_t>(worker)]);
    } catch (const Error& e) {
      throw_in_part(e, unit, part.bytes, stream, name);
    }
  };
  parallel_for(parts.size(), threads, std::cref(one));
  double sum = 0;
  for (const double n : norms2) sum += n;
  return sum;
}

uint64_t Decoder::Impl::decode_part(const Part& part, std::span<const uint8_t> stream, std::string_view name, float weight,
                                    Into into, std::span<const std::span<float>> dst, Scratch& s) const {
  const Unit& unit = receiver.units()[part.unit];
  try {
    if (into == Into::kAddRotated && (unit.params.flags & kFlagDither) != 0) {
      unit.codec->decode_rotated(part.bytes, part.shape, keys[part.unit], weight,
                                 dst[unit.tensor].subspan(part.shape.first_element, part.shape.elements), s);
      return 0;
    }
    return decode_into(receiver.units(), unit, part.shape, part.bytes, keys[part.unit], weight, into != Into::kSet, dst, s);
  } catch (const Error& e) {
    throw_in_part(e, unit, part.bytes, stream, name);
  }
}

void Decoder::Impl::run(std::span<const uint8_t> stream, const MessageIds& expected, float weight, Into into,
                        std::span<const std::span<float>> dst, DecodeReport* report, std::string_view name) {
  receiver.check_target(dst, weight);
  open_message(stream, expected, name);
  if (into == Into::kAddRotated) join_rotated_sum(name);
  run_parts(report, [&](const Part& part, Scratch& s) { return decode_part(part, stream, name, weight, into, dst, s); });
}

// decode_one(part, scratch) returns the number of saturated values.
template <class DecodeOne>
void Decoder::Impl::run_parts(DecodeReport* report, const DecodeOne& decode_one) {
  saturated.assign(scratch.size(), 0);
  // By reference: a std::function of so many captures would allocate.
  const auto one = [&](size_t i, int worker) {
    saturated[static_cast<size_t>(worker)] += decode_one(open.parts()[i], scratch[static_cast<size_t>(worker)]);
  };
  parallel_for(open.parts().size(), threads, std::cref(one));
  if (report == nullptr) return;
  *report = {receiver.elements(), 0};
  for (const uint64_t s : saturated) report->saturated += s;
}

uint64_t Decoder::Impl::add_part_bf16(const Part& part, std::span<const uint8_t> stream, std::string_view name, float weight,
                                      std::span<const BFloat16Span> acc, Scratch& s) const {
  const Unit& unit = receiver.units()[part.unit];
  // A codec's own scratch does not hold a segment that becomes its caller's.
  if (s.input.size() < part.shape.elements) s.input.resize(part.shape.elements);
  const std::span<float> values(s.input.data(), part.shape.elements);
  uint64_t saturated_values = 0;
  try {
    saturated_values = unit.codec->decode(part.bytes, part.shape, keys[part.unit], 1.0f, false, values, s);
  } catch (const Error& e) {
    throw_in_part(e, unit, part.bytes, stream, name);
  }
  receiver.units().for_each_piece(unit, part.shape, [&](uint32_t tensor, uint64_t first, uint64_t from, uint64_t n) {
    if (acc[tensor].count == 0) return;  // of an exact type
    uint16_t* const out = acc[tensor].data + first;
    for (uint64_t i = 0; i < n; ++i) {
      const float old = bf16_to_float(out[i]), exact = old + weight * values[from + i];
      const float sum = std::isfinite(exact) ? exact : limited(values[from + i], weight, true, old, saturated_values);
      const uint16_t rounded = float_to_bf16(sum);
      // Rounding up from below the float range may leave it.
      out[i] = (rounded & 0x7fffu) == 0x7f80u ? static_cast<uint16_t>(rounded - 1) : rounded;
    }
  });
  return saturated_values;
}

Decoder::Decoder(Manifest manifest, RunSecret secret, DecodeOptions options)
    : impl_(std::make_unique<Impl>(std::move(manifest), secret, options)) {}
Decoder::~Decoder() = default;
Decoder::Decoder(Decoder&&) noexcept = default;
Decoder& Decoder::operator=(Decoder&&) noexcept = default;

MessageIds Decoder::peek(std::span<const uint8_t> message, std::string_view name) const {
  ByteReader r(message, name);
  const StreamInfo info = read_header(r, message, impl_->receiver.limits());
  impl_->receiver.check_header(info, name);
  return info.ids;
}

double Decoder::norm(std::span<const uint8_t> message, const MessageIds& expected, std::string_view name) {
  return std::sqrt(impl_->norm2(message, expected, nullptr, name));
}

double Decoder::norm(std::span<const uint8_t> message, const MessageIds& expected, std::span<const std::span<float>> dst,
                     std::string_view name) {
  impl_->receiver.check_target(dst);
  return std::sqrt(impl_->norm2(message, expected, &dst, name));
}

void Decoder::decode(std::span<const uint8_t> message, const MessageIds& expected, std::span<const std::span<float>> dst,
                     DecodeReport* report, std::string_view name) {
  impl_->run(message, expected, 1.0f, Into::kSet, dst, report, name);
}

void Decoder::decode_add(std::span<const uint8_t> message, const MessageIds& expected, float weight,
                         std::span<const std::span<float>> acc, DecodeReport* report, std::string_view name) {
  impl_->run(message, expected, weight, Into::kAdd, acc, report, name);
}

void Decoder::decode_add(std::span<const uint8_t> message, const MessageIds& expected, float weight,
                         std::span<const BFloat16Span> acc, DecodeReport* report, std::string_view name) {
  Impl& m = *impl_;
  const Manifest& manifest = m.receiver.manifest();
  if (acc.size() != manifest.size())
    fail(ErrorCode::kInvalidArgument, "decode: ", acc.size(), " destinations, the manifest has ", manifest.size(), " tensors");
  for (size_t i = 0; i < acc.size(); ++i) {
    if (acc[i].count == manifest[i].count() || (acc[i].count == 0 && dtype_is_exact(manifest[i].dtype))) continue;
    fail(ErrorCode::kInvalidArgument, "decode: destination of '", manifest[i].name, "' has ", acc[i].count,
         " elements, expected ", manifest[i].count());
  }
  check_weight(weight);
  m.open_message(message, expected, name);
  m.run_parts(report, [&](const Part& part, Scratch& s) { return m.add_part_bf16(part, message, name, weight, acc, s); });
}

void Decoder::decode_rotated_add(std::span<const uint8_t> message, const MessageIds& expected, float weight,
                                 std::span<const std::span<float>> acc, DecodeReport* report, std::string_view name) {
  impl_->run(message, expected, weight, Into::kAddRotated, acc, report, name);
}

void Decoder::finish_rotated(std::span<const std::span<float>> acc) {
  Impl& m = *impl_;
  m.receiver.check_target(acc);
  // Nothing that is summed in rotated form is joined, so unit i is tensor i.
  for (size_t i = 0; i < m.rotated_keys.size(); ++i) {
    const WireParams& p = m.rotated_params[i];
    if ((p.flags & kFlagDither) == 0) continue;
    const uint32_t block = 1u << p.log2_block;
    const uint64_t count = acc[i].size();
    const std::shared_ptr<const SegmentCodec> codec = m.receiver.codecs().get(p);
    parallel_for(segment_count(count, block), m.threads, [&](size_t s, int worker) {
      const SegmentShape shape = segment_shape(count, block, s);
      codec->finish_rotated(shape, m.rotated_keys[i], acc[i].subspan(shape.first_element, shape.elements),
                            m.scratch[static_cast<size_t>(worker)]);
    });
  }
  drop_rotated();
}

void Decoder::drop_rotated() {
  impl_->rotated_keys.clear();
  impl_->rotated_params.clear();
}

std::span<const uint8_t> Decoder::exact_bytes(std::span<const uint8_t> message, const MessageIds& expected, size_t index,
                                              std::string_view name) {
  Impl& m = *impl_;
  check_exact(m.receiver.manifest(), index);
  m.open_message(message, expected, name);
  return m.open.bytes_of(m.receiver.units().unit_of(index), message);
}

}  // namespace kpd::gradient
