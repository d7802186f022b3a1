// gradient: whole-model messages and files of compressed tensors (docs/format/gradient.md).
//
// A stream holds many tensors under one header and ends in a CRC-32 of all before. Two forms: a *message* (between machines
// that agreed on a manifest; carries a hash of it and the ids of run, round and client, from which both sides derive the seeds)
// and a *file* (carries its manifest, its seed, and which client's it is of which round). Every number of bits reported counts
// all bytes of the stream.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kpd/base/dtype.h"
#include "kpd/base/limits.h"
#include "kpd/gradient/codec.h"

namespace kpd::gradient {

struct TensorInfo {
  std::string name;
  DType dtype = DType::kFloat32;
  std::vector<uint64_t> shape;  // product = count; empty = one element (a scalar)
  uint64_t count() const;       // throws Error(kLimitExceeded) on overflow
};
using Manifest = std::vector<TensorInfo>;
// SHA-256 over the serialised manifest, first 8 bytes.
uint64_t manifest_hash(const Manifest& manifest);

// Who sent a message, and for which step. A receiver compares all but `weight` with what it expects.
struct MessageIds {
  uint64_t run = 0;
  uint64_t round = 0;
  uint64_t client = 0;
  uint64_t base_model_hash = 0;
  uint64_t weight = 1;  // e.g. the number of examples behind the update
};

// Both sides share this; never on the wire. With an all-zero secret the rotations are predictable from the ids. A message tells
// nothing of it: with another secret than its sender's it is accepted and decodes to noise.
struct RunSecret {
  std::array<uint8_t, 32> bytes{};
  static RunSecret from_seed(uint64_t seed);
};

// What the rotations of a file follow from, beside its manifest. Files that are averaged must differ in one of them: errors of
// equal rotations do not cancel.
struct FileIds {
  uint64_t seed = 0;
  uint64_t round = 0;
  uint64_t client = 0;
  FileIds(uint64_t the_seed, uint64_t the_round = 0, uint64_t the_client = 0)  // NOLINT: a seed alone is one
      : seed(the_seed), round(the_round), client(the_client) {}
};
// Texts that a file carries beside its tensors, as safetensors' __metadata__.
using FileMetadata = std::vector<std::pair<std::string, std::string>>;

enum class NonFinite : uint8_t {
  kRefuse,  // Error(kInvalidArgument) naming tensor and index
  kZero,    // replaced by 0, counted
  kPass,    // tensors that hold one travel as raw float32 values, counted
};

struct EncodeOptions {
  int threads = 1;
  NonFinite nonfinite = NonFinite::kRefuse;
  FileMetadata metadata{};     // of files; well-formed UTF-8
  bool authenticated = false;  // messages get the 16-byte field that authenticate() fills (kpd/gradient/aggregator.h)
  // Called with the elements of each segment when it is coded, by the threads that do it, at the same time; may be empty. It
  // must not throw.
  std::function<void(uint64_t elements)> on_progress{};
};

// What encoding did, summed over the tensors of one stream; exact, from the codes and scales sent.
struct EncodeReport {
  uint64_t elements = 0;
  uint64_t stream_bytes = 0;
  // What the bytes are: raw_bytes are float32 elements, by rule (tensors of fewer than 64), by nonfinite=pass or by the codec;
  // exact_bytes those of exact types; coded_bytes all other segments. What is left is header, codec table, lengths of segments
  // and checksum.
  uint64_t coded_bytes = 0, raw_bytes = 0, exact_bytes = 0;
  uint64_t exact_elements = 0;
  // Both without the segments that hold a value that is not finite (nonfinite=pass) and without exact types, which travel
  // exactly.
  double norm2 = 0;   // sum of squares of the input
  double error2 = 0;  // sum of squares of (decoded - input), by S^2|q|^2 - 2S<y,q> + |y|^2
  uint64_t blocks = 0;
  uint64_t nonfinite = 0;  // elements
  double vnmse() const { return norm2 > 0 ? error2 / norm2 : 0; }
};

// The same of one unit: a tensor, or several that are coded as one vector.
struct UnitReport {
  size_t tensor = 0;   // the first
  size_t members = 1;  // how many tensors
  WireParams params;   // how it is coded
  uint64_t elements = 0, bytes = 0;
  double norm2 = 0, error2 = 0;
  double vnmse() const { return norm2 > 0 ? error2 / norm2 : 0; }
};

// Encodes tensors of one fixed manifest, again and again. After the first call of a size it allocates nothing.
// Thread-compatible; uses options.threads threads inside.
class Encoder {
 public:
  Encoder(Manifest manifest, CodecPolicy policy, RunSecret secret, EncodeOptions options = {});
  ~Encoder();
  Encoder(Encoder&&) noexcept;
  Encoder& operator=(Encoder&&) noexcept;

