// tests: the thread pool: every task once, exceptions, nested and concurrent calls, forked children.
#include "kpd/base/threads.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "kpd/base/error.h"

namespace kpd {
namespace {

TEST(ParallelFor, RunsEveryTaskOnce) {
  for (const int threads : {1, 2, 3, 8}) {
    for (const size_t n : {size_t{0}, size_t{1}, size_t{2}, size_t{7}, size_t{1000}}) {
      const std::unique_ptr<std::atomic<int>[]> hits(new std::atomic<int>[n + 1]());
      std::atomic<int> bad_worker{0};
      parallel_for(n, threads, [&](size_t task, int worker) {
        ++hits[task];
        if (worker < 0 || worker >= threads) ++bad_worker;
      });
      for (size_t i = 0; i < n; ++i) ASSERT_EQ(hits[i], 1) << i;
      EXPECT_EQ(hits[n], 0);
      EXPECT_EQ(bad_worker, 0);
    }
  }
}

TEST(ParallelFor, AWorkerNumberBelongsToOneThreadAtATime) {
  std::atomic<int> busy[4] = {};
  std::atomic<int> overlaps{0};
  for (int call = 0; call < 200; ++call) {
    parallel_for(50, 4, [&](size_t, int worker) {
      if (busy[worker].fetch_add(1) != 0) ++overlaps;
      std::this_thread::yield();
      busy[worker].fetch_sub(1);
    });
  }
  EXPECT_EQ(overlaps, 0);
}

TEST(ParallelFor, UsesSeveralThreads) {
  // Two tasks that wait for each other can only end on two threads.
  std::atomic<int> arrived{0};
  std::thread::id ids[2];
  parallel_for(2, 2, [&](size_t task, int) {
    ids[task] = std::this_thread::get_id();
    ++arrived;
    while (arrived < 2) std::this_thread::yield();
  });
  EXPECT_NE(ids[0], ids[1]);
}

TEST(ParallelFor, TheCallerIsWorkerZero) {
  const auto caller = std::this_thread::get_id();
  std::atomic<int> wrong{0};
  parallel_for(1000, 3, [&](size_t, int worker) {
    if ((worker == 0) != (std::this_thread::get_id() == caller)) ++wrong;
  });
  EXPECT_EQ(wrong, 0);
}

TEST(ParallelFor, RethrowsAndSkipsTheRest) {
  for (const int threads : {1, 3}) {
    std::atomic<size_t> started{0};
    try {
      parallel_for(1000000, threads, [&](size_t task, int) {
        ++started;
        if (task == 5) fail(ErrorCode::kCorruptData, "task 5");
      });
      ADD_FAILURE() << "nothing thrown";
    } catch (const Error& e) {
      EXPECT_STREQ(e.what(), "task 5");
    }
    EXPECT_LT(started, 1000000u);
    std::atomic<int> after{0};
    parallel_for(10, threads, [&](size_t, int) { ++after; });  // the pool lives on
    EXPECT_EQ(after, 10);
  }
}

TEST(ParallelFor, ManyTasksMayThrowAtOnce) {
  for (int i = 0; i < 100; ++i) {
    EXPECT_THROW(parallel_for(64, 4, [](size_t, int) { throw std::runtime_error("x"); }), std::runtime_error);
  }
}

TEST(ParallelFor, NestedCallsRunOnTheCallingThread) {
  std::atomic<int> total{0}, strays{0};
  parallel_for(8, 4, [&](size_t, int) {
    const auto outer = std::this_thread::get_id();
    parallel_for(16, 4, [&](size_t, int worker) {
      if (worker != 0 || std::this_thread::get_id() != outer) ++strays;
      ++total;
    });
  });
  EXPECT_EQ(total, 128);
  EXPECT_EQ(strays, 0);
}

TEST(ParallelFor, ConcurrentCallersAllFinish) {
  std::atomic<int> total{0};
  std::vector<std::thread> callers;
  for (int c = 0; c < 4; ++c) {
    callers.emplace_back([&] {
      for (int i = 0; i < 50; ++i) parallel_for(20, 3, [&](size_t, int) { ++total; });
    });
  }
  for (auto& t : callers) t.join();
  EXPECT_EQ(total, 4 * 50 * 20);
}

TEST(ParallelFor, WorksInAForkedChild) {
#ifdef KPD_TESTS_EMULATED
  GTEST_SKIP() << "qemu-user cannot start threads in a forked child (its own assertion fails)";
#endif
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread sanitizer allows no threads after a fork of a threaded process";
#endif
  parallel_for(4, 2, [](size_t, int) {});
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(20);
    std::atomic<int> arrived{0};
    parallel_for(2, 2, [&](size_t, int) {
      ++arrived;
      while (arrived < 2) std::this_thread::yield();
    });
    _exit(arrived == 2 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST(HardwareThreads, IsAtLeastOneAndTheDefault) {
  EXPECT_GE(hardware_threads(), 1);
  std::atomic<int> beyond{0};
  parallel_for(100, 0, [&](size_t, int worker) {
    if (worker >= hardware_threads()) ++beyond;
  });
  EXPECT_EQ(beyond, 0);
}

}  // namespace
}  // namespace kpd
