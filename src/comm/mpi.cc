// comm: the MPI engine (kpd/comm/mpi.h). One thread makes every MPI call. It moves messages with MPI_Isend and, since sizes are
// not known before, MPI_Improbe and MPI_Imrecv; it polls, and sleeps a little when nothing moves.
#include "kpd/base/clock.h"
#include "kpd/comm/mpi.h"

#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <exception>
#include <iterator>
#include <list>
#include <new>
#include <thread>

#include "base/deadline.h"
#include "comm/inbox.h"
#include "comm/sigpipe.h"
#include "kpd/base/error.h"

namespace kpd::comm {
namespace {

constexpr size_t kReadAhead = 4;  // messages of a peer under way at once
constexpr std::chrono::seconds kLeaveWait{10};
// MPI's tags are the callers' plus one. Some MPIs have as few as 2^23.
constexpr int kGoodbyeTag = 0;

struct Outgoing {
  int to = 0;
  int tag = 0;  // MPI's
  std::vector<uint8_t> bytes;
  MPI_Request request = MPI_REQUEST_NULL;
  bool started = false;
};

struct Incoming {
  int tag = 0;  // MPI's
  int count = 0;
  MPI_Message message = MPI_MESSAGE_NULL;  // matched, not begun: there is no room for it yet
  std::vector<uint8_t> bytes;
  MPI_Request request = MPI_REQUEST_NULL;
};

// MPI counts bytes with an int.
ExchangeLimits counted_by_int(ExchangeLimits limits) {
  limits.max_message_bytes = std::min<uint64_t>(limits.max_message_bytes, INT_MAX);
  return limits;
}

class Mpi final : public Exchange {
 public:
  Mpi(const ExchangeLimits& limits, Milliseconds finish_timeout)
      : limits_(counted_by_int(limits)), finish_timeout_(finish_timeout) {
    std::unique_lock lock(mutex_);
    thread_ = std::thread([this, end = end_] {
      const NoSigpipe none;
      run();
      const bool finalizes = finalizes_;
      MPI_Comm comm = comm_;
      end->tell(end->left);  // from here nothing of this object is touched
      if (finalizes) {       // these wait for the other ranks, maybe for ever
        MPI_Comm_free(&comm);
        MPI_Finalize();
      }
      end->tell(end->over);
    });
    changed_.wait(lock, [&] { return started_ || !error_.empty(); });
    if (error_.empty()) return;
    lock.unlock();
    thread_.join();
    fail(ErrorCode::kInternal, "MPI cannot start: ", error_);
  }

  ~Mpi() override {
    failing_ = std::uncaught_exceptions() > 0;
    stop_ = true;
    inbox_->close();
    std::unique_lock lock(end_->mutex);
    // run() ends within the time-out, and what it needs to see that it is over; as much again is for MPI_Finalize.
    end_->changed.wait_until(lock, deadline_after(finish_timeout_), [&] { return end_->left; });
    end_->changed.wait_for(lock, kLeaveWait, [&] { return end_->left; });
    if (end_->changed.wait_until(lock, deadline_after(finish_timeout_), [&] { return end_->over; })) {
      lock.unlock();
      thread_.join();
    } else {
      thread_.detach();
    }
  }

  std::string_view engine() const override { return "mpi"; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }

  void send(int to, uint32_t tag, std::vector<uint8_t> bytes) override {
    check_send(to, rank_, size_, tag, bytes.size(), limits_);
    if (tag >= static_cast<uint32_t>(max_tag_))
      fail(ErrorCode::kUnsupported, "tag ", tag, ": this MPI has tags up to ", max_tag_);
    inbox_->count_sent(bytes.size());
    queue({to, static_cast<int>(tag) + 1, std::move(bytes)});
  }
  Delivery receive(int from, uint32_t tag, std::vector<uint8_t>& bytes, Milliseconds timeout) override {
    check_receive(from, rank_, size_);
    return inbox_->receive(from, tag, bytes, timeout);
  }
  bool lost(int peer) const override {
    check_receive(peer, rank_, size_);
    return inbox_->lost(peer);
  }
  bool flush(Milliseconds timeout) override {
    std::unique_lock lock(mutex_);
    return changed_.wait_until(lock, deadline_after(timeout), [&] { return unsent_ == 0 || !error_.empty(); }) && unsent_ == 0;
  }
  Traffic traffic() const override { return inbox_->traffic(); }

