// tests: the clock of durations.
#include "kpd/base/clock.h"

#include <gtest/gtest.h>

namespace kpd {
namespace {

TEST(Clock, SecondsAreCountedFromTheStartAndNeverGoBack) {
  static_assert(Clock::is_steady);
  const Clock::time_point now = Clock::now();
  EXPECT_GE(seconds_since(now - std::chrono::hours(2)), 7200.0);
  EXPECT_LT(seconds_since(now + std::chrono::hours(2)), 0.0);
  EXPECT_GE(seconds_since(now), 0.0);
}

}  // namespace
}  // namespace kpd
