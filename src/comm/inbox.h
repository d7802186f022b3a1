// comm: where an engine puts what arrived until receive() asks for it. Private; shared by all engines. Thread-safe.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "kpd/comm/exchange.h"

namespace kpd::comm {

class Inbox {
 public:
  Inbox(int size, const ExchangeLimits& limits);

  // The engine's side.
  void deliver(int from, uint32_t tag, std::vector<uint8_t> bytes);
  void lose(int from);
  // False while what waits is at the limit and no receive() waits for this rank.
  bool may_read(int from) const;
  // Waits until may_read(from) or close(); false if closed.
  bool wait_to_read(int from);
  void close();

  // The caller's side.
  Delivery receive(int from, uint32_t tag, std::vector<uint8_t>& bytes, Milliseconds timeout);
  bool lost(int from) const;
  void count_sent(uint64_t bytes);
  Traffic traffic() const;

 private:
  bool readable(int from) const { return waiting_bytes_ < limits_.max_waiting_bytes || wanted_ == from; }

  const ExchangeLimits limits_;
  mutable std::mutex mutex_;
  std::condition_variable arrived_, drained_;
  std::map<std::pair<int, uint32_t>, std::deque<std::vector<uint8_t>>> queues_;
  std::vector<bool> lost_;
  int wanted_ = -1;  // the rank a receive() waits for
  uint64_t waiting_bytes_ = 0;
  bool closed_ = false;
  Traffic traffic_;
};

// What every engine's send() refuses.
void check_send(int to, int rank, int size, uint32_t tag, uint64_t bytes, const ExchangeLimits& limits);
void check_receive(int from, int rank, int size);

inline constexpr uint32_t kMaxTag = (1u << 30) - 1;

}  // namespace kpd::comm
