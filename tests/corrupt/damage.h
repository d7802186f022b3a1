// tests: streams damaged in one way each, sealed again so that the checksum holds, with the error that must follow.
#pragma once

#include <bit>
#include <cfloat>
#include <cstdint>
#include <string>
#include <vector>

#include "gradient/round_trip.h"
#include "gradient/stream_format.h"
#include "kpd/base/error.h"
#include "kpd/base/crc32.h"
#include "kpd/coding/rans.h"
#include "kpd/gradient/message.h"
#include "kpd/gradient/stream_info.h"
#include "kpd/gradient/file_decoder.h"
#include "kpd/gradient/decoder.h"
#include "kpd/quant/gaussian_step.h"

namespace kpd::gradient::testing {

using Bytes = std::vector<uint8_t>;

inline constexpr uint64_t kElements = 70;  // one block of 64 with a tail

// Total length and checksum made right.
inline void seal(Bytes& b) {
  const size_t body = b.size() - kChecksumBytes;
  store_u64(b.data() + 16, b.size());
  store_u32(b.data() + body, crc32({b.data(), body}));
}

inline Bytes encode_stream(const std::string& spec, bool message = false, uint64_t n = kElements,
                           const std::string& name = "x") {
  Encoder e({{name, DType::kFloat32, {n}}}, Codec::parse(spec), RunSecret::from_seed(7));
  const std::vector<float> x = normal_vector(n, 1);
  const TensorView view{std::span<const float>(x)};
  Bytes b(e.max_bytes());
  b.resize(message ? e.encode_message({&view, 1}, {1, 2, 3, 4, 5}, b) : e.encode_file({&view, 1}, 5, b));
  return b;
}

inline size_t table_at(const Bytes& b) { return load_u32(b.data() + 8); }
// Of the only codec, its only run of tensors, and the first segment (of a stream of fewer than 128 tensors).
inline size_t record_at(const Bytes& b) { return table_at(b) + 2; }
inline size_t run_at(const Bytes& b) { return record_at(b) + kRecordBytes; }
inline size_t payload_at(const Bytes& b) { return run_at(b) + 2; }

// Reads and decodes all of a stream of either form as the program does; the values of the last tensor.
inline std::vector<float> read_all(std::span<const uint8_t> stream) {
  constexpr const char* kName = "hostile.kpdg";
  const Manifest manifest = {{"x", DType::kFloat32, {kElements}}};
  const StreamInfo info = read_stream_info(stream, kName);
  std::vector<float> values;
  if (!info.is_file) {
    values.assign(kElements, 0.0f);
    Decoder d(manifest, RunSecret::from_seed(7));
    const std::span<float> dst(values);
    d.decode(stream, {1, 2, 3, 4, 5}, {&dst, 1}, nullptr, kName);
  }
  for (size_t i = 0; i < info.tensors.size(); ++i) {
    values.assign(info.tensors[i].count, 0.0f);
    decode_file_tensor(stream, info, i, values, 1, nullptr, kName);
  }
  return values;
}

// A file of one entropy-coded block whose segment is made of these parts.
struct EntropyParts {
  uint32_t word = 256u << 23;
  Bytes flush{};
  std::vector<int16_t> escapes{};
};
inline Bytes entropy_stream(const EntropyParts& parts, uint32_t flush_bytes) {
  Bytes b = encode_stream("eden:code=entropy,bits=5");
  b.resize(payload_at(b));
  const auto put = [&](uint32_t v, int n) {
    for (int i = 0; i < n; ++i) b.push_back(static_cast<uint8_t>(v >> (8 * i)));
  };
  put(static_cast<uint32_t>(8 + parts.flush.size() + 2 * parts.escapes.size()), 4);
  put(parts.word, 4);
  put(flush_bytes, 4);
  b.insert(b.end(), parts.flush.begin(), parts.flush.end());
  for (const int16_t e : parts.escapes) put(static_cast<uint16_t>(e), 2);
  put(0, 4);
  seal(b);
  return b;
}
inline Bytes entropy_stream(const EntropyParts& parts) {
  return entropy_stream(parts, static_cast<uint32_t>(parts.flush.size()));
}

// A flush of kElements symbols: `escapes` escapes, then all other symbols in turn.
inline Bytes flush_of(size_t escapes) {
  const auto step = quant::gaussian_step(Codec::parse("eden:code=entropy,bits=5").params().param, false);
  std::vector<uint8_t> symbols(kElements);
  for (size_t i = 0; i < kElements; ++i) symbols[i] = static_cast<uint8_t>(7 * i % static_cast<size_t>(step->escape_symbol));
  for (size_t i = 0; i < escapes; ++i) symbols[i] = static_cast<uint8_t>(step->escape_symbol);
  Bytes room(coding::rans_max_bytes(kElements));
  const coding::RansEncodeTable table(step->class_frequencies(0));
  const auto used = coding::rans_encode(table, symbols, room);
  return {used.begin(), used.end()};
}

struct Damage {
  std::string name;
  Bytes bytes;
  ErrorCode code;
  std::string part;  // of the text
};

}  // namespace kpd::gradient::testing
