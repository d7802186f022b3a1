// tools: progress; see progress.h.
#include "progress.h"

#include <csignal>
#include <algorithm>
#include <cstdio>
#include <iterator>

#include <fmt/format.h>
#include <unistd.h>

#include "kpd/base/clock.h"

namespace kpd::tool {
namespace {

constexpr std::chrono::milliseconds kFirst{500}, kEvery{200};

std::string duration(double seconds) {
  const auto s = static_cast<long>(seconds + 0.5);
  return s < 60 ? fmt::format("{} s", s) : fmt::format("{}:{:02}", s / 60, s % 60);
}

// 12,345,678 as "12.3 M".
std::string short_number(double v) {
  constexpr const char* kUnits[] = {"", " k", " M", " G", " T"};
  size_t unit = 0;
  for (; v >= 10000 && unit + 1 < std::size(kUnits); ++unit) v /= 1000;
  return v >= 100 ? fmt::format("{:.0f}{}", v, kUnits[unit]) : fmt::format("{:.3g}{}", v, kUnits[unit]);
}

}  // namespace

Progress::Progress(std::string label, uint64_t total, std::string unit)
    : label_(std::move(label)), unit_(std::move(unit)), total_(total), start_(Clock::now()) {
  if (isatty(2) == 0) return;
  // Signals are for the threads that work.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  watcher_ = std::thread([this] { watch(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Progress::~Progress() {
  {
    const std::lock_guard lock(mutex_);
    end_ = true;
  }
  ended_.notify_all();
  if (watcher_.joinable()) watcher_.join();
  clear();
}

void Progress::watch() {
  std::unique_lock lock(mutex_);
  for (auto next = start_ + kFirst; !ended_.wait_until(lock, next, [this] { return end_; }); next += kEvery) {
    fmt::print(stderr, "\r\033[K{}", line());
    std::fflush(stderr);
    shown_ = true;
  }
}

std::string Progress::line() const {
  const double seconds = seconds_since(start_);
  const auto done = static_cast<double>(std::min(total_, done_.load(std::memory_order_relaxed)));
  if (done == 0) return fmt::format("{}: {}", label_, duration(seconds));
  const double rate = done / seconds;
  return fmt::format("{}: {}/{} {}, {} a second, {} left", label_, short_number(done),
                     short_number(static_cast<double>(total_)), unit_, short_number(rate),
                     duration((static_cast<double>(total_) - done) / rate));
}

void Progress::clear() {
  const std::lock_guard lock(mutex_);
  if (shown_) std::fputs("\r\033[K", stderr);
  shown_ = false;
}

}  // namespace kpd::tool
