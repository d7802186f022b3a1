// bench: the products of attention: keys and values of 512 tokens against the rows of one token's heads and of a tile of them,
// in 10^9 multiply-adds a second, beside the scalar twin. b is read from memory once a product; its bytes are compared with
// memcpy.
//
//   build/bench/bench_matmul
#include "kernels/matmul.h"

#include "kernel_timing.h"

using namespace kpd;
using namespace kpd::bench;
namespace k = kpd::kernels;

int main() {
  print_kernel_header();
  std::printf("(a number is a multiply-add)\n");
  const size_t depth = 128, n = 512;
  const std::vector<float> b = normal_floats(depth * n, 2);
  std::vector<uint16_t> halves(depth * n);
  for (size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<uint16_t>(0x3800 + i % 1024);
  for (const size_t n_rows : {1u, 3u, 6u, 48u}) {
    const std::vector<float> a = normal_floats(n_rows * depth, 1);
    std::vector<float> c(n_rows * n);
    const k::MatmulShape shape{n_rows, depth, n, depth, n, n, false};
    const size_t sums = n_rows * depth * n;
    const std::string rows = ", " + std::to_string(n_rows) + " rows";
    measure_kernel(
        "matmul" + rows, sums, b.size() * sizeof(float), [&] { k::matmul(a.data(), b.data(), c.data(), shape); },
        [&] { k::scalar::matmul(a.data(), b.data(), c.data(), shape); });
    measure_kernel(
        "matmul_fp16" + rows, sums, halves.size() * 2,
        [&] { k::matmul_fp16(a.data(), halves.data(), c.data(), shape, nullptr); },
        [&] { k::scalar::matmul_fp16(a.data(), halves.data(), c.data(), shape, nullptr); });
    measure_kernel(
        "matmul_bf16" + rows, sums, halves.size() * 2,
        [&] { k::matmul_bf16(a.data(), halves.data(), c.data(), shape, nullptr); },
        [&] { k::scalar::matmul_bf16(a.data(), halves.data(), c.data(), shape, nullptr); });
  }
  return 0;
}
