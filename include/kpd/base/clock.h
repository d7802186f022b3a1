// base: the one clock of durations and deadlines: steady, never set back.
#pragma once

#include <chrono>

namespace kpd {

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

}  // namespace kpd
