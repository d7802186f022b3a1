// gradient: error feedback (kpd/gradient/feedback.h).
#include "kpd/gradient/feedback.h"

#include <algorithm>
#include <cmath>

#include "gradient/segment_codec.h"
#include "gradient/stream_format.h"
#include "kpd/base/error.h"

namespace kpd::gradient {

void check_feedback(const Codec& codec) {
  const double limit = codec.limit_vnmse();
  if (codec.params().scale == ScaleKind::kBiased || limit < 1) return;
  fail(ErrorCode::kInvalidArgument, "error feedback: what ", codec.text(), " loses is sent again with the next vector, and ",
       limit >= 1
           ? str("an error of ", std::round(100 * limit) / 100, " of a vector (below 1 is needed) would grow without end")
           : std::string("its error has no limit below 1 (it depends on the vector), so that it may grow without end"),
       "; use scale=biased, or more bits");
}

ErrorFeedback::ErrorFeedback(Manifest manifest, const Codec& codec, RunSecret secret, int threads)
    : manifest_(std::move(manifest)), decoder_(manifest_, secret, {.threads = threads, .limits = {}}) {
  check_feedback(codec);
  uint64_t elements = 0;
  for (const TensorInfo& info : manifest_) elements += info.count();
  error_.resize(elements);
  sent_.resize(elements);
  for (const std::span<float> part : spans_of(manifest_, sent_)) views_.emplace_back(std::span<const float>(part));
}

std::span<const TensorView> ErrorFeedback::add(std::span<const TensorView> x, bool zero) {
  check_sources(manifest_, x);
  const std::vector<std::span<float>> sent = spans_of(manifest_, sent_);
  for (size_t t = 0; t < sent.size(); ++t) {
    load_floats(x[t], 0, sent[t]);
    if (zero) zero_nonfinite(sent[t]);
  }
  for (size_t i = 0; i < sent_.size(); ++i) sent_[i] += error_[i];
  open_ = true;
  return views_;
}

void ErrorFeedback::keep(std::span<const uint8_t> message, const MessageIds& ids) {
  if (!open_) fail(ErrorCode::kInvalidArgument, "error feedback: keep() without add()");
  open_ = false;
  std::copy(sent_.begin(), sent_.end(), error_.begin());
  decoder_.decode_add(message, ids, -1.0f, spans_of(manifest_, error_));
}

}  // namespace kpd::gradient
