// bench: random words in bulk: those of a block of a gradient, and many.
//
//   build/bench/bench_philox
#include "kernels/philox.h"

#include "kernel_timing.h"

using namespace kpd;
using namespace kpd::bench;
namespace k = kpd::kernels;

int main() {
  print_kernel_header();
  for (const size_t n : {size_t{128}, size_t{4096}, size_t{1} << 20}) {
    std::vector<uint32_t> words(n);
    measure_kernel(
        "philox_fill", n, n * sizeof(uint32_t), [&] { k::philox_fill(1, 2, 3, 4, words.data(), n); },
        [&] { k::scalar::philox_fill(1, 2, 3, 4, words.data(), n); });
  }
  return 0;
}
