// bench: what drawing a token needs of a row of logits, rows of 32768 and 262144 (bench/sampler.cc has the whole draw).
//
//   build/bench/bench_sample
#include "kernels/sample.h"

#include <cmath>

#include "kernel_timing.h"

using namespace kpd;
using namespace kpd::bench;
namespace k = kpd::kernels;

int main() {
  static volatile float sink;
  static volatile size_t count;
  print_kernel_header();
  for (const size_t n : {size_t{32768}, size_t{262144}}) {
    const std::vector<float> x = normal_floats(n, 1);
    const float top = *std::max_element(x.begin(), x.end());
    std::vector<float> maxima(k::kSampleLanes * k::sample_blocks(n)), weights(n), values(n + 16);
    std::vector<double> sums(k::sample_blocks(n));
    std::vector<uint32_t> ids(n + 16);
    measure_kernel(
        "lane_maxima", n, n * sizeof(float), [&] { sink = k::lane_maxima(x.data(), n, maxima.data()); },
        [&] { sink = k::scalar::lane_maxima(x.data(), n, maxima.data()); });
    measure_kernel(
        "exp2_sums", n, n * sizeof(float), [&] { k::exp2_sums(x.data(), n, top, 1.4427f, sums.data(), nullptr); },
        [&] { k::scalar::exp2_sums(x.data(), n, top, 1.4427f, sums.data(), nullptr); });
    measure_kernel(
        "exp2_sums, weights kept", n, 2 * n * sizeof(float),
        [&] { k::exp2_sums(x.data(), n, top, 1.4427f, sums.data(), weights.data()); },
        [&] { k::scalar::exp2_sums(x.data(), n, top, 1.4427f, sums.data(), weights.data()); });
    measure_kernel(
        "gather_from, one in 44", n, n * sizeof(float),
        [&] { count = k::gather_from(x.data(), n, 2.0f, values.data(), ids.data()); },
        [&] { count = k::scalar::gather_from(x.data(), n, 2.0f, values.data(), ids.data()); });
  }
  (void)sink;
  (void)count;
  return 0;
}
