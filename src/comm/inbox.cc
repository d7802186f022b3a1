// comm: messages that wait for their receiver (inbox.h).
#include "comm/inbox.h"

#include "kpd/base/error.h"

namespace kpd::comm {

Inbox::Inbox(int size, const ExchangeLimits& limits) : limits_(limits), lost_(static_cast<size_t>(size), false) {}

void Inbox::deliver(int from, uint32_t tag, std::vector<uint8_t> bytes) {
  const std::lock_guard lock(mutex_);
  waiting_bytes_ += bytes.size();
  queues_[{from, tag}].push_back(std::move(bytes));
  arrived_.notify_all();
}

void Inbox::lose(int from) {
  const std::lock_guard lock(mutex_);
  lost_[static_cast<size_t>(from)] = true;
  arrived_.notify_all();
}

bool Inbox::may_read(int from) const {
  const std::lock_guard lock(mutex_);
  return readable(from);
}

bool Inbox::wait_to_read(int from) {
  std::unique_lock lock(mutex_);
  drained_.wait(lock, [&] { return closed_ || readable(from); });
  return !closed_;
}

void Inbox::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  drained_.notify_all();
  arrived_.notify_all();
}

Delivery Inbox::receive(int from, uint32_t tag, std::vector<uint8_t>& bytes, Milliseconds timeout) {
  std::unique_lock lock(mutex_);
  const std::pair key(from, tag);
  const auto here = [&] { return queues_.find(key); };
  if (here() == queues_.end()) {
    wanted_ = from;
    drained_.notify_all();
    arrived_.wait_for(lock, timeout, [&] { return here() != queues_.end() || lost_[static_cast<size_t>(from)] || closed_; });
    wanted_ = -1;
  }
  const auto found = here();
  if (found == queues_.end()) return lost_[static_cast<size_t>(from)] ? Delivery::kLost : Delivery::kTimedOut;
  bytes = std::move(found->second.front());
  found->second.pop_front();
  if (found->second.empty()) queues_.erase(found);
  waiting_bytes_ -= bytes.size();
  traffic_.received_bytes += bytes.size();
  ++traffic_.received_messages;
  drained_.notify_all();
  return Delivery::kReceived;
}

bool Inbox::lost(int from) const {
  const std::lock_guard lock(mutex_);
  return lost_[static_cast<size_t>(from)];
}

void Inbox::count_sent(uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  traffic_.sent_bytes += bytes;
  ++traffic_.sent_messages;
}

Traffic Inbox::traffic() const {
  const std::lock_guard lock(mutex_);
  return traffic_;
}

void check_receive(int from, int rank, int size) {
  if (from < 0 || from >= size || from == rank) {
    fail(ErrorCode::kInvalidArgument, "rank ", from, " is no peer of rank ", rank, " in a group of ", size);
  }
}

void check_send(int to, int rank, int size, uint32_t tag, uint64_t bytes, const ExchangeLimits& limits) {
  check_receive(to, rank, size);
  if (tag > kMaxTag) fail(ErrorCode::kInvalidArgument, "tag ", tag, " is above ", kMaxTag);
  if (bytes > limits.max_message_bytes) {
    fail(ErrorCode::kLimitExceeded, "a message of ", bytes, " bytes to rank ", to, ", the limit is ", limits.max_message_bytes);
  }
}

}  // namespace kpd::comm
