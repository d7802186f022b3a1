// base: the thread pool behind parallel_for. One job at a time; whoever comes while it runs does its tasks itself, so no call
// can wait for another and nested calls cannot deadlock. Nothing is allocated once the pool has as many threads as are asked
// for.
#include "kpd/base/threads.h"

#include <sched.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>

namespace kpd {
namespace {

using Task = std::function<void(size_t, int)>;

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
  const auto end = std::chrono::steady_clock::now() + kSpinTime;
  do {
    for (int i = 0; i < 32; ++i) {
      if (done()) return;
      relax();
    }
  } while (std::chrono::steady_clock::now() < end);
}

class Pool {
 public:
  void run(size_t n_tasks, int n_threads, const Task& fn);

 private:
  void grow(int n_workers);
  void worker_loop();
  void work(int worker);

  std::mutex mutex_;  // guards all below but next_
  std::condition_variable job_ready_, job_done_;
  uint64_t generation_ = 0;  // of the job; a worker joins each job at most once
  bool open_ = false;        // workers may still join
  int joined_ = 0, max_joined_ = 0;
  std::atomic<int> active_{0};          // changed under the mutex, watched without
  std::atomic<uint64_t> announced_{0};  // generation_ of the last job that opened, for those who spin
  int n_workers_ = 0;
  std::exception_ptr error_;

  // Of the running job; written before it opens.
  const Task* fn_ = nullptr;
  size_t n_tasks_ = 0;
  std::atomic<size_t> next_{0};
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
      (*fn_)(task, worker);
    } catch (...) {
      next_.store(n_tasks_, std::memory_order_relaxed);
      const std::lock_guard lock(mutex_);
      if (!error_) error_ = std::current_exception();
    }
  }
  t_in_job = false;
}

void Pool::worker_loop() {
  uint64_t seen = 0;
  std::unique_lock lock(mutex_);
  for (;;) {
    if (!open_ || generation_ == seen) {
      lock.unlock();
      spin([&] { return announced_.load(std::memory_order_acquire) != seen; });
      lock.lock();
    }
    job_ready_.wait(lock, [&] { return open_ && generation_ != seen && joined_ < max_joined_; });
    seen = generation_;
    const int worker = ++joined_;
    ++active_;
    lock.unlock();
    work(worker);
    lock.lock();
    if (--active_ == 0) job_done_.notify_one();
  }
}

void Pool::run(size_t n_tasks, int n_threads, const Task& fn) {
  {
    const std::lock_guard lock(mutex_);
    grow(n_threads - 1);
    fn_ = &fn;
    n_tasks_ = n_tasks;
    next_.store(0, std::memory_order_relaxed);
    ++generation_;
    joined_ = 0;
    max_joined_ = std::min(n_threads - 1, n_workers_);
    open_ = true;
    announced_.store(generation_, std::memory_order_release);
  }
  if (n_threads == 2) {
    job_ready_.notify_one();
  } else {
    job_ready_.notify_all();
  }
  work(0);
  spin([&] { return active_.load(std::memory_order_acquire) == 0; });
  std::exception_ptr error;
  {
    std::unique_lock lock(mutex_);
    open_ = false;
    job_done_.wait(lock, [&] { return active_ == 0; });
    std::swap(error, error_);
  }
  if (error) std::rethrow_exception(error);
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
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

void parallel_for(size_t n_tasks, int n_threads, const std::function<void(size_t task, int worker)>& fn) {
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
  for (size_t task = 0; task < n_tasks; ++task) fn(task, 0);
}

}  // namespace kpd
