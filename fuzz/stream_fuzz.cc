// fuzz: gradient's stream decoder, both forms (include/kpd/gradient/message.h). A file is inspected and every tensor decoded; a
// message goes to a receiver of a fixed manifest, once to a fresh decoder and once to one that has seen all messages before,
// and is cut into packets.
//
// A finding is anything but success or one kpd::Error of one line that names the input and the byte, a value that is not finite
// from a method that cannot carry one, or two decodes that disagree. At its end the program says how many inputs passed the
// checksum.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "kpd/base/crc32.h"
#include "kpd/gradient/message.h"
#include "kpd/gradient/stream_info.h"
#include "kpd/gradient/file_decoder.h"
#include "kpd/gradient/decoder.h"
#include "kpd/gradient/packets.h"
#include "kpd/gradient/streaming.h"
#include "stream_mutator.h"

namespace {

using namespace kpd;
using namespace kpd::gradient;

constexpr uint64_t kMaxElements = 1 << 15;  // of one tensor and one stream: time goes into many inputs
constexpr std::string_view kName = "input";

struct Counts {
  uint64_t inputs = 0, past_checksum = 0, decoded = 0;
  ~Counts() {
    std::fprintf(stderr, "stream_fuzz: %llu inputs, %llu past the checksum, %llu decoded whole\n",
                 static_cast<unsigned long long>(inputs), static_cast<unsigned long long>(past_checksum),
                 static_cast<unsigned long long>(decoded));
  }
};
Counts counts;

[[noreturn]] void finding(const char* what, const char* text) {
  std::fprintf(stderr, "finding: %s: %s\n", what, text);
  std::abort();
}

void check_error(const Error& e) {
  const std::string text = e.what();
  if (text.rfind("input: ", 0) != 0 && text.rfind("message: ", 0) != 0) finding("the error does not name the input", e.what());
  if (text.find('\n') != std::string::npos || text.size() > 600) finding("the error is more than one line", e.what());
  switch (e.code()) {
    case ErrorCode::kMismatch:
      return;
    case ErrorCode::kCorruptData:
    case ErrorCode::kUnsupported:
    case ErrorCode::kLimitExceeded:
      if (text.find("byte ") == std::string::npos) finding("the error names no byte", e.what());
      return;
    default:
      finding("an error that is not about the data", e.what());
  }
}

// float32, bf16 and exact types carry what they are given.
void check_values(std::span<const float> values, const WireParams& params) {
  if (params.method <= 1 || params.method == 11) return;
  for (const float v : values) {
    if (!std::isfinite(v)) finding("a value is not finite", "");
  }
}

Limits small_limits() {
  Limits l;
  l.max_elements = l.max_total_elements = kMaxElements;
  return l;
}

std::vector<uint64_t> aligned_copy(std::span<const uint8_t> bytes) {
  std::vector<uint64_t> out(bytes.size() / 8 + 1);
  if (!bytes.empty()) std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}

void read_file(std::span<const uint8_t> stream) {
  const StreamInfo info = read_stream_info(stream, kName, small_limits());
  if (!info.is_file) return;
  std::vector<float> values, again;
  FileDecoder decoder(stream, info, 1, kName);
  for (size_t i = 0; i < info.tensors.size(); ++i) {
    values.assign(info.tensors[i].count, 0.0f);
    decoder.decode(i, values);
    check_values(values, info.tensors[i].params);
    again.assign(values.size(), -1.0f);
    const DType dtype = info.tensors[i].dtype;
    if (dtype_is_exact(dtype)) {
      const std::span<const uint8_t> exact = decode_file_exact(stream, info, i);
      if (exact.size() != values.size() * dtype_bytes(dtype)) finding("exact elements of another size", "");
      const std::vector<uint64_t> aligned = aligned_copy(exact);
      load_floats({aligned.data(), values.size(), dtype}, 0, again);
    } else {
      if (stream.back() % 8 != 0) continue;
      decode_file_tensor(stream, info, i, again, 1, nullptr, kName);
    }
    if (!values.empty() && std::memcmp(values.data(), again.data(), 4 * values.size()) != 0)
      finding("two decodes disagree", "");
  }
}

using fuzz::kIds;
using fuzz::manifest;
constexpr size_t kTensors = 5;

struct Receiver {
  Decoder decoder{manifest(), RunSecret::from_seed(7), {1, small_limits()}};
  std::vector<float> a = std::vector<float>(64), b = std::vector<float>(130), c = std::vector<float>(3), d,
                     e = std::vector<float>(5);
  std::span<float> all[kTensors] = {a, b, c, d, e};