 private:
  void run() {
    if (!start()) return;
    int idle = 0;
    while (!stop_) {
      const bool moved = send_step() | receive_step();
      idle = moved ? 0 : idle + 1;
      // Spinning would take a core from the caller; a pause is short while something is under way.
      if (idle > 20) std::this_thread::sleep_for(std::chrono::microseconds(busy() || idle < 2000 ? 30 : 500));
    }
    finish();
  }

  bool start() {
    int provided = 0;
    const bool good = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided) == MPI_SUCCESS;
    const std::lock_guard lock(mutex_);
    if (good) {
      MPI_Comm_dup(MPI_COMM_WORLD, &comm_);
      MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
      MPI_Comm_rank(comm_, &rank_);
      MPI_Comm_size(comm_, &size_);
      int* most = nullptr;
      int found = 0;
      MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &most, &found);
      if (found != 0) max_tag_ = *most;
      inbox_ = std::make_unique<Inbox>(size_, limits_);
      incoming_.resize(static_cast<size_t>(size_));
      started_ = true;
    } else {
      error_ = "MPI_Init_thread failed";
    }
    changed_.notify_all();
    return good;
  }

  // MPI_Finalize waits for the other ranks, and these for this one's messages and for their own to be taken. So a rank that is
  // done says goodbye, still sends what is unsent and throws away what comes, until all others have said goodbye too. One that
  // fails, or waits longer than the time-out for a rank that stands still, leaves without MPI_Finalize, by which mpirun knows
  // to end the others. (MPI_Abort would end this process before it could say why.)
  void finish() {
    if (failing_) return;
    const auto deadline = deadline_after(finish_timeout_);
    discarding_ = true;
    for (int r = 0; r < size_; ++r) {
      if (r != rank_) queue({r, kGoodbyeTag, {}});
    }
    while (unsent() > 0 || busy() || goodbyes_ < size_ - 1) {
      if (!(send_step() | receive_step())) std::this_thread::sleep_for(std::chrono::microseconds(100));
      if (broken_ || Clock::now() > deadline) return;
    }
    finalizes_ = true;
  }

  void queue(Outgoing message) {
    const std::lock_guard lock(mutex_);
    new_.push_back(std::move(message));
    ++unsent_;
  }

  uint64_t unsent() {
    const std::lock_guard lock(mutex_);
    return unsent_;
  }

  // The connection to a rank failed.
  void lose(int r) {
    broken_ = true;
    inbox_->lose(r);
  }

  bool busy() const {
    if (!outgoing_.empty()) return true;
    for (const auto& list : incoming_) {
      if (!list.empty()) return true;
    }
    return false;
  }

