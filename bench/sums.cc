// bench: sums by a fixed tree, of a block of a gradient that fits the first cache and of one that does not.
//
//   build/bench/bench_sums
#include "kernels/sums.h"

#include "kernel_timing.h"

using namespace kpd;
using namespace kpd::bench;
namespace k = kpd::kernels;

int main() {
  static volatile double sink;
  print_kernel_header();
  for (const size_t n : {size_t{4096}, size_t{1} << 20}) {
    const std::vector<float> a = normal_floats(n, 1), b = normal_floats(n, 2);
    measure_kernel(
        "magnitude", n, n * sizeof(float), [&] { sink = k::magnitude(a.data(), n).sum_squares; },
        [&] { sink = k::scalar::magnitude(a.data(), n).sum_squares; });
    measure_kernel(
        "dot", n, 2 * n * sizeof(float), [&] { sink = k::dot(a.data(), b.data(), n); },
        [&] { sink = k::scalar::dot(a.data(), b.data(), n); });
    measure_kernel(
        "dots", n, 2 * n * sizeof(float), [&] { sink = k::dots(a.data(), b.data(), n).bb; },
        [&] { sink = k::scalar::dots(a.data(), b.data(), n).bb; });
  }
  (void)sink;
  return 0;
}
