// tests: work that is ended from outside stops early with kCancelled, on any number of threads, and only where it is asked.
#include "kpd/base/cancel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "base/expect_error.h"
#include "kpd/base/threads.h"

namespace kpd {
namespace {

TEST(CancelScope, EndsWorkBetweenTasks) {
  for (const int threads : {1, 4}) {
    std::atomic<int> done{0};
    const CancelScope scope([&] { return done >= 10; });
    EXPECT_KPD_ERROR(kCancelled, "cancelled", parallel_for(1000000, threads, [&](size_t, int) { ++done; }));
    EXPECT_LT(done, 1'000'000);
    EXPECT_GE(done, 10);
  }
}

TEST(CancelScope, TheInnermostIsAskedAndTheOuterAgainAfterIt) {
  int done = 0;
  const auto work = [&] { parallel_for(5, 1, [&](size_t, int) { ++done; }); };
  const CancelScope outer([] { return true; });
  {
    const CancelScope inner({});
    work();
    EXPECT_EQ(done, 5);
  }
  EXPECT_KPD_ERROR(kCancelled, "cancelled", work());
  EXPECT_EQ(done, 5);
}

TEST(CancelScope, IsOfItsThreadAlone) {
  const CancelScope scope([] { return true; });
  int done = 0;
  std::thread([&] { parallel_for(5, 1, [&](size_t, int) { ++done; }); }).join();
  EXPECT_EQ(done, 5);
}

}  // namespace
}  // namespace kpd