  bool send_step() {
    bool moved = false;
    {
      const std::lock_guard lock(mutex_);
      moved = !new_.empty();
      outgoing_.splice(outgoing_.end(), new_);
    }
    for (auto it = outgoing_.begin(); it != outgoing_.end();) {
      int done = 0;
      if (!it->started) {
        it->started = true;
        if (MPI_Isend(it->bytes.data(), static_cast<int>(it->bytes.size()), MPI_BYTE, it->to, it->tag, comm_, &it->request) !=
            MPI_SUCCESS) {
          lose(it->to);
          done = 1;
        }
        moved = true;
      }
      if (done == 0 && MPI_Test(&it->request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) {
        lose(it->to);
        done = 1;
      }
      if (done == 0) {
        ++it;
        continue;
      }
      it = outgoing_.erase(it);
      moved = true;
      const std::lock_guard lock(mutex_);
      if (--unsent_ == 0) changed_.notify_all();
    }
    return moved;
  }

  bool receive_step() {
    bool moved = false;
    for (int from = 0; from < size_; ++from) {
      if (from == rank_) continue;
      const std::list<Incoming>& list = incoming_[static_cast<size_t>(from)];
      const bool held_back = !list.empty() && list.back().message != MPI_MESSAGE_NULL;
      if (!held_back && list.size() < kReadAhead) moved |= probe(from);
      moved |= begin(from);
      moved |= complete(from);
    }
    return moved;
  }

  // Matches the next message of a rank, if there is one.
  bool probe(int from) {
    int there = 0;
    Incoming in;
    MPI_Status status;
    if (MPI_Improbe(from, MPI_ANY_TAG, comm_, &there, &in.message, &status) != MPI_SUCCESS) {
      lose(from);
      return false;
    }
    if (there == 0) return false;
    MPI_Get_count(&status, MPI_BYTE, &in.count);
    in.tag = status.MPI_TAG;
    if (in.count < 0 || static_cast<uint64_t>(in.count) > limits_.max_message_bytes) {
      lose(from);
      return false;
    }
    incoming_[static_cast<size_t>(from)].push_back(std::move(in));
    return true;
  }

  // Begins to receive the message matched last, once there is room for it.
  bool begin(int from) {
    std::list<Incoming>& list = incoming_[static_cast<size_t>(from)];
    if (list.empty() || list.back().message == MPI_MESSAGE_NULL) return false;
    Incoming& in = list.back();
    if (!discarding_ && !inbox_->try_reserve(from, static_cast<uint64_t>(in.count))) return false;
    bool good = true;
    try {
      in.bytes.resize(static_cast<size_t>(in.count));
      good = MPI_Imrecv(in.bytes.data(), in.count, MPI_BYTE, &in.message, &in.request) == MPI_SUCCESS;
    } catch (const std::bad_alloc&) {
      good = false;
    }
    if (!good) drop(from, list, std::prev(list.end()));
    return true;
  }

  // Messages of a rank are delivered in the order they were matched, also where a later one is complete first.
  bool complete(int from) {
    std::list<Incoming>& list = incoming_[static_cast<size_t>(from)];
    bool moved = false;
    while (!list.empty() && list.front().message == MPI_MESSAGE_NULL) {
      int done = 0;
      if (MPI_Test(&list.front().request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) {
        drop(from, list, list.begin());
        return true;
      }
      if (done == 0) break;
      take(from, list.front());
      list.pop_front();
      moved = true;
    }
    return moved;
  }

  void take(int from, Incoming& in) {
    if (in.tag == kGoodbyeTag) {
      ++goodbyes_;
      inbox_->lose(from);
    } else if (!discarding_) {
      inbox_->deliver(from, static_cast<uint32_t>(in.tag - 1), std::move(in.bytes));
    }
  }

  // A message that will not come, and with it its sender.
  void drop(int from, std::list<Incoming>& list, std::list<Incoming>::iterator it) {
    if (!discarding_) inbox_->release(from, static_cast<uint64_t>(it->count));
    list.erase(it);
    lose(from);
  }

  // Where the thread tells its end; it may live longer than this object.
  struct End {
    std::mutex mutex;
    std::condition_variable changed;
    bool left = false;  // the object may go
    bool over = false;
    void tell(bool& what) {
      const std::lock_guard lock(mutex);
      what = true;
      changed.notify_all();
    }
  };

  const ExchangeLimits limits_;
  const Milliseconds finish_timeout_;
  const std::shared_ptr<End> end_ = std::make_shared<End>();
  std::thread thread_;
  std::atomic<bool> stop_{false}, failing_{false};
  std::unique_ptr<Inbox> inbox_;
  int rank_ = 0, size_ = 1;
  int max_tag_ = 32767;  // MPI's; what every MPI has

  mutable std::mutex mutex_;  // of what follows up to the empty line
  std::condition_variable changed_;
  bool started_ = false;
  std::string error_;
  std::list<Outgoing> new_;
  uint64_t unsent_ = 0;

  // The thread's own.
  MPI_Comm comm_ = MPI_COMM_NULL;
  std::list<Outgoing> outgoing_;
  std::vector<std::list<Incoming>> incoming_;
  int goodbyes_ = 0;         // of other ranks
  bool discarding_ = false;  // what comes: this rank is done
  bool broken_ = false;      // a connection
  bool finalizes_ = false;   // all ranks are done
};

}  // namespace

std::unique_ptr<Exchange> make_mpi(const ExchangeLimits& limits, Milliseconds finish_timeout) {
  int started = 0;
  MPI_Initialized(&started);
  if (started != 0) fail(ErrorCode::kInvalidArgument, "MPI was started before in this process");
  return std::make_unique<Mpi>(limits, finish_timeout);
}

}  // namespace kpd::comm
