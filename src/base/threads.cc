// base: the thread pool behind parallel_for. One job at a time; whoever comes while it runs does its tasks itself, so no call
// can wait for another and nested calls cannot deadlock. Nothing is allocated once the pool has as many threads as are asked
// for.
#include "kpd/base/cancel.h"
#include "kpd/base/clock.h"
#include "kpd/base/threads.h"

#include <sched.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "base/cpu_quota.h"

namespace kpd {
namespace {

constexpr int kMaxThreads = 1024;

// True while this thread runs tasks of a pool job.
thread_local bool t_in_job = false;

// A language model's step is some two hundred jobs of ten to a thousand microseconds: sleeping and waking between them would
// cost more than the work. So a thread watches for its next event for about as long as a job takes before it sleeps.
constexpr auto kSpinTime = std::chrono::microseconds(100);

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Returns when done() holds or the time is up.
template <class Done>
void spin(const Done& done) {
  static const bool alone = hardware_threads() == 1;  // whoever is waited for needs this processor
  if (alone || done()) return;
  const auto end = Clock::now() + kSpinTime;
  do {
    for (int i = 0; i < 32; ++i) {
      if (done()) return;
      relax();
    }
  } while (Clock::now() < end);
}

// All that callers and workers agree on is one word, so that a job begins and ends without a lock while its threads are awake:
// the job's number, how many workers may still join it, and how many are at it. A job is open while there are places; the
// caller writes the job before it opens it and leaves when it is closed and nobody is at it. The mutex serves those who sleep.
class Pool {
 public:
  void run(size_t n_tasks, int n_threads, const TaskRef& fn);

 private:
  static constexpr uint64_t kActive = 1, kActiveMask = 0xfff;
  static constexpr uint64_t kPlace = 1 << 12, kPlacesMask = 0xfff * kPlace;
  static constexpr int kJobShift = 32;

  static int places(uint64_t state) { return static_cast<int>((state & kPlacesMask) / kPlace); }
  static uint64_t job(uint64_t state) { return state >> kJobShift; }

  void grow(int n_workers);
  void worker_loop();
  bool joinable(uint64_t seen) const;
  int join(uint64_t& seen);
  void leave();
  void work(int worker);
  void wait_for_job(uint64_t seen);
  void wait_for_workers();

  std::atomic<uint64_t> state_{0};
  std::atomic<int> n_asleep_{0};            // workers that wait for job_ready_
  std::atomic<bool> caller_asleep_{false};  // the caller waits for job_done_
  std::mutex mutex_;
  std::condition_variable job_ready_, job_done_;
  int n_workers_ = 0;  // the caller's alone

