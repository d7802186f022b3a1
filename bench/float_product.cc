// bench: float weight products. One row (decode): weights read a second against the machine's read bandwidth of the same
// moment. Several rows (prefill): 10^9 floating-point operations a second, against a loop of nothing but fused multiply-adds in
// registers.
//
//   build/bench/bench_float_product [THREADS]     default: 1 and 2
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "kernels/float_product.h"
#include "kpd/base/cpu.h"
#include "timing.h"

namespace {

using namespace kpd;
using namespace kpd::kernels;
using namespace kpd::bench;

#if defined(__x86_64__)
using Float8 = float __attribute__((vector_size(32)));

// n * 160 operations; ten chains hide the latency. Assembly, because a compiler may keep the sums elsewhere.
__attribute__((target("avx2,fma"))) float multiply_adds(int n) {
  const Float8 b = {1, 1}, c = {.5f};
  Float8 a0 = {}, a1 = {}, a2 = {}, a3 = {}, a4 = {}, a5 = {}, a6 = {}, a7 = {}, a8 = {}, a9 = {};
  for (int i = 0; i < n; ++i) {
    asm volatile(
        "vfmadd231ps %10, %11, %0\n vfmadd231ps %10, %11, %1\n vfmadd231ps %10, %11, %2\n vfmadd231ps %10, %11, %3\n"
        "vfmadd231ps %10, %11, %4\n vfmadd231ps %10, %11, %5\n vfmadd231ps %10, %11, %6\n vfmadd231ps %10, %11, %7\n"
        "vfmadd231ps %10, %11, %8\n vfmadd231ps %10, %11, %9\n"
        : "+x"(a0), "+x"(a1), "+x"(a2), "+x"(a3), "+x"(a4), "+x"(a5), "+x"(a6), "+x"(a7), "+x"(a8), "+x"(a9)
        : "x"(b), "x"(c));
  }
  const Float8 sum = a0 + a1 + a2 + a3 + a4 + a5 + a6 + a7 + a8 + a9;
  return sum[0];
}

void print_peak() {
  if (!__builtin_cpu_supports("fma")) return;
  static volatile float sink;
  double best = 1e9;
  for (int round = 0; round < 10; ++round) {
    best = std::min(best, seconds(1, [] { sink = multiply_adds(500000); }));
  }
  (void)sink;
  std::printf("256-bit multiply-adds, one thread: %.1f GFLOP/s\n", 160 * 500000 / best / 1e9);
}
#else
void print_peak() {}
#endif

void measure(DType dtype, int n_threads, const std::vector<uint64_t>& array) {
  const size_t n_out = 4096, n_in = 4096;
  const size_t n_bytes = float_packed_bytes(dtype, n_out, n_in);
  std::vector<uint8_t> src(n_bytes), packed(n_bytes);
  store_floats(std::vector<float>(n_out * n_in, .5f), dtype, src.data());
  const FloatMatrix w = {dtype, packed.data(), n_out, n_in};
  pack_float_tiles(dtype, src, n_out, n_in, 0, w.n_tiles(), packed);
  std::printf("| %s | %d |", dtype_name(dtype), n_threads);
  for (const size_t n_rows : {1u, 4u, 16u, 512u}) {
    const std::vector<float> x(n_rows * n_in, .25f);
    std::vector<float> out(n_rows * n_out);
    const size_t n_tiles = n_rows == 512 ? 16 : w.n_tiles();
    double best = 1e9, best_read = 1e9;
    for (int round = 0; round < 6; ++round) {
      if (n_rows == 1) best_read = std::min(best_read, seconds(n_threads, [&] { read_all(array, n_threads); }));
      best = std::min(best, seconds(n_threads, [&] {
                        split(n_tiles, n_threads, [&](size_t t, size_t end) {
                          float_product(w, x.data(), n_in, n_rows, t, end, out.data(), n_out);
                        });
                      }));
    }
    if (n_rows == 1) {
      std::printf(" %.2f | %.2f |", static_cast<double>(array.size() * 8) / best_read / 1e9,
                  static_cast<double>(n_bytes) / best / 1e9);
    }
    std::printf(" %.1f |", 2 * static_cast<double>(n_rows * n_tiles * kFloatTileOutputs * n_in) / best / 1e9);
    std::fflush(stdout);
  }
  std::printf("\n");
}

}  // namespace

int main(int argc, char** argv) {
  std::printf("instruction set %s\n", active_isa().c_str());
  print_peak();
  std::printf(
      "\n4096 x 4096\n| weights | threads | read GB/s | weights GB/s at 1 row | GFLOP/s: 1 row | 4 | 16 | 512 |\n"
      "|---|---|---|---|---|---|---|---|\n");
  const std::vector<uint64_t> array(size_t{1} << 23, 1);
  for (const int n_threads : {1, 2}) {
    if (argc > 1 && std::atoi(argv[1]) != n_threads) continue;
    for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) measure(dtype, n_threads, array);
  }
  return 0;
}