  void clear() {
    for (const std::span<float> s : all) std::fill(s.begin(), s.end(), 0.0f);
  }
  bool equals(const Receiver& o) const {
    for (size_t i = 0; i < kTensors; ++i) {
      if (all[i].empty()) continue;
      if (std::memcmp(all[i].data(), o.all[i].data(), all[i].size_bytes()) != 0) return false;
    }
    return true;
  }
};

// What the whole message gave, it must give in portions.
void read_in_portions(std::span<const uint8_t> stream, const MessageIds& expected, const Receiver& whole) {
  static Receiver r;
  static StreamDecoder decoder(manifest(), RunSecret::from_seed(7), small_limits());
  r.clear();
  decoder.begin(expected, 0.25f, r.all);
  for (size_t at = 0, n = 0; at < stream.size(); at += n) {
    n = std::min<size_t>(stream.size() - at, 1 + stream[at] % 64);
    decoder.feed(stream.subspan(at, n));
  }
  if (!decoder.done() || !r.equals(whole)) finding("portions and the whole message disagree", "");
}

// So must all its packets, if it can be cut.
void read_in_packets(std::span<const uint8_t> stream, const MessageIds& expected, const Receiver& whole) {
  static Receiver r;
  static PacketDecoder decoder(manifest(), RunSecret::from_seed(7), {1, small_limits()});
  PacketSet set;
  try {
    set = packetize(stream, manifest(), RunSecret::from_seed(7), 64 + stream.back() * 4u, kName, small_limits());
  } catch (const Error& e) {
    if (e.code() != ErrorCode::kUnsupported) finding("a message that decodes cannot be cut", e.what());
    return check_error(e);
  }
  r.clear();
  const std::vector<std::span<const uint8_t>> packets(set.packets.begin(), set.packets.end());
  decoder.decode_add(set.control, packets, expected, 0.25f, r.all, nullptr, kName);
  if (!r.equals(whole)) finding("packets and the whole message disagree", "");
}

void check_values(std::span<const uint8_t> stream, const Receiver& r);

void sum_rotated(std::span<const uint8_t> stream, const MessageIds& expected) {
  static Receiver r;
  r.clear();
  try {
    r.decoder.decode_rotated_add(stream, expected, 0.5f, r.all, nullptr, kName);
  } catch (const Error& e) {
    if (e.code() != ErrorCode::kUnsupported && e.code() != ErrorCode::kMismatch) throw;
    r.clear();
  }
  r.decoder.finish_rotated(r.all);
  check_values(stream, r);
}

// Elements that were 0: the float32 sum, rounded.
void sum_in_bf16(std::span<const uint8_t> stream, const MessageIds& expected, Receiver& r) {
  r.clear();
  r.decoder.decode_add(stream, expected, 1.0f, r.all, nullptr, kName);
  static std::vector<uint16_t> sums[kTensors];
  BFloat16Span acc[kTensors];
  for (size_t i = 0; i < kTensors; ++i) {
    sums[i].assign(r.all[i].size(), 0);
    acc[i] = {sums[i].data(), sums[i].size()};
  }
  r.decoder.decode_add(stream, expected, 1.0f, acc, nullptr, kName);
  for (size_t i = 0; i < kTensors; ++i) {
    for (size_t k = 0; k < sums[i].size(); ++k) {
      const float wide = r.all[i][k], sum = bf16_to_float(sums[i][k]);
      if (std::isnan(wide) ? !std::isnan(sum)
                           : !(std::fabs(sum - wide) <= 0x1p-8f * std::fabs(wide) + 0x1p-133f) && std::isfinite(wide))
        finding("the bfloat16 sum is not the float32 sum", "");
    }
  }
}

// A message that the whole-message decoder refuses must not get through in portions.
void refuse_in_portions(std::span<const uint8_t> stream) {
  static Receiver r;
  static StreamDecoder decoder(manifest(), RunSecret::from_seed(7), small_limits());
  decoder.begin(kIds, 1.0f, r.all);
  try {
    for (size_t at = 0, n = 0; at < stream.size(); at += n) {
      n = std::min<size_t>(stream.size() - at, 1 + stream[at] % 64);
      decoder.feed(stream.subspan(at, n));
    }
  } catch (const Error& e) {
    check_error(e);
    return;
  }
  if (decoder.done()) finding("accepted in portions, refused whole", "");
}

// Evenly spread choices: the checksum's bytes.
uint32_t choice_of(std::span<const uint8_t> stream) { return stream.empty() ? 0 : stream.back(); }

// Whoever sent it, the payload is to be looked at; half of the inputs must name the right sender.
MessageIds expected_ids(std::span<const uint8_t> stream) {
  MessageIds expected = kIds;
  if (stream.size() >= kMessageHeaderBytes && choice_of(stream) % 2 != 0) {
    expected.run = load_u64(stream.data() + 32);
    expected.round = load_u64(stream.data() + 40);
    expected.client = load_u64(stream.data() + 48);
    expected.base_model_hash = load_u64(stream.data() + 56);
  }
  return expected;
}

void check_values(std::span<const uint8_t> stream, const Receiver& r) {
  for (size_t i = 0; i < kTensors; ++i) {
    if (std::all_of(r.all[i].begin(), r.all[i].end(), [](float v) { return std::isfinite(v); })) continue;
    check_values(r.all[i], read_stream_info(stream, kName, small_limits(), &manifest()).tensors[i].params);
  }
}

// The other entrances in turn, so that time goes into many inputs.
void read_message(std::span<const uint8_t> stream) {
  static Receiver old;
  const MessageIds expected = expected_ids(stream);
  old.clear();
  old.decoder.decode(stream, expected, old.all, nullptr, kName);
  check_values(stream, old);
  switch (choice_of(stream) / 2 % 16) {
    case 0: {
      Receiver fresh;
      fresh.decoder.decode(stream, expected, fresh.all, nullptr, kName);
      if (!fresh.equals(old)) finding("an old and a fresh decoder disagree", "");
      return;
    }
    case 1:
    case 2:
      old.clear();
      old.decoder.decode_add(stream, expected, 0.25f, old.all, nullptr, kName);
      return read_in_portions(stream, expected, old);
    case 3:
    case 4:
      return sum_rotated(stream, expected);
    case 6:
      old.clear();
      old.decoder.decode_add(stream, expected, 0.25f, old.all, nullptr, kName);
      return read_in_packets(stream, expected, old);
    case 5:
      (void)old.decoder.peek(stream, kName);
      if (old.decoder.exact_bytes(stream, expected, 4, kName).size() != 10) finding("exact elements of another size", "");
      return;
    case 7:
      return sum_in_bf16(stream, expected, old);
    default:
      return;
  }
}

// What the receiver of many messages refuses must not get through in portions or at a new receiver.
void refused_message(std::span<const uint8_t> stream) {
  if (choice_of(stream) % 8 == 2) return refuse_in_portions(stream);
  if (choice_of(stream) % 8 == 4) {  // it may be another receiver's; what counts is that cutting reads nothing wrong
    try {
      packetize(stream, manifest(), RunSecret::from_seed(7), 256, kName, small_limits());
    } catch (const Error& e) {
      check_error(e);
    }
    return;
  }
  if (choice_of(stream) % 32 != 0) return;
  Receiver fresh;
  try {
    fresh.decoder.decode(stream, kIds, fresh.all, nullptr, kName);
  } catch (const Error&) {
    return;
  }
  finding("a fresh decoder accepts what an old one refuses", "");
}

fuzz::StreamMutator& mutator() {
  static fuzz::StreamMutator m(manifest_hash(manifest()));
  return m;
}

bool sealed(std::span<const uint8_t> s) {
  if (s.size() < kFileHeaderBytes + kChecksumBytes || std::memcmp(s.data(), kMagic, 4) != 0) return false;
  const size_t body = s.size() - kChecksumBytes;
  return crc32(s.first(body)) == load_u32(s.data() + body);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // Any alignment, and the last byte the last of the allocation.
  const size_t shift = size % 4;
  std::vector<uint8_t> copy(size + shift);
  if (size > 0) std::memcpy(copy.data() + shift, data, size);
  const std::span<const uint8_t> stream = std::span<const uint8_t>(copy).subspan(shift);
  counts.inputs++;
  if (sealed(stream)) counts.past_checksum++;
  try {
    if (size > 6 && (stream[6] & kFlagMessage) != 0) {
      read_message(stream);
    } else {
      read_file(stream);
    }
    counts.decoded++;
    mutator().keep(stream);
  } catch (const Error& e) {
    check_error(e);
    if (size > 6 && (stream[6] & kFlagMessage) != 0) refused_message(stream);
  }
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  return mutator().mutate(data, size, max_size, seed);
}
