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
  kWeight,       // another weight than the expected one, 0, or beyond the limit
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
  // Of a client whose weight add() is not told: a message says its own weight, and a liar's may be any up to this one.
  uint64_t max_weight = 1;
  // Of one update, as its client has it: |x|. What a message decodes to is longer, by the code's error: with `codec` a message
  // is refused where |decoded|^2 > max_norm^2 (1 + v) (1 + m), v the codec's error and m such that an honest client of this
  // norm is refused less than once in 10,000 messages, wherever in the model its energy lies (norm_room()). Without `codec`,
  // and for one that does not rotate, whose error depends on the input (qsgd, sq, terngrad, randk), the limit is of |decoded|.
  // Norm times weight is at most 2^100 in any case (2^80 with sum_rotated), so that no sum leaves the float range. Tensors of
  // an exact type count in all this where the sum has room for them.
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

// (1 + v) (1 + m) of AggregatorOptions::max_norm: what |decoded|^2 / |x|^2 stays below for all but fewer than one in 10,000
// messages. Measured, for the shortest vector that the codec codes as one among these tensors, on normal vectors of a fixed
// seed: mean and spread over at least 1,024 messages of it, six standard deviations from the mean. Takes some 2^22 numbers'
// encoding. 1 (and what float32 rounds) for codecs that do not rotate.
double norm_room(const Manifest& manifest, const CodecPolicy& policy);

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
  // Adds weight * decoded. The order of the calls is the order of the sum. Never throws for what a message holds; what ends it
  // by a CancelScope (kpd/base/cancel.h) leaves no trace, and once a message is found good it is added to its end. With
  // `expected_weight`, what the server knows of the client, a message of another weight is refused; without it a
  // message may say any from 1 to max_weight.
  Verdict add(uint64_t client, std::span<const uint8_t> message, std::optional<uint64_t> expected_weight = {});
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
