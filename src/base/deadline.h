// base: the end of a wait whose length a caller chose freely. Private.
#pragma once

#include <algorithm>
#include <chrono>

#include "kpd/base/clock.h"

namespace kpd {

// Now for no or a negative timeout. A century stands for ever: milliseconds::max() and the like would overflow where they
// become nanoseconds, and so would the last time point where a wait turns it into another clock's.
inline Clock::time_point deadline_after(std::chrono::milliseconds timeout) {
  constexpr std::chrono::milliseconds kNone{0}, kForEver = std::chrono::hours(24 * 365 * 100);
  return Clock::now() + std::clamp(timeout, kNone, kForEver);
}

}  // namespace kpd
