// tools: one line of progress on stderr, with rate and time left, only where stderr is a terminal.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>

namespace kpd::tool {

// Thread-safe. Nothing is shown for work that ends within half a second.
class Progress {
 public:
  // `total` units of work, e.g. Progress("mean", 200, "vectors").
  Progress(std::string label, uint64_t total, std::string unit);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void tick(uint64_t units = 1);
  // Removes the line, so that results can be printed.
  void clear();

 private:
  using Clock = std::chrono::steady_clock;
  std::string label_, unit_;
  uint64_t total_, done_ = 0;
  bool on_, shown_ = false;
  Clock::time_point start_, last_;
  std::mutex mutex_;
};

}  // namespace kpd::tool
