// comm: who sends which bytes to whom. One small interface; behind it stand the engines: ranks as threads of one process
// (kpd/comm/inprocess.h), MPI (kpd/comm/mpi.h, component comm) and c10d's Gloo (kpd/train/gloo.h, component train).
//
// Messages are opaque byte strings of any length up to a limit. They are never added or changed on their way: a sum of
// compressed messages is not a compressed message, so averaging is the business of kpd/gradient/aggregate.h.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace kpd::comm {

using Milliseconds = std::chrono::milliseconds;

enum class Delivery : uint8_t {
  kReceived,
  kTimedOut,
  kLost,  // the peer is gone; what it had sent before was delivered, nothing more will come
};

struct ExchangeLimits {
  // A longer message is refused by send() and counts its sender as lost: what a stranger's message may take of a receiver's
  // memory. A whole model in one message: 268 million float32 numbers, 8.6 billion at one bit. Averager's allgather and sra
  // send pieces.
  uint64_t max_message_bytes = uint64_t{1} << 30;
  // What an engine reads ahead of receive(), over all peers, messages under way included; beyond it only what a receive() waits
  // for is read, and into an empty queue one message of any size. So the memory of a receiver does not grow with the number of
  // its peers.
  uint64_t max_waiting_bytes = uint64_t{64} << 20;
};

// Of one rank, since it began. Payload bytes: what the engine adds (its headers, TCP) is not in them.
struct Traffic {
  uint64_t sent_bytes = 0, sent_messages = 0;
  uint64_t received_bytes = 0, received_messages = 0;
};

// One rank of a fixed group. send() and receive() may be called from different threads, each from one at a time.
class Exchange {
 public:
  virtual ~Exchange() = default;
  Exchange() = default;
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  virtual std::string_view engine() const = 0;  // "inprocess", "mpi", "gloo"
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Takes the bytes and returns at once; they travel while the caller computes. Messages with one tag from one rank to another
  // arrive in the order they were sent. tag < 2^30. What is sent to a lost rank vanishes. Throws Error(kInvalidArgument) for a
  // rank that does not exist or is this one, Error(kLimitExceeded) for a message beyond the limit.
  virtual void send(int to, uint32_t tag, std::vector<uint8_t> bytes) = 0;
  // The next message with this tag from this rank. `bytes` is changed only by kReceived. A message that is ready but was not
  // read yet for max_waiting_bytes is waited for a few seconds beyond the time-out.
  virtual Delivery receive(int from, uint32_t tag, std::vector<uint8_t>& bytes, Milliseconds timeout) = 0;
  // The peer is gone; what it had sent before may still wait for receive().
  virtual bool lost(int peer) const = 0;
  // Waits until all that was sent has left this rank (or its receiver is lost); false on time-out. An Exchange that is
  // destroyed without it may take unsent messages with it.
  virtual bool flush(Milliseconds timeout) = 0;
  virtual Traffic traffic() const = 0;
};

}  // namespace kpd::comm
