// tools: the channel of `kpd mean`; see channel.h.
#include "channel.h"

#include "files.h"
#include "kpd/base/error.h"

namespace kpd::tool {
namespace {

class MessageChannel final : public Channel {
 public:
  MessageChannel(const MeanPlan& plan, const gradient::Codec& codec, int threads)
      : manifest_(plan.source->manifest()),
        limit_(codec.limit_vnmse()),
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

}  // namespace

std::unique_ptr<Channel> make_channel(const MeanPlan& plan, const gradient::Codec& codec, int threads) {
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
