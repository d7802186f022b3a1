// bench: operations on arrays beside their scalar twins and beside memcpy, measured in the same rounds.
#pragma once

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "kpd/base/cpu.h"
#include "kpd/base/memory.h"
#include "kpd/base/rng.h"
#include "timing.h"

namespace kpd::bench {

inline std::vector<float> normal_floats(size_t n, uint64_t seed) {
  CounterRng rng(seed);
  std::vector<float> x(n);
  for (float& v : x) v = static_cast<float>(rng.next_normal());
  return x;
}

inline void print_kernel_header() {
  std::printf(
      "instruction set %s, one thread, best of 20 rounds\n\n"
      "| operation | numbers | 10^9 numbers/s | scalar twin | GB/s read and written | memcpy of as many bytes |\n"
      "|---|---|---|---|---|---|\n",
      active_isa().c_str());
}

// One line: n numbers, of which n_bytes are read and written in all.
inline void measure_kernel(const std::string& name, size_t n, size_t n_bytes, const std::function<void()>& kernel,
                           const std::function<void()>& scalar) {
  const MemoryBlock from(n_bytes / 2, Contents::kZeros), to(n_bytes / 2, Contents::kZeros);
  const std::function<void()> copy = [&] { std::memcpy(to.data(), from.data(), from.size()); };
  const std::function<void()>* const all[3] = {&kernel, &scalar, &copy};
  size_t times[3];
  double best[3];
  for (size_t k = 0; k < 3; ++k) {
    (*all[k])();
    best[k] = seconds(1, *all[k]);
    times[k] = static_cast<size_t>(5e-4 / std::max(best[k], 1e-8)) + 1;  // a round of half a millisecond
  }
  for (int round = 0; round < 20; ++round) {
    for (size_t k = 0; k < 3; ++k) {
      const double time = seconds(1, [&] {
        for (size_t i = 0; i < times[k]; ++i) (*all[k])();
      });
      best[k] = std::min(best[k], time / static_cast<double>(times[k]));
    }
  }
  const double numbers = static_cast<double>(n), bytes = static_cast<double>(n_bytes);
  std::printf("| %s | %zu | %.2f | %.2f | %.1f | %.1f |\n", name.c_str(), n, numbers / best[0] / 1e9, numbers / best[1] / 1e9,
              bytes / best[0] / 1e9, bytes / best[2] / 1e9);
  std::fflush(stdout);
}

}  // namespace kpd::bench
