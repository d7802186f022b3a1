// gradient: messages into vectors and sums (docs/format/gradient.md).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "kpd/base/limits.h"
#include "kpd/gradient/message.h"

namespace kpd::gradient {

// bfloat16 elements by their bit patterns, not owned.
struct BFloat16Span {
  uint16_t* data = nullptr;
  uint64_t count = 0;
};

struct DecodeOptions {
  int threads = 1;
  Limits limits{};
};

struct DecodeReport {
  uint64_t elements = 0;
  uint64_t saturated = 0;  // decoded values beyond the float range, clamped to +-FLT_MAX
};

// Decodes messages of one agreed manifest. Allocates nothing after the first call. Thread-compatible.
class Decoder {
 public:
  Decoder(Manifest manifest, RunSecret secret, DecodeOptions options = {});
  ~Decoder();
  Decoder(Decoder&&) noexcept;
  Decoder& operator=(Decoder&&) noexcept;

  // Reads the header only: checks form, version, lengths, checksum and manifest hash, not the codecs. For a receiver that
  // must learn the weight first.
  MessageIds peek(std::span<const uint8_t> message, std::string_view name = "message") const;
  // Checks a message completely: what it accepts, decode_add() with the same ids accepts. Returns the L2 norm of what it
  // decodes to, from scales and codes, without inverse transforms (where rotations are orthonormal that is the same).
  double norm(std::span<const uint8_t> message, const MessageIds& expected, std::string_view name = "message");
  // The same of what decode_add() would add to dst: without the tensors of an exact type for which it has no room.
  double norm(std::span<const uint8_t> message, const MessageIds& expected, std::span<const std::span<float>> dst,
              std::string_view name = "message");
  // dst[i] (manifest[i].count() floats) = decoded; of a tensor of an exact type its values as floats, or nothing where dst[i]
  // is empty. `expected`: run, round, client and base_model_hash must agree, else Error(kMismatch).
  void decode(std::span<const uint8_t> message, const MessageIds& expected, std::span<const std::span<float>> dst,
              DecodeReport* report = nullptr, std::string_view name = "message");
  // acc[i] += weight * decoded, for a finite weight (else Error(kInvalidArgument)). The message is checked as a whole
  // (checksum, ids, every segment's structure that can be checked without decoding) before acc is touched; if a segment then
  // proves corrupt the Error says so and acc is undefined.
  void decode_add(std::span<const uint8_t> message, const MessageIds& expected, float weight,
                  std::span<const std::span<float>> acc, DecodeReport* report = nullptr, std::string_view name = "message");
  // The same into bfloat16: every element is acc + weight * decoded in float32, limited to the bfloat16 range and rounded to
  // nearest even, once a message. So a sum of many messages gathers a rounding of 2^-9 of itself with each, and what is smaller
  // vanishes: for a few messages, or where the memory of a float32 sum is not there.
  void decode_add(std::span<const uint8_t> message, const MessageIds& expected, float weight, std::span<const BFloat16Span> acc,
                  DecodeReport* report = nullptr, std::string_view name = "message");

  // For codes with dither=shared, whose clients of one run and round share their rotations: acc[i] += weight * decoded before
  // the inverse rotation. After the last client finish_rotated() applies that inverse once, to all that is in acc: it starts at
  // 0, and nothing else is added to it before. All messages between two finish_rotated() must agree in run, round, block and
  // rounds (Error(kMismatch)); other codes throw Error(kUnsupported). Tensors too short to be coded and those of exact types
  // are summed as they are.
  void decode_rotated_add(std::span<const uint8_t> message, const MessageIds& expected, float weight,
                          std::span<const std::span<float>> acc, DecodeReport* report = nullptr,
                          std::string_view name = "message");
  void finish_rotated(std::span<const std::span<float>> acc);
  // Forgets a rotated sum that will not be finished; the next message begins another.
  void drop_rotated();
  // The elements of tensor `index`, of an exact type, as they are: a part of the message, checked as decode() does.
  std::span<const uint8_t> exact_bytes(std::span<const uint8_t> message, const MessageIds& expected, size_t index,
                                       std::string_view name = "message");

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kpd::gradient
