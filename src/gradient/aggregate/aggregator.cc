// gradient: the server's side of a round (kpd/gradient/aggregator.h).
#include "kpd/gradient/aggregator.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "gradient/stream_format.h"
#include "kpd/base/cancel.h"
#include "kpd/base/error.h"
#include "kpd/base/crc32.h"
#include "kpd/gradient/decoder.h"
#include "kpd/gradient/stream_info.h"

namespace kpd::gradient {
namespace {

// Of an update times its weight: with more, a sum of 2^27 clients could leave the float range, and one of rotated codes before
// its inverse rotation.
constexpr double kMaxWeightedNorm = 0x1p100, kMaxRotatedNorm = 0x1p80;

Verdict refused(Refusal refusal, std::string reason) { return {refusal, std::move(reason)}; }

// The code over a message whose field and checksum are zero.
std::array<uint8_t, kMacBytes> mac_of(std::span<const uint8_t> message, const MacFunction& mac) {
  std::vector<uint8_t> bytes(message.begin(), message.end());
  std::fill_n(bytes.begin() + kMacOffset, kMacBytes, uint8_t{0});
  std::fill_n(bytes.end() - kChecksumBytes, kChecksumBytes, uint8_t{0});
  return mac(bytes);
}

// Takes the same time wherever the first difference is.
bool same(std::span<const uint8_t> a, std::span<const uint8_t> b) {
  uint8_t difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference |= a[i] ^ b[i];
  return difference == 0;
}

}  // namespace

std::string_view refusal_name(Refusal refusal) {
  switch (refusal) {
    case Refusal::kNone:
      return "accepted";
    case Refusal::kSilent:
      return "silent";
    case Refusal::kLost:
      return "lost";
    case Refusal::kDamaged:
      return "damaged";
    case Refusal::kTwice:
      return "twice";
    case Refusal::kOtherRound:
      return "other round";
    case Refusal::kOtherRun:
      return "other run";
    case Refusal::kOtherClient:
      return "other client";
    case Refusal::kOtherModel:
      return "other model";
    case Refusal::kOtherCodec:
      return "other codec";
    case Refusal::kWeight:
      return "weight";
    case Refusal::kNorm:
      return "norm";
    case Refusal::kForged:
      return "forged";
  }
  return "";
}

void authenticate(std::span<uint8_t> message, const MacFunction& mac) {
  ByteReader r(message);
  const StreamInfo info = read_header(r, message, Limits{});
  if (info.is_file) fail(ErrorCode::kMismatch, "message: this is a file; only messages have a MAC field");
  if (!info.is_authenticated) {
    fail(ErrorCode::kMismatch, "message: it has no MAC field; EncodeOptions::authenticated makes one with it");
  }
  const auto code = mac_of(message, mac);
  std::copy(code.begin(), code.end(), message.begin() + kMacOffset);
  const size_t body = message.size() - kChecksumBytes;
  store_u32(message.data() + body, crc32(message.first(body)));
}

uint64_t RoundReport::refusals() const {
  uint64_t n = 0;
  for (const uint64_t count : refused) n += count;
  return n;
}

struct Aggregator::Impl {
  Impl(Manifest the_manifest, RunSecret secret, AggregatorOptions the_options)
      : options(std::move(the_options)),
        manifest(std::move(the_manifest)),
        decoder(manifest, secret, {.threads = options.threads, .limits = options.limits}) {
    if (options.sum_rotated && !options.codec)
      fail(ErrorCode::kInvalidArgument, "aggregator: sum_rotated needs the codec that all clients must use");
    max_decoded_norm = options.max_norm;
    if (options.codec && std::isfinite(options.max_norm)) max_decoded_norm *= std::sqrt(norm_room(manifest, *options.codec));
  }

  AggregatorOptions options;
  Manifest manifest;
  Decoder decoder;
  MessageIds expected;
  std::vector<std::span<float>> sum;
  std::vector<uint64_t> seen;  // clients accepted, sorted
  RoundReport report;
  double max_decoded_norm = 0;
  bool open = false;

