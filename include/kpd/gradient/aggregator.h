// gradient: the server's side of a round: messages in, a weighted average out, whatever the clients send.
//
// Every message is checked whole (checksum, ids, structure, codes, norm) before it may touch the sum, so one that is refused
// leaves no trace. What is and is not defended: SECURITY.md.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kpd/gradient/message.h"

namespace kpd::gradient {

// Why a client is not in an average.
enum class Refusal : uint8_t {
  kNone = 0,
  kSilent,       // nothing came in time
  kLost,         // its connection ended
  kDamaged,      // not a message, or one whose bytes are wrong
  kTwice,        // a second message of the round
  kOtherRound,   // of an earlier or later round
  kOtherRun,     // of another run
  kOtherClient,  // it carries another client's id
  kOtherModel,   // of another manifest or another base model
  kOtherCodec,   // compressed by another codec than the round's
  kWeight,       // weight 0 or beyond the limit
  kNorm,         // longer than the limit
  kForged,       // its authentication code is wrong
};
inline constexpr int kRefusals = 13;
std::string_view refusal_name(Refusal refusal);  // "silent", "damaged", ...

struct Verdict {
  Refusal refusal = Refusal::kNone;
  std::string reason;  // a sentence; empty if accepted
  uint64_t weight = 0;
  double norm = 0;     // of what the message decodes to, before values beyond the float range are limited to it
  uint64_t bytes = 0;  // of the message
  bool accepted() const { return refusal == Refusal::kNone; }
};

// Computes the 16 bytes of the MAC field from a message's bytes, in which that field and the checksum are zero.
using MacFunction = std::function<std::array<uint8_t, 16>(std::span<const uint8_t> message)>;
// Fills the field of a complete message and renews its checksum. The message was encoded with EncodeOptions::authenticated,
// else Error(kMismatch); throws as read_stream_info for what is no message.
void authenticate(std::span<uint8_t> message, const MacFunction& mac);

struct AggregatorOptions {
  int threads = 1;
  Limits limits{};
  uint64_t max_weight = uint64_t{1} << 32;  // of one client
  // Of one update, |decoded|. Norm times weight is at most 2^100 in any case (2^80 with sum_rotated), so that no sum leaves the
  // float range.
  double max_norm = std::numeric_limits<double>::infinity();
  bool sum_rotated = false;  // codes with dither=shared: one inverse rotation a round instead of one a client
  // If set, what every tensor must be compressed by (a tensor with NaN or Inf may travel as float32). Without it clients choose
  // freely; required with sum_rotated, where a first message with other blocks would shut out all others.
  std::optional<CodecPolicy> codec{};
  MacFunction mac{};  // empty: the field is ignored; else a message without it is refused
};

struct RoundReport {
  uint64_t accepted = 0;
  uint64_t total_weight = 0;
  uint64_t saturated = 0;  // values beyond the float range
  uint64_t bytes = 0;      // of all messages, also refused ones
  uint64_t refused[kRefusals] = {};
  uint64_t refusals() const;
};

// Thread-compatible. Memory beyond the sum: scratch of its threads; it keeps no message.
class Aggregator {
 public:
  Aggregator(Manifest manifest, RunSecret secret, AggregatorOptions options = {});
  ~Aggregator();
  Aggregator(Aggregator&&) noexcept;
  Aggregator& operator=(Aggregator&&) noexcept;

  // Starts a round: sum[i] (manifest[i].count() floats each, alive until finish_round()) becomes 0. Of `expected`, run, round
  // and base_model_hash count. A round that was not finished is forgotten.
  void begin_round(const MessageIds& expected, std::span<const std::span<float>> sum);
  // Adds weight * decoded. The order of the calls is the order of the sum. Never throws for what a message holds.
  Verdict add(uint64_t client, std::span<const uint8_t> message);
  // Counts a client of which there is no message to look at.
  void refuse(Refusal refusal);
  // Divides by the weights. False if no message was accepted: the sum is then 0 and no model should change. Once a round.
  bool finish_round();
  const RoundReport& report() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kpd::gradient
