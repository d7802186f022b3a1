// bench: time and the machine's limits, measured beside the kernels.
#pragma once

#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <span>

#include "kpd/base/memory.h"
#include "kpd/base/threads.h"

namespace kpd::bench {

// Of one thread its processor time, so that other programs on the machine count little; of more the wall clock.
inline double seconds(int n_threads, const std::function<void()>& fn) {
  const auto now = [&] {
    if (n_threads > 1) return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
    timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
  };
  const double start = now();
  fn();
  return now() - start;
}

inline std::span<uint64_t> words(const MemoryBlock& block) {
  return {reinterpret_cast<uint64_t*>(block.data()), block.size() / 8};
}

// Reads the array once, as a limit for what streams from memory.
inline void read_all(std::span<const uint64_t> data, int n_threads) {
  constexpr size_t kChunk = size_t{1} << 17;
  static std::atomic<uint64_t> sink;
  parallel_for(data.size() / kChunk, n_threads, [&](size_t chunk, int) {
    uint64_t sums[8] = {};
    const uint64_t* p = data.data() + chunk * kChunk;
    for (size_t i = 0; i < kChunk; i += 8) {
      __builtin_prefetch(p + i + 128);
      for (size_t k = 0; k < 8; ++k) sums[k] ^= p[i + k];
    }
    sink = sums[0] ^ sums[1] ^ sums[2] ^ sums[3] ^ sums[4] ^ sums[5] ^ sums[6] ^ sums[7];
  });
}

// fn(first, end) over [0, n) in parts, a few a thread.
inline void split(size_t n, int n_threads, const std::function<void(size_t, size_t)>& fn) {
  const size_t n_parts = n_threads == 1 ? 1 : static_cast<size_t>(n_threads) * 4;
  parallel_for(n_parts, n_threads, [&](size_t part, int) { fn(n * part / n_parts, n * (part + 1) / n_parts); });
}

}  // namespace kpd::bench
