// gradient: decoding a message while it arrives (the other end of Encoder::begin_stream). Takes any message.
#pragma once

#include <memory>
#include <span>

#include "kpd/gradient/message.h"

namespace kpd::gradient {

// Holds at most one segment of undecoded bytes beside what feed() is given. Thread-compatible.
class StreamDecoder {
 public:
  StreamDecoder(Manifest manifest, RunSecret secret, Limits limits = {});
  ~StreamDecoder();
  StreamDecoder(StreamDecoder&&) noexcept;
  StreamDecoder& operator=(StreamDecoder&&) noexcept;

  // Starts a message: acc[i] += weight * decoded, segment by segment, for a finite weight; acc[i] of an exact type may be
  // empty. `acc` must stay valid until done() or an error.
  void begin(const MessageIds& expected, float weight, std::span<const std::span<float>> acc);
  // The next bytes of this one message, in any portions; where it ends the transport has to know, a byte more is an Error.
  // Header and codec table are checked before the first segment is decoded, but the checksum stands at the message's end: after
  // an Error here, or if the message never becomes done(), acc holds a part of it and is to be thrown away.
  void feed(std::span<const uint8_t> bytes);
  // All tensors decoded and the checksum right.
  bool done() const;
  // Elements decoded so far.
  uint64_t elements() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kpd::gradient
