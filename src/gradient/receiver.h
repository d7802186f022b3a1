// gradient: what the decoders of messages (decoder.h, streaming.h, packets.h) have in common: what they know, the checks of a
// message before anything of it is decoded, and its units. Private.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "gradient/stream_format.h"
#include "gradient/units.h"

namespace kpd::gradient {

// The codec table of a stream and the units that follow from it. A table that equals that of the last stream is not looked at
// again, so a steady flow of messages of one manifest (which must stay the same) allocates nothing.
class UnitTable {
 public:
  // `rest`: the stream from its codec table on, where `r` stands.
  void read(ByteReader& r, std::span<const uint8_t> rest, const Manifest& manifest, CodecCache& codecs);
  const CodecTable& table() const { return table_; }
  const Units& units() const { return units_; }

 private:
  CodecTable table_;
  std::vector<uint8_t> bytes_;  // as they were; empty: none was right
  Units units_;
};

class Receiver {
 public:
  Receiver(Manifest manifest, RunSecret secret, const Limits& limits);
  const Manifest& manifest() const { return manifest_; }
  const RunSecret& secret() const { return secret_; }
  const Limits& limits() const { return limits_; }
  uint64_t hash() const { return hash_; }
  uint64_t elements() const { return elements_; }  // of all tensors
  CodecCache& codecs() { return codecs_; }

  // Throws Error(kInvalidArgument) for what no message can be added to, or by.
  void check_target(std::span<const std::span<float>> dst, float weight = 1) const;
  // Throws Error(kMismatch) for a header of another model.
  void check_header(const StreamInfo& info, std::string_view name) const;
  // The same, and for another message than the expected one; the keys are then those of this message.
  void accept(const StreamInfo& info, const MessageIds& expected, std::string_view name);
  void read_units(ByteReader& r, std::span<const uint8_t> rest) { table_.read(r, rest, manifest_, codecs_); }

  const MessageIds& ids() const { return ids_; }
  const Units& units() const { return table_.units(); }
  TensorKeys keys(const Unit& unit) const { return tensor_keys(secret_, hash_, ids_, unit.tensor, unit.params); }

 private:
  Manifest manifest_;
  RunSecret secret_;
  Limits limits_;
  uint64_t hash_ = 0, elements_ = 0;
  CodecCache codecs_;
  UnitTable table_;
  MessageIds ids_;
};

}  // namespace kpd::gradient
