// gradient: messages as packets that may be lost (docs/format/gradient.md, "Packets"; EDEN, Vargaftik et al., ICML 2022: loss
// is subsampling).
//
// A message becomes a control part (header, records, scales; to be sent reliably) and data packets, each readable alone.
// Rotated coordinates are interleaved over groups of 64 blocks, so that a burst of lost packets takes a little of many blocks
// and never all of one. A lost coordinate counts as 0 and a block is divided by the share of its codes that arrived: unbiased,
// error (1 + v)/(1 - p) - 1 at loss p.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "kpd/gradient/message.h"

namespace kpd::gradient {

struct PacketSet {
  std::vector<uint8_t> control;
  std::vector<std::vector<uint8_t>> packets;
  uint64_t payload_bytes = 0;  // codes, in all packets
  uint64_t overhead_bytes =
      0;  // tags, indices and checksums of packets, and what the control part has beyond the message's own bytes
  uint64_t total_bytes() const { return control.size() + payload_bytes + 16 * static_cast<uint64_t>(packets.size()); }
};

// Cuts a message (not a file) into packets of about target_payload_bytes of codes (64..60000) or less, and 16 bytes beside.
// As codes vary in length some have up to a tenth and 40 bytes more, which has to fit the link too; and all have more where
// 4,096 packets do not suffice for 64 blocks (large blocks and small targets). Needs no secret.
// Methods: eden without dither and allocate; tensors that travel as float32 or as they are go into the control part.
// Error(kUnsupported) for other methods, else as for reading a message of `manifest`.
PacketSet packetize(std::span<const uint8_t> message, const Manifest& manifest, uint32_t target_payload_bytes = 1200,
                    std::string_view name = "message", const Limits& limits = {});

struct PacketReport {
  uint64_t expected = 0, received = 0;
  uint64_t damaged = 0;  // checksum, length or content wrong: counted, treated as lost
  uint64_t foreign = 0;  // of another message
  uint64_t duplicate = 0;
  uint64_t groups = 0, groups_lost = 0;  // groups of 64 blocks; lost: nothing of it arrived, decoded as zeros
  uint64_t saturated = 0;
};

// Decodes a control part and whatever packets arrived, in any order. Thread-compatible.
class PacketDecoder {
 public:
  PacketDecoder(Manifest manifest, RunSecret secret, DecodeOptions options = {});
  ~PacketDecoder();
  PacketDecoder(PacketDecoder&&) noexcept;
  PacketDecoder& operator=(PacketDecoder&&) noexcept;

  // acc[i] += weight * decoded; ids are checked as Decoder does. A damaged control part throws, a damaged packet is a lost one.
  void decode_add(std::span<const uint8_t> control, std::span<const std::span<const uint8_t>> packets,
                  const MessageIds& expected, float weight, std::span<const std::span<float>> acc,
                  PacketReport* report = nullptr, std::string_view name = "message");

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kpd::gradient
