// comm: messages that wait for their receiver (inbox.h).
#include "comm/inbox.h"

#include "base/deadline.h"
#include "kpd/base/error.h"

namespace kpd::comm {

namespace {
// How long a rank's next message may take to be announced after one that was held back.
constexpr Milliseconds kNextHead{50};
}  // namespace

Inbox::Inbox(int size, const ExchangeLimits& limits) : limits_(limits), peers_(static_cast<size_t>(size)) {}

// With mutex_ held.
bool Inbox::grant(int from, uint64_t bytes) {
  Peer& p = peer(from);
  const bool was_held_back = p.held_back;
  p.held_back = !fits(from, bytes);
  if (!p.held_back) waiting_bytes_ += bytes;
  if (was_held_back && !p.held_back) p.grace = Clock::now() + kHeldBackWait;
  if (was_held_back != p.held_back) {
    ++p.events;
    arrived_.notify_all();
  }
  return !p.held_back;
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
  Peer& p = peer(from);
  if (const Clock::time_point now = Clock::now(); p.grace > now) p.grace = now + kNextHead;
  ++p.events;
  queues_[{from, tag}].push_back(std::move(bytes));
  arrived_.notify_all();
}

void Inbox::release(int from, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  waiting_bytes_ -= bytes;
  peer(from).grace = {};
  ++peer(from).events;
  arrived_.notify_all();
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
  peer(from).lost = true;
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
    const Peer& p = peer(from);
    wanted_ = from;
    drained_.notify_all();
    const auto settled = [&] { return here() != queues_.end() || p.lost || closed_; };
    bool in_time = arrived_.wait_until(lock, deadline_after(timeout), settled);
    for (bool changed = true; !in_time && changed; in_time = settled()) {
      const uint64_t seen = p.events;
      const Clock::time_point until = p.held_back ? Clock::now() + kHeldBackWait : p.grace;
      changed = arrived_.wait_until(lock, until, [&] { return settled() || p.events != seen; });
    }
    wanted_ = -1;
  }
  const auto found = here();
  if (found == queues_.end()) return peer(from).lost ? Delivery::kLost : Delivery::kTimedOut;
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
  return peers_[static_cast<size_t>(from)].lost;
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
