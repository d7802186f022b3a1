// bench: nearest-level quantization to bit planes and back, a block of a gradient at 1 to 8 bits a number.
//
//   build/bench/bench_quantize
#include "kernels/quantize.h"

#include "kernel_timing.h"

using namespace kpd;
using namespace kpd::bench;
namespace k = kpd::kernels;

namespace {

// Evenly spaced levels up to 4 standard deviations.
struct Levels {
  std::vector<float> levels, thresholds;
  std::vector<uint8_t> bucket_start;
  k::QuantizeTable table;

  explicit Levels(int bits) : bucket_start(k::kBucketCount) {
    const size_t count = size_t{1} << (bits - 1);
    const float step = 4.0f / static_cast<float>(count);
    for (size_t m = 0; m < count; ++m) levels.push_back((static_cast<float>(m) + 0.5f) * step);
    for (size_t m = 1; m < count; ++m) thresholds.push_back(static_cast<float>(m) * step);
    const float scale = static_cast<float>(k::kBucketCount) / 4.0f;
    for (size_t bucket = 0; bucket < k::kBucketCount; ++bucket) {
      const float low = static_cast<float>(bucket) / scale;
      const auto end = std::upper_bound(thresholds.begin(), thresholds.end(), low);
      bucket_start[bucket] = static_cast<uint8_t>(end - thresholds.begin());
    }
    table = {bits, thresholds.data(), levels.data(), bucket_start.data(), scale};
  }
};

}  // namespace

int main() {
  static volatile double sink;
  print_kernel_header();
  const size_t n = 4096;
  const std::vector<float> x = normal_floats(n, 1);
  std::vector<float> y(n);
  for (int bits = 1; bits <= k::kMaxPlaneBits; ++bits) {
    const Levels levels(bits);
    std::vector<uint8_t> planes(static_cast<size_t>(bits) * k::plane_bytes(n));
    const size_t n_bytes = n * sizeof(float) + planes.size();
    measure_kernel(
        "quantize_planes, " + std::to_string(bits) + " bits", n, n_bytes,
        [&] { sink = k::quantize_planes(x.data(), n, levels.table, planes.data()).dot; },
        [&] { sink = k::scalar::quantize_planes(x.data(), n, levels.table, planes.data()).dot; });
    measure_kernel(
        "dequantize_planes, " + std::to_string(bits) + " bits", n, n_bytes,
        [&] { k::dequantize_planes(planes.data(), n, bits, levels.levels.data(), y.data()); },
        [&] { k::scalar::dequantize_planes(planes.data(), n, bits, levels.levels.data(), y.data()); });
  }
  (void)sink;
  return 0;
}