  // Of the running job; written before it opens.
  const TaskRef* fn_ = nullptr;
  size_t n_tasks_ = 0;
  std::atomic<size_t> next_{0};
  std::atomic<bool> failed_{false};
  std::exception_ptr error_;  // of the thread that set failed_
};

void Pool::grow(int n_workers) {
  while (n_workers_ < n_workers) {
    try {
      std::thread([this] { worker_loop(); }).detach();
    } catch (const std::system_error&) {
      return;  // the system gives no more threads: the tasks run on those there are
    }
    ++n_workers_;
  }
}

void Pool::work(int worker) {
  t_in_job = true;
  for (;;) {
    const size_t task = next_.fetch_add(1, std::memory_order_relaxed);
    if (task >= n_tasks_) break;
    try {
      check_cancelled();  // only the caller has a scope
      (*fn_)(task, worker);
    } catch (...) {
      next_.store(n_tasks_, std::memory_order_relaxed);
      if (!failed_.exchange(true, std::memory_order_relaxed)) error_ = std::current_exception();
    }
  }
  t_in_job = false;
}

bool Pool::joinable(uint64_t seen) const {
  const uint64_t state = state_.load(std::memory_order_seq_cst);
  return places(state) > 0 && job(state) != seen;
}

// The worker's number in the job that is open, or 0. A worker joins a job at most once.
int Pool::join(uint64_t& seen) {
  uint64_t state = state_.load(std::memory_order_acquire);
  while (places(state) > 0 && job(state) != seen) {
    if (state_.compare_exchange_weak(state, state - kPlace + kActive, std::memory_order_acq_rel)) {
      seen = job(state);
      return places(state);
    }
  }
  return 0;
}

void Pool::leave() {
  const uint64_t before = state_.fetch_sub(kActive, std::memory_order_seq_cst);
  if ((before & kActiveMask) == kActive && caller_asleep_.load(std::memory_order_seq_cst)) {
    const std::lock_guard lock(mutex_);
    job_done_.notify_one();
  }
}

// Either the caller sees that somebody sleeps or the sleeper sees the job: each writes its own word before it reads the
// other's.
void Pool::wait_for_job(uint64_t seen) {
  spin([&] { return joinable(seen); });
  if (joinable(seen)) return;
  std::unique_lock lock(mutex_);
  n_asleep_.fetch_add(1, std::memory_order_seq_cst);
  job_ready_.wait(lock, [&] { return joinable(seen); });
  n_asleep_.fetch_sub(1, std::memory_order_seq_cst);
}

void Pool::worker_loop() {
  for (uint64_t seen = 0;;) {
    if (const int worker = join(seen)) {
      work(worker);
      leave();
    } else {
      wait_for_job(seen);
    }
  }
}

void Pool::wait_for_workers() {
  const auto none = [&] { return (state_.load(std::memory_order_seq_cst) & kActiveMask) == 0; };
  spin(none);
  if (none()) return;
  std::unique_lock lock(mutex_);
  caller_asleep_.store(true, std::memory_order_seq_cst);
  job_done_.wait(lock, none);
  caller_asleep_.store(false, std::memory_order_seq_cst);
}

void Pool::run(size_t n_tasks, int n_threads, const TaskRef& fn) {
  grow(n_threads - 1);
  fn_ = &fn;
  n_tasks_ = n_tasks;
  next_.store(0, std::memory_order_relaxed);
  const auto n_places = static_cast<uint64_t>(std::min(n_threads - 1, n_workers_));
  const uint64_t number = (job(state_.load(std::memory_order_relaxed)) + 1) & 0xffffffffu;
  state_.store(number << kJobShift | n_places * kPlace, std::memory_order_seq_cst);
  if (n_asleep_.load(std::memory_order_seq_cst) > 0) {
    const std::lock_guard lock(mutex_);
    if (n_threads == 2) {
      job_ready_.notify_one();
    } else {
      job_ready_.notify_all();
    }
  }
  work(0);
  state_.fetch_and(~kPlacesMask, std::memory_order_seq_cst);
  wait_for_workers();
  if (failed_.exchange(false, std::memory_order_relaxed)) std::rethrow_exception(std::exchange(error_, nullptr));
}

// The pool is never destroyed: its threads wait in it until the process ends. A forked child has none of them and starts anew.
std::atomic<Pool*> g_pool{nullptr};
std::atomic<bool> g_busy{false};

void forget_pool_in_child() {
  static Pool* forgotten = nullptr;  // stays reachable: not a leak
  forgotten = g_pool.exchange(nullptr);
  (void)forgotten;
  g_busy.store(false);
  t_in_job = false;
}

// Called with g_busy held.
Pool& pool() {
  Pool* p = g_pool.load(std::memory_order_acquire);
  if (p == nullptr) {
    static std::once_flag registered;
    std::call_once(registered, [] { pthread_atfork(nullptr, nullptr, forget_pool_in_child); });
    p = new Pool;
    g_pool.store(p, std::memory_order_release);
  }
  return *p;
}

}  // namespace

int hardware_threads() {
  // Read once: it takes some files of the kernel, and a pool of another size in the middle of a run helps nobody. Rounded down:
  // threads that work on one step wait for the one that the kernel holds back, so that 1.2 processors decode a language model
  // half as fast with two threads as with one.
  static const double quota = cpu_quota("").value_or(kMaxThreads);
  cpu_set_t set;
  CPU_ZERO(&set);
  const int processors =
      sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : static_cast<int>(std::thread::hardware_concurrency());
  return std::max(1, std::min(processors, static_cast<int>(std::min<double>(quota, kMaxThreads))));
}

void parallel_for(size_t n_tasks, int n_threads, TaskRef fn) {
  if (n_tasks == 0) return;
  if (n_threads <= 0) n_threads = hardware_threads();
  n_threads = static_cast<int>(std::min<size_t>(n_tasks, static_cast<size_t>(std::min(n_threads, kMaxThreads))));
  if (n_threads > 1 && !t_in_job && !g_busy.exchange(true, std::memory_order_acquire)) {
    struct Release {
      ~Release() { g_busy.store(false, std::memory_order_release); }
    } release;
    pool().run(n_tasks, n_threads, fn);
    return;
  }
  for (size_t task = 0; task < n_tasks; ++task) {
    check_cancelled();
    fn(task, 0);
  }
}

}  // namespace kpd
