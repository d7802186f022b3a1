// tools: how a client's vector reaches the server in `kpd mean`: as one message, or as packets some of which are lost.
#pragma once

#include <memory>
#include <span>

#include "mean/mean.h"

namespace kpd::tool {

// One worker's channel for one codec. Thread-compatible.
class Channel {
 public:
  virtual ~Channel() = default;
  // Encodes x (all tensors back to back), sends it, decodes what arrived into received, and adds to the counts of `figures`.
  // False if nothing arrived.
  virtual bool send(uint64_t trial, uint64_t client, std::span<const float> x, std::span<float> received,
                    CodecFigures& figures) = 0;
  // Expected vnmse of the last send() that arrived, for large dimensions; NaN where the codec has no limit.
  virtual double limit_vnmse() const = 0;
};

std::unique_ptr<Channel> make_channel(const MeanPlan& plan, const gradient::CodecPolicy& codec, int threads);

// The ids of a client's message in a trial.
gradient::MessageIds message_ids(uint64_t trial, uint64_t client);

}  // namespace kpd::tool
