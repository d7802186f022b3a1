// gradient: messages as packets that may be lost (docs/format/gradient.md, "Packets"; EDEN, Vargaftik et al., ICML 2022: loss
// is subsampling).
//
// A message becomes a control part (header, codecs, scales; to be sent reliably) and P data packets, each readable alone. The
// codes of the whole message are dealt to the packets one by one, in an order that the secret decides, so that any loss, also
// of neighbours, takes the same share of every block of every tensor, as nearly as whole codes allow. A code that is lost
// counts as 0, and everything is multiplied by sigma / alpha, where sigma = P packets were sent and alpha of them arrived.
//
// What follows, if losses do not depend on what packets hold. Every code arrives with probability alpha / sigma, so the
// estimate is unbiased, given that something arrived (alpha > 0), for tensors of any size; and the error of what is coded as
// one vector x (a tensor, or several that are joined) is at most
//     (1 + v) E[sigma / alpha | alpha > 0] - 1
// of |x|^2, where v is its error without loss. For: q the codes, R the rotation, |S q|^2 = (1 + v)|x|^2 and
// <S R^-1 q, x> = |x|^2; with a share a of the codes of a block, E a = alpha / sigma, the error is
// (1 + v) a (sigma / alpha)^2 - 2 a sigma / alpha + 1, in the mean (1 + v) sigma / alpha - 1. (Dividing each block by its own
// share instead has the mean (1 + v) E[1 / a] - 1, which is not less, and is biased where a may be 0.)
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kpd/gradient/message.h"
#include "kpd/gradient/decoder.h"

namespace kpd::gradient {

inline constexpr uint64_t kPacketOverheadBytes = 12;  // tag, index and checksum of a packet
inline constexpr uint32_t kPacketPayloadBytes = 1200;

struct PacketSet {
  std::vector<uint8_t> control;
  std::vector<std::vector<uint8_t>> packets;
  uint64_t payload_bytes = 0;   // codes, in all packets
  uint64_t overhead_bytes = 0;  // tags, indices and checksums of packets, and their number in the control part
  // On the wire, without what the transport adds.
  uint64_t total_bytes() const { return control.size() + payload_bytes + kPacketOverheadBytes * packets.size(); }
};

// Cuts a message (not a file) whose codes take M bytes into P = max(ceil(M / target), min(16, floor(M / 64))) packets (but no
// more than one for 4 codes) of about equal size: target_payload_bytes (64..60000) of codes or less, and 12 bytes beside. As
// entropy codes vary in length some have up to a tenth and 16 bytes more, which has to fit the link too. A message of zeros has
// no packets. `secret` is the one it was encoded with; with another the packets are dealt in another order than their receiver
// expects and decode to noise. Methods: eden without dither and allocate; tensors that travel as float32 or as they are go into
// the control part. Error(kUnsupported) for other methods, else as for reading a message of `manifest`.
PacketSet packetize(std::span<const uint8_t> message, const Manifest& manifest, const RunSecret& secret,
                    uint32_t target_payload_bytes = kPacketPayloadBytes, std::string_view name = "message",
                    const Limits& limits = {});

// Blocks of which no packet brought a code: `elements` of them from `first_element` of tensor `tensor` were decoded as zeros.
// Only where blocks have fewer codes than the message has packets, or next to nothing arrived.
struct LostGroup {
  size_t tensor = 0;
  uint64_t first_element = 0, elements = 0;
};
// "elements 0 to 95 of tensor 'bias'".
std::string to_text(const LostGroup& group, const Manifest& manifest);

struct PacketReport {
  uint64_t expected = 0, received = 0;
  uint64_t damaged = 0;  // checksum, length or content wrong: counted, treated as lost
  uint64_t foreign = 0;  // of another message
  uint64_t duplicate = 0;
  bool lost = false;                   // nothing arrived where something was sent: not decoded
  uint64_t groups = 0;                 // of up to 64 blocks
  std::vector<LostGroup> lost_groups;  // one for each tensor in it; unless all are
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
  // False if codes were sent and none arrived: acc is then unchanged, and the message does not count in an average (for an
  // Aggregator: refuse(Refusal::kLost)).
  bool decode_add(std::span<const uint8_t> control, std::span<const std::span<const uint8_t>> packets,
                  const MessageIds& expected, float weight, std::span<const std::span<float>> acc,
                  PacketReport* report = nullptr, std::string_view name = "message");

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kpd::gradient
