// tools: one line of progress on stderr, with rate and time left, only where stderr is a terminal.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

#include "kpd/base/clock.h"

namespace kpd::tool {

// Thread-safe. Nothing is shown for work that ends within half a second. A thread of its own writes the line, so that it moves
// while one unit takes long, and nothing is timed or locked in tick().
class Progress {
 public:
  // `total` units of work, e.g. Progress("mean", 200, "vectors"); 0 where nobody counts: the seconds that have passed are
  // shown.
  Progress(std::string label, uint64_t total, std::string unit);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void tick(uint64_t units = 1) { done_.fetch_add(units, std::memory_order_relaxed); }
  // Removes the line, so that results can be printed. It comes back if the work goes on.
  void clear();

 private:
  void watch();
  std::string line() const;

  const std::string label_, unit_;
  const uint64_t total_;
  const Clock::time_point start_;
  std::atomic<uint64_t> done_{0};
  std::mutex mutex_;
  std::condition_variable ended_;
  bool shown_ = false, end_ = false;
  std::thread watcher_;
};

}  // namespace kpd::tool
