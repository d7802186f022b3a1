// comm: messages that wait for their receiver (inbox.h).
#include "comm/inbox.h"

#include "kpd/base/error.h"

namespace kpd::comm {

Inbox::Inbox(int size, const ExchangeLimits& limits) : limits_(limits), lost_(static_cast<size_t>(size)), held_back_(lost_) {}

// With mutex_ held.
bool Inbox::grant(int from, uint64_t bytes) {
  if (fits(from, bytes)) {
    waiting_bytes_ += bytes;
    return true;
  }
  held_back_[static_cast<size_t>(from)] = true;
  return false;
}

bool Inbox::try_reserve(int from, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  return grant(from, bytes);
}

bool Inbox::reserve(int from, uint64_t bytes) {
  std::unique_lock lock(mutex_);
  bool granted = false;
  drained_.wait(lock, [&] { return closed_ || (granted = grant(from, bytes)); });
  return granted;
}

void Inbox::deliver(int from, uint32_t tag, std::vector<uint8_t> bytes) {
  const std::lock_guard lock(mutex_);
  held_back_[static_cast<size_t>(from)] = false;
  queues_[{from, tag}].push_back(std::move(bytes));
  arrived_.notify_all();
}

void Inbox::release(uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  waiting_bytes_ -= bytes;
  drained_.notify_all();
}

void Inbox::put(int from, uint32_t tag, std::vector<uint8_t> bytes) {
  {
    const std::lock_guard lock(mutex_);
    waiting_bytes_ += bytes.size();
  }
  deliver(from, tag, std::move(bytes));
}

void Inbox::lose(int from) {
  const std::lock_guard lock(mutex_);
  lost_[static_cast<size_t>(from)] = true;
  arrived_.notify_all();
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
    const auto f = static_cast<size_t>(from);
    const auto settled = [&] { return here() != queues_.end() || lost_[f] || closed_; };
    if (!arrived_.wait_for(lock, timeout, settled) && held_back_[f]) {
      arrived_.wait_for(lock, kHeldBackWait, [&] { return settled() || !held_back_[f]; });
    }
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
