// gradient: error feedback (Seide et al., 2014; Karimireddy et al., ICML 2019): a sender keeps what its code lost and sends it
// with the next vector, e <- g + e - decoded. What is lost in one round comes in later ones, so that also a code that shrinks
// every vector (scale=biased) has the right sum in the long run.
//
// It needs a code whose error is shorter than its input. Otherwise e grows from round to round, without end.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kpd/gradient/message.h"
#include "kpd/gradient/decoder.h"

namespace kpd::gradient {

// Throws Error(kInvalidArgument) for a codec whose error is not known to be below its input: an unbiased one with a limit_vnmse
// of 1 or more, and one that has no limit. scale=biased is always good.
void check_feedback(const Codec& codec);

// What one sender keeps: as many floats as its tensors have elements, and once more as many. Thread-compatible.
class ErrorFeedback {
 public:
  // Throws what check_feedback throws. `threads` decode.
  ErrorFeedback(Manifest manifest, const Codec& codec, RunSecret secret, int threads = 1);

  // x + e, what is to be encoded; good until the next call. `zero`: what is not finite counts as 0; otherwise it is left for
  // the encoder to refuse, and e stays as it was. x as for Encoder::encode_message.
  std::span<const TensorView> add(std::span<const TensorView> x, bool zero = false);
  // e = what add() returned - what this message of it decodes to. Without this call e stays as it was.
  void keep(std::span<const uint8_t> message, const MessageIds& ids);
  std::span<const float> error() const { return error_; }  // e, all tensors back to back

 private:
  Manifest manifest_;
  Decoder decoder_;
  std::vector<float> error_, sent_;
  std::vector<TensorView> views_;
  bool open_ = false;
};

}  // namespace kpd::gradient
