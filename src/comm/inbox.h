// comm: where an engine puts what arrived until receive() asks for it. Private; shared by all engines. Thread-safe.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "kpd/base/clock.h"
#include "kpd/comm/exchange.h"

namespace kpd::comm {

class Inbox {
 public:
  Inbox(int size, const ExchangeLimits& limits);

  // The engine's side. A message counts from reserve(), before its bytes are read, until it is received or released.
  // False where `bytes` more would be beyond the limit and no receive() waits for this rank: it is held back, ask again.
  bool try_reserve(int from, uint64_t bytes);
  // Waits for room; false if closed.
  bool reserve(int from, uint64_t bytes);
  // Of a message that was reserved: here it is, or it will not come.
  void deliver(int from, uint32_t tag, std::vector<uint8_t> bytes);
  void release(int from, uint64_t bytes);
  // A message that is here already, whatever the limit says.
  void put(int from, uint32_t tag, std::vector<uint8_t> bytes);
  void lose(int from);
  void close();

  // The caller's side. A message that was held back is waited for beyond the time-out, up to kHeldBackWait from where there is
  // room: its sender is not to blame.
  Delivery receive(int from, uint32_t tag, std::vector<uint8_t>& bytes, Milliseconds timeout);
  bool lost(int from) const;
  void count_sent(uint64_t bytes);
  Traffic traffic() const;

 private:
  struct Peer {
    bool lost = false;
    bool held_back = false;   // a message of it is announced for which there was no room
    Clock::time_point grace;  // until when one that was held back is waited for
    uint64_t events = 0;      // of the two before, so that a change is seen
  };

  // Something may always wait, however large: its sender must be able to get rid of it while another is waited for.
  bool fits(int from, uint64_t bytes) const {
    return wanted_ == from || waiting_bytes_ == 0 ||
           (waiting_bytes_ <= limits_.max_waiting_bytes && bytes <= limits_.max_waiting_bytes - waiting_bytes_);
  }
  bool grant(int from, uint64_t bytes);
  Peer& peer(int rank) { return peers_[static_cast<size_t>(rank)]; }

  const ExchangeLimits limits_;
  mutable std::mutex mutex_;
  std::condition_variable arrived_, drained_;
  std::map<std::pair<int, uint32_t>, std::deque<std::vector<uint8_t>>> queues_;
  std::vector<Peer> peers_;
  int wanted_ = -1;  // the rank a receive() waits for
  uint64_t waiting_bytes_ = 0;
  bool closed_ = false;
  Traffic traffic_;
};

// What every engine's send() refuses.
void check_send(int to, int rank, int size, uint32_t tag, uint64_t bytes, const ExchangeLimits& limits);
void check_receive(int from, int rank, int size);

inline constexpr Milliseconds kHeldBackWait{5000};
inline constexpr uint32_t kMaxTag = (1u << 30) - 1;

}  // namespace kpd::comm
