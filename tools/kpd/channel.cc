// tools: the channel of `kpd mean`; see channel.h.
#include "channel.h"

#include <algorithm>
#include <cmath>

#include "cli.h"
#include "codec_options.h"
#include "files.h"
#include "kpd/base/rng.h"
#include "kpd/gradient/packets.h"

namespace kpd::tool {
namespace {

class MessageChannel final : public Channel {
 public:
  MessageChannel(const MeanPlan& plan, const gradient::CodecPolicy& codec, int threads)
      : manifest_(plan.source->manifest()),
        limit_(tool::limit_vnmse(codec)),
        encoder_(manifest_, codec, gradient::RunSecret::from_seed(plan.seed), {.threads = threads}),
        decoder_(manifest_, gradient::RunSecret::from_seed(plan.seed), {.threads = threads, .limits = {}}),
        message_(encoder_.max_bytes()) {}

  void send(uint64_t trial, uint64_t client, std::span<const float> x, std::span<float> received,
            CodecFigures& figures) override {
    const gradient::MessageIds ids = message_ids(trial, client);
    gradient::EncodeReport encoded;
    const uint64_t bytes = encoder_.encode_message(tensor_views(manifest_, x), ids, message_, &encoded);
    gradient::DecodeReport decoded;
    decoder_.decode(std::span(message_).first(bytes), ids, tensor_spans<float>(manifest_, received), &decoded);
    figures.wire_bytes += bytes;
    figures.elements += x.size();
    figures.reseeded += encoded.reseeded;
    figures.over_limit += encoded.over_limit;
    figures.saturated += decoded.saturated;
  }
  double limit_vnmse() const override { return limit_; }

 private:
  gradient::Manifest manifest_;
  double limit_;
  gradient::Encoder encoder_;
  gradient::Decoder decoder_;
  std::vector<uint8_t> message_;
};

constexpr uint64_t kMinPackets = 64;
constexpr uint32_t kMinPayloadBytes = 64, kMaxPayloadBytes = 1200;
constexpr uint64_t kLossDomain = 0x6c6f7373ull;  // keeps the choice of lost packets apart from other uses of the seed

// Which of n packets are lost: exactly round(fraction * n). A burst is one run, which may wrap around.
std::vector<uint8_t> lost_packets(const LossPlan& loss, uint64_t n, CounterRng& rng) {
  const auto n_lost = static_cast<uint64_t>(std::llround(loss.fraction * static_cast<double>(n)));
  std::vector<uint8_t> lost(n, 0);
  if (loss.burst) {
    const uint64_t start = rng.next_below(n);
    for (uint64_t i = 0; i < n_lost; ++i) lost[(start + i) % n] = 1;
    return lost;
  }
  std::fill(lost.begin(), lost.begin() + static_cast<ptrdiff_t>(n_lost), uint8_t{1});
  for (uint64_t i = n - 1; i > 0; --i) std::swap(lost[i], lost[rng.next_below(i + 1)]);
  return lost;
}

class PacketChannel final : public Channel {
 public:
  PacketChannel(const MeanPlan& plan, const gradient::Codec& codec, int threads)
      : loss_(*plan.loss),
        seed_(plan.seed),
        manifest_(plan.source->manifest()),
        limit_(codec.limit_vnmse()),
        encoder_(manifest_, codec, gradient::RunSecret::from_seed(plan.seed), {.threads = threads}),
        decoder_(manifest_, gradient::RunSecret::from_seed(plan.seed), {.threads = threads, .limits = {}}),
        message_(encoder_.max_bytes()) {
    // A group of 64 blocks is divided by the share that arrived of it; 64 packets a group keep that share near the whole's.
    const uint64_t group_elements = uint64_t{64} << codec.params().log2_block;
    const auto group = static_cast<double>(std::min(plan.dim, group_elements));
    payload_bytes_ =
        static_cast<uint32_t>(std::clamp<double>(codec.bits() * group / 8 / kMinPackets, kMinPayloadBytes, kMaxPayloadBytes));
  }

  void send(uint64_t trial, uint64_t client, std::span<const float> x, std::span<float> received,
            CodecFigures& figures) override {
    const gradient::MessageIds ids = message_ids(trial, client);
    gradient::EncodeReport encoded;
    const uint64_t bytes = encoder_.encode_message(tensor_views(manifest_, x), ids, message_, &encoded);
    const gradient::PacketSet set = gradient::packetize(std::span(message_).first(bytes), manifest_, payload_bytes_);
    const uint64_t n = set.packets.size();
    if (n < kMinPackets) {
      usage("--loss needs at least ", kMinPackets, " packets and a vector of ", x.size(), " numbers makes ", n,
            "; use longer vectors or more bits");
    }
    CounterRng rng(seed_ ^ kLossDomain, trial << 32 | client);
    const std::vector<uint8_t> lost = lost_packets(loss_, n, rng);
    std::vector<std::span<const uint8_t>> arrived;
    for (uint64_t i = 0; i < n; ++i) {
      if (lost[i] == 0) arrived.emplace_back(set.packets[i]);
    }
    std::fill(received.begin(), received.end(), 0.0f);
    gradient::PacketReport decoded;
    decoder_.decode_add(set.control, arrived, ids, 1.0f, tensor_spans<float>(manifest_, received), &decoded);
    realised_loss_ = 1 - static_cast<double>(arrived.size()) / static_cast<double>(n);
    figures.packets += n;
    figures.packets_lost += n - arrived.size();
    figures.packet_overhead_bytes += set.overhead_bytes;
    figures.wire_bytes += set.total_bytes();
    figures.elements += x.size();
    figures.reseeded += encoded.reseeded;
    figures.over_limit += encoded.over_limit;
    figures.saturated += decoded.saturated;
  }
  double limit_vnmse() const override { return (1 + limit_) / (1 - realised_loss_) - 1; }

 private:
  LossPlan loss_;
  uint64_t seed_;
  gradient::Manifest manifest_;
  double limit_;
  double realised_loss_ = 0;
  uint32_t payload_bytes_ = kMaxPayloadBytes;
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
