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
#include "kpd/gradient/codec_policy.h"

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

}  // namespace kpd::gradient