  Verdict judge(uint64_t client, std::span<const uint8_t> message, std::optional<uint64_t> expected_weight);
  Verdict judge_ids(const MessageIds& ids, uint64_t client, std::optional<uint64_t> expected_weight) const;
  Verdict judge_codec(std::span<const uint8_t> message) const;
};

Verdict Aggregator::Impl::judge_ids(const MessageIds& ids, uint64_t client, std::optional<uint64_t> expected_weight) const {
  const auto differs = [](Refusal refusal, const char* what, uint64_t got, uint64_t want) {
    return refused(refusal, str("the message has ", what, " ", got, ", expected ", want));
  };
  if (ids.run != expected.run) return differs(Refusal::kOtherRun, "run", ids.run, expected.run);
  if (ids.round != expected.round) return differs(Refusal::kOtherRound, "round", ids.round, expected.round);
  if (ids.client != client) return differs(Refusal::kOtherClient, "client", ids.client, client);
  if (ids.base_model_hash != expected.base_model_hash)
    return differs(Refusal::kOtherModel, "base model hash", ids.base_model_hash, expected.base_model_hash);
  if (std::binary_search(seen.begin(), seen.end(), client)) {
    return refused(Refusal::kTwice, str("client ", client, " is in the sum already"));
  }
  if (expected_weight && ids.weight != *expected_weight)
    return differs(Refusal::kWeight, "weight", ids.weight, *expected_weight);
  if (ids.weight == 0 || (!expected_weight && ids.weight > options.max_weight))
    return refused(Refusal::kWeight, str("weight ", ids.weight, ", expected 1 to ", options.max_weight));
  if (ids.weight > std::numeric_limits<uint64_t>::max() - report.total_weight)
    return refused(Refusal::kWeight, str("weight ", ids.weight, " on top of ", report.total_weight, " leaves 64 bits"));
  return {};
}

// Throws what read_stream_info throws.
Verdict Aggregator::Impl::judge_codec(std::span<const uint8_t> message) const {
  if (!options.codec) return {};
  const StreamInfo info = read_stream_info(message, "message", options.limits);
  size_t i = 0;
  for (const CodecRun& run : info.runs) {
    const WireParams& got = info.codecs[run.codec];
    for (uint64_t k = 0; k < run.tensors; ++k, ++i) {
      const Codec& wanted = options.codec->of(manifest[i].name);
      if (got == wanted.params() || (got == raw_params() && !options.sum_rotated)) continue;
      return refused(Refusal::kOtherCodec, str("tensor ", i, " is not compressed by ", wanted.text()));
    }
  }
  return {};
}

Verdict Aggregator::Impl::judge(uint64_t client, std::span<const uint8_t> message, std::optional<uint64_t> expected_weight) {
  MessageIds ids;
  try {
    ids = decoder.peek(message);
  } catch (const Error& e) {
    return refused(e.code() == ErrorCode::kMismatch ? Refusal::kOtherModel : Refusal::kDamaged, e.what());
  }
  if (options.mac && (load_u16(message.data() + 6) & kFlagAuthenticated) == 0) {
    return refused(Refusal::kForged, "the message has no authentication code");
  }
  if (options.mac && !same(mac_of(message, options.mac), message.subspan(kMacOffset, kMacBytes))) {
    return refused(Refusal::kForged, "the authentication code is wrong");
  }
  Verdict verdict = judge_ids(ids, client, expected_weight);
  if (!verdict.accepted()) return verdict;
  const auto weight = static_cast<float>(ids.weight);
  try {
    verdict = judge_codec(message);
    if (!verdict.accepted()) return verdict;
    verdict.weight = ids.weight;
    verdict.norm = decoder.norm(message, ids, sum);
    const double most = options.sum_rotated ? kMaxRotatedNorm : kMaxWeightedNorm;
    const double limit = std::min(max_decoded_norm, most / static_cast<double>(ids.weight));
    if (!(verdict.norm <= limit))
      return refused(Refusal::kNorm, str("the update decodes to norm ", verdict.norm, ", the limit is ", limit));
    const CancelScope to_its_end({});  // a sum that holds a part of a message would be lost
    if (options.sum_rotated) {
      decoder.decode_rotated_add(message, ids, weight, sum);
    } else {
      DecodeReport decoded;
      decoder.decode_add(message, ids, weight, sum, &decoded);
      report.saturated += decoded.saturated;
    }
  } catch (const Error& e) {
    if (e.code() == ErrorCode::kCancelled) throw;
    return refused(Refusal::kDamaged, e.what());
  }
  seen.insert(std::upper_bound(seen.begin(), seen.end(), client), client);
  report.total_weight += ids.weight;
  return verdict;
}

Aggregator::Aggregator(Manifest manifest, RunSecret secret, AggregatorOptions options)
    : impl_(std::make_unique<Impl>(std::move(manifest), secret, std::move(options))) {}
Aggregator::~Aggregator() = default;
Aggregator::Aggregator(Aggregator&&) noexcept = default;
Aggregator& Aggregator::operator=(Aggregator&&) noexcept = default;

void Aggregator::begin_round(const MessageIds& expected, std::span<const std::span<float>> sum) {
  Impl& m = *impl_;
  check_destinations(m.manifest, sum);
  m.decoder.drop_rotated();  // of a round given up
  m.expected = expected;
  m.sum.assign(sum.begin(), sum.end());
  for (const std::span<float> part : m.sum) std::fill(part.begin(), part.end(), 0.0f);
  m.seen.clear();
  m.report = {};
  m.open = true;
}

Verdict Aggregator::add(uint64_t client, std::span<const uint8_t> message, std::optional<uint64_t> expected_weight) {
  Impl& m = *impl_;
  if (!m.open) fail(ErrorCode::kInvalidArgument, "aggregator: add() outside a round");
  m.report.bytes += message.size();
  Verdict verdict = m.judge(client, message, expected_weight);
  verdict.bytes = message.size();
  if (verdict.accepted()) {
    ++m.report.accepted;
  } else {
    ++m.report.refused[static_cast<size_t>(verdict.refusal)];
  }
  return verdict;
}

void Aggregator::refuse(Refusal refusal) { ++impl_->report.refused[static_cast<size_t>(refusal)]; }

bool Aggregator::finish_round() {
  Impl& m = *impl_;
  if (!m.open) fail(ErrorCode::kInvalidArgument, "aggregator: finish_round() outside a round");
  m.open = false;
  if (m.report.accepted == 0) return false;
  if (m.options.sum_rotated) m.decoder.finish_rotated(m.sum);
  const auto scale = static_cast<float>(1.0 / static_cast<double>(m.report.total_weight));
  for (const std::span<float> part : m.sum) {
    for (float& v : part) v *= scale;
  }
  return true;
}

const RoundReport& Aggregator::report() const { return impl_->report; }

}  // namespace kpd::gradient
