// tools: progress; see progress.h.
#include "progress.h"

#include <cstdio>

#include <fmt/format.h>
#include <unistd.h>

namespace kpd::tool {
namespace {

std::string duration(double seconds) {
  const auto s = static_cast<long>(seconds + 0.5);
  return s < 60 ? fmt::format("{} s", s) : fmt::format("{}:{:02}", s / 60, s % 60);
}

}  // namespace

Progress::Progress(std::string label, uint64_t total, std::string unit)
    : label_(std::move(label)),
      unit_(std::move(unit)),
      total_(total),
      on_(isatty(2) != 0),
      start_(Clock::now()),
      last_(start_) {}

Progress::~Progress() { clear(); }

void Progress::tick(uint64_t units) {
  if (!on_) return;
  const std::lock_guard lock(mutex_);
  done_ += units;
  const auto now = Clock::now();
  const double seconds = std::chrono::duration<double>(now - start_).count();
  if (seconds < 0.5 || std::chrono::duration<double>(now - last_).count() < 0.1 || done_ == 0) return;
  last_ = now;
  shown_ = true;
  const double rate = static_cast<double>(done_) / seconds;
  fmt::print(stderr, "\r\033[K{}: {}/{} {}, {:.3g} a second, {} left", label_, done_, total_, unit_, rate,
             duration(static_cast<double>(total_ - std::min(total_, done_)) / rate));
  std::fflush(stderr);
}

void Progress::clear() {
  const std::lock_guard lock(mutex_);
  if (shown_) std::fputs("\r\033[K", stderr);
  shown_ = false;
}

}  // namespace kpd::tool
