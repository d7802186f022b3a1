// bench: Walsh-Hadamard transforms of many rows in place, signs before and the norm after, against the scalar reference and
// against memcpy of the same bytes in the same run. Lengths that are no power of two are cut in blocks as caches cut them.
//
//   build/bench/bench_hadamard [KIB]     the rows together, default 16: they stay in the first-level cache
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "kernels/hadamard.h"
#include "kpd/base/cpu.h"
#include "kpd/base/rng.h"
#include "timing.h"

namespace {

using namespace kpd;

using Rows = void (*)(float*, size_t, size_t, size_t, const kernels::HadamardEdge&, const kernels::HadamardEdge&);

// One pass over [n_rows, n].
void transform(Rows rows, float* y, size_t n_rows, size_t n, const uint32_t* signs) {
  kernels::for_each_power_block(n, [&](size_t first, size_t power) {
    const float norm = static_cast<float>(1.0 / std::sqrt(static_cast<double>(power)));
    rows(y + first, n_rows, power, n, {signs, first, 1.0f}, {nullptr, 0, norm});
  });
}

void measure(size_t n, size_t n_kib) {
  const size_t n_rows = std::max<size_t>(1, n_kib * 1024 / (4 * n)), n_floats = n_rows * n;
  const size_t n_passes = std::max<size_t>(1, (size_t{1} << 21) / n_floats);
  CounterRng rng(n);
  // Pages: where a vector's memory begins, 16 bytes more or less, is a matter of luck and worth a quarter of the time.
  const bench::Pages pages(4 * n_floats), copies(4 * n_floats);
  float* const y = reinterpret_cast<float*>(pages.data());
  for (size_t i = 0; i < n_floats; ++i) y[i] = static_cast<float>(rng.next_normal());
  std::vector<uint32_t> signs((n + 31) / 32);
  for (uint32_t& w : signs) w = rng.next_u32();
  double scalar = 1e9, fast = 1e9, memory = 1e9;
  for (int round = 0; round < 30; ++round) {
    const auto repeat = [&](double& best, auto&& pass) {
      best = std::min(best, bench::seconds(1, [&] {
                        for (size_t i = 0; i < n_passes; ++i) pass();
                      }));
    };
    if (round % 3 == 0) repeat(scalar, [&] { transform(kernels::scalar::fwht_rows, y, n_rows, n, signs.data()); });
    repeat(fast, [&] { transform(kernels::fwht_rows, y, n_rows, n, signs.data()); });
    repeat(memory, [&] {
      std::memcpy(copies.data(), y, 4 * n_floats);
      asm volatile("" : : "r"(copies.data()) : "memory");
    });
  }
  const double bytes = static_cast<double>(4 * n_floats * n_passes), rows = static_cast<double>(n_rows * n_passes);
  std::printf("| %zu | %zu | %.1f | %.1f | %.2f | %.2f | %.1f | %.2f |\n", n, n_rows, scalar / rows * 1e9, fast / rows * 1e9,
              scalar / fast, bytes / fast / 1e9, bytes / memory / 1e9, memory / fast);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const size_t n_kib = argc > 1 ? static_cast<size_t>(std::max(1, std::atoi(argv[1]))) : 16;
  std::printf(
      "instruction set %s, one thread, %zu KiB\n"
      "| n | rows | scalar ns/row | ns/row | times scalar | GB/s | memcpy GB/s | share of memcpy |\n"
      "|---|---|---|---|---|---|---|---|\n",
      active_isa().c_str(), n_kib);
  for (const size_t n : {2u, 4u, 8u, 16u, 32u, 64u, 80u, 96u, 112u, 128u, 192u, 256u, 512u, 576u, 1024u, 4096u}) {
    measure(n, n_kib);
  }
  return 0;
}
