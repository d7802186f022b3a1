// tools: the channel of `kpd mean`; see channel.h.
#include "channel.h"

#include <algorithm>
#include <cmath>

#include "codec_options.h"
#include "files.h"
#include "kpd/base/rng.h"
#include "kpd/gradient/decoder.h"
#include "kpd/gradient/packets.h"

namespace kpd::tool {
namespace {

class MessageChannel final : public Channel {
 public:
  MessageChannel(const MeanPlan& plan, const gradient::CodecPolicy& codec, int threads)
      : manifest_(plan.source->manifest()),
        limit_(tool::limit_vnmse(codec, manifest_.size() == 1 ? plan.dim : 0)),
        encoder_(manifest_, codec, gradient::RunSecret::from_seed(plan.seed), {.threads = threads}),
        decoder_(manifest_, gradient::RunSecret::from_seed(plan.seed), {.threads = threads, .limits = {}}),
        message_(encoder_.max_bytes(), scratch_folder()) {}

  bool send(uint64_t trial, uint64_t client, std::span<const float> x, std::span<float> received,
            CodecFigures& figures) override {
    const gradient::MessageIds ids = message_ids(trial, client);
    gradient::EncodeReport encoded;
    const uint64_t bytes = encoder_.encode_message(tensor_views(manifest_, x), ids, message_.bytes(), &encoded);
    gradient::DecodeReport decoded;
    decoder_.decode(message_.bytes().first(bytes), ids, tensor_spans<float>(manifest_, received), &decoded);
    figures.wire_bytes += bytes;
    figures.elements += x.size();
    figures.saturated += decoded.saturated;
    return true;
  }
  double limit_vnmse() const override { return limit_; }

 private:
  gradient::Manifest manifest_;
  double limit_;
  gradient::Encoder encoder_;
  gradient::Decoder decoder_;
  io::ScratchMemory message_;
};

constexpr uint64_t kLossDomain = 0x6c6f7373ull;  // keeps the choice of lost packets apart from other uses of the seed

// Which of n packets are lost: each with the probability `fraction`; or a burst, one run of fraction * n in the mean, which may
// wrap around.
std::vector<uint8_t> lost_packets(const LossPlan& loss, uint64_t n, CounterRng& rng) {
  std::vector<uint8_t> lost(n, 0);
  if (!loss.burst) {
    for (uint8_t& l : lost) l = rng.next_double() < loss.fraction ? 1 : 0;
    return lost;
  }
  const double expected = loss.fraction * static_cast<double>(n);
  const double whole = std::floor(expected);
  const auto n_lost = static_cast<uint64_t>(whole) + (rng.next_double() < expected - whole ? 1 : 0);
  const uint64_t start = n > 0 ? rng.next_below(n) : 0;
  for (uint64_t i = 0; i < n_lost; ++i) lost[(start + i) % n] = 1;
  return lost;
}

class PacketChannel final : public Channel {
 public:
  PacketChannel(const MeanPlan& plan, const gradient::Codec& codec, int threads)
      : loss_(*plan.loss),
        seed_(plan.seed),
        manifest_(plan.source->manifest()),
        limit_(tool::limit_vnmse(codec, manifest_.size() == 1 ? plan.dim : 0)),
        encoder_(manifest_, codec, gradient::RunSecret::from_seed(plan.seed), {.threads = threads}),
        decoder_(manifest_, gradient::RunSecret::from_seed(plan.seed), {.threads = threads, .limits = {}}),
        message_(encoder_.max_bytes()) {}

  bool send(uint64_t trial, uint64_t client, std::span<const float> x, std::span<float> received,
            CodecFigures& figures) override {
    const gradient::MessageIds ids = message_ids(trial, client);
    gradient::EncodeReport encoded;
    const uint64_t bytes = encoder_.encode_message(tensor_views(manifest_, x), ids, message_, &encoded);
    const gradient::PacketSet set =
        gradient::packetize(std::span(message_).first(bytes), manifest_, gradient::RunSecret::from_seed(seed_));
    const uint64_t n = set.packets.size();
    CounterRng rng(seed_ ^ kLossDomain, trial << 32 | client);
    const std::vector<uint8_t> lost = lost_packets(loss_, n, rng);
    std::vector<std::span<const uint8_t>> arrived;
    for (uint64_t i = 0; i < n; ++i) {
      if (lost[i] == 0) arrived.emplace_back(set.packets[i]);
    }
    std::fill(received.begin(), received.end(), 0.0f);
    gradient::PacketReport decoded;
    const bool came = decoder_.decode_add(set.control, arrived, ids, 1.0f, tensor_spans<float>(manifest_, received), &decoded);
    if (came) sent_by_arrived_ = n > 0 ? static_cast<double>(n) / static_cast<double>(arrived.size()) : 1;
    figures.messages += 1;
    figures.messages_lost += came ? 0 : 1;
    figures.groups_lost += decoded.lost_groups.size();
    figures.packets += n;
    figures.packets_lost += n - arrived.size();
    figures.packet_overhead_bytes += set.overhead_bytes;
    figures.wire_bytes += set.total_bytes();
    figures.elements += x.size();
    figures.saturated += decoded.saturated;
    return came;
  }
  double limit_vnmse() const override { return (1 + limit_) * sent_by_arrived_ - 1; }

 private:
  LossPlan loss_;
  uint64_t seed_;
  gradient::Manifest manifest_;
  double limit_;
  double sent_by_arrived_ = 1;
  gradient::Encoder encoder_;
  gradient::PacketDecoder decoder_;
  std::vector<uint8_t> message_;
};

}  // namespace

std::unique_ptr<Channel> make_channel(const MeanPlan& plan, const gradient::CodecPolicy& codec, int threads) {
  if (plan.loss) return std::make_unique<PacketChannel>(plan, codec.base, threads);
  return std::make_unique<MessageChannel>(plan, codec, threads);
}

gradient::MessageIds message_ids(uint64_t trial, uint64_t client) {
  gradient::MessageIds ids;
  ids.run = 1;
  ids.round = trial;
  ids.client = client;
  return ids;
}

}  // namespace kpd::tool