  // Upper bound of what encode_message / encode_file write, before anything is encoded.
  uint64_t max_bytes() const;
  // tensors[i] has manifest[i]'s count; where the manifest has an exact type it has the same type, else any type that is not
  // exact. Returns the bytes written; dst.size() >= max_bytes() always suffices, less may throw Error(kInvalidArgument), as a
  // float64 beyond the float range does. `dst` and the tensors must not overlap.
  uint64_t encode_message(std::span<const TensorView> tensors, const MessageIds& ids, std::span<uint8_t> dst,
                          EncodeReport* report = nullptr);
  // File form: manifest, ids and metadata travel; the seed is the file's own secret.
  uint64_t encode_file(std::span<const TensorView> tensors, const FileIds& ids, std::span<uint8_t> dst,
                       EncodeReport* report = nullptr);
  // Streaming form of the same message, for overlap with a transport: begin_stream(), then next_chunk() until it returns 0.
  // Chunks are the header, then one segment (64 blocks) at a time, then the checksum; joined they are one stream, whose total
  // length field says "unknown". The tensors must stay unchanged meanwhile. dst.size() >= max_chunk_bytes(). Encoding anything
  // else, or an Error about a tensor's values, gives the stream up: next_chunk() then throws Error(kInvalidArgument).
  void begin_stream(std::span<const TensorView> tensors, const MessageIds& ids);
  uint64_t max_chunk_bytes() const;
  uint64_t next_chunk(std::span<uint8_t> dst, EncodeReport* report = nullptr);
  const Manifest& manifest() const;
  const CodecPolicy& policy() const;
  // Of the last complete stream, in stream order; valid until the encoder is used again.
  std::span<const UnitReport> unit_reports();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// So many tensors in a row have this codec of the stream's table.
struct CodecRun {
  uint8_t codec = 0;
  uint64_t tensors = 0;
};
// What is coded as one vector.
struct UnitRecord {
  size_t tensor = 0;               // the first; of several, the others follow it in the manifest but not always directly
  size_t members = 1;              // how many tensors
  uint64_t count = 0;              // elements
  WireParams params;               // resolved
  uint64_t offset = 0, bytes = 0;  // of its segments (with their lengths) within the stream
};
struct TensorRecord {
  uint64_t count = 0;
  DType dtype = DType::kFloat32;
  uint8_t codec = 0;               // in the stream's table; what is by rule not coded by it (params) is said to have it too
  WireParams params;               // of its unit
  size_t unit = 0;                 // where it is coded,
  uint64_t start = 0;              // from this element of the unit
  uint64_t offset = 0, bytes = 0;  // of its unit; of the bytes its share by elements
};

struct StreamInfo {
  bool is_file = false;
  bool is_streamed = false;
  bool is_authenticated = false;  // the MAC field is there
  uint8_t major = 0, minor = 0;
  uint64_t header_bytes = 0, total_bytes = 0;
  uint32_t n_tensors = 0;
  MessageIds ids;              // of a file round and client only
  uint64_t manifest_hash = 0;  // both forms (computed for files)
  uint64_t seed = 0;           // file form
  FileMetadata metadata;       // file form
  std::array<uint8_t, 16> mac{};
  std::vector<WireParams> codecs;  // the stream's table, as it travels
  std::vector<CodecRun> runs;      // the codecs of all tensors
  Manifest manifest;               // of a file, or the one given
  // Empty for a message whose manifest was not given: only the manifest tells what lies where.
  std::vector<TensorRecord> tensors;
  std::vector<UnitRecord> units;
  uint64_t elements() const;
};

// Checks magic, version, lengths, checksum, manifest, codec table and where all segments lie against `limits` and the bytes
// that are there; decodes nothing. Of a message that needs the manifest both sides agreed on; without one only header and codec
// table are read. `name` is the file named in errors. Throws Error(kCorruptData | kUnsupported | kLimitExceeded), and
// Error(kMismatch) for a message about another manifest than the one given.
StreamInfo read_stream_info(std::span<const uint8_t> stream, std::string_view name = "message", const Limits& limits = {},
                            const Manifest* message_manifest = nullptr);

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

// Decodes the tensors of a file-form stream already read by read_stream_info, which both must outlive it. Keeps the last
// segment of a joined unit, so that tensors decoded in manifest order decode each segment once. Thread-compatible.
class FileDecoder {
 public:
  FileDecoder(std::span<const uint8_t> stream, const StreamInfo& info, int threads = 1, std::string_view name = "file");
  ~FileDecoder();
  FileDecoder(FileDecoder&&) noexcept;
  FileDecoder& operator=(FileDecoder&&) noexcept;
  // dst (the tensor's count of floats) = decoded.
  void decode(size_t index, std::span<float> dst, DecodeReport* report = nullptr);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};
// One tensor of it.
void decode_file_tensor(std::span<const uint8_t> stream, const StreamInfo& info, size_t index, std::span<float> dst,
                        int threads = 1, DecodeReport* report = nullptr, std::string_view name = "file");
// The elements of tensor `index`, of an exact type, as they are: a part of the stream. Error(kInvalidArgument) for other types.
std::span<const uint8_t> decode_file_exact(std::span<const uint8_t> stream, const StreamInfo& info, size_t index);

}  // namespace kpd::gradient
