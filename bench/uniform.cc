// bench: uniform quantization to indices, symbols, and back, and dither, on a block of a gradient.
//
//   build/bench/bench_uniform
#include "kernels/uniform.h"

#include "kernel_timing.h"

using namespace kpd;
using namespace kpd::bench;
namespace k = kpd::kernels;

int main() {
  print_kernel_header();
  const size_t n = 4096;
  const std::vector<float> x = normal_floats(n, 1);
  std::vector<float> y(n), offset(n, 0.5f);
  std::vector<int16_t> index(n);
  std::vector<uint8_t> symbols(n);
  std::vector<uint32_t> words(n / 2);
  CounterRng rng(2);
  for (uint32_t& w : words) w = rng.next_u32();
  const size_t f = sizeof(float);
  measure_kernel(
      "quantize_uniform", n, (f + 2) * n, [&] { k::quantize_uniform(x.data(), n, 2.0f, index.data()); },
      [&] { k::scalar::quantize_uniform(x.data(), n, 2.0f, index.data()); });
  measure_kernel(
      "quantize_dithered", n, (2 * f + 2) * n, [&] { k::quantize_dithered(x.data(), offset.data(), n, 2.0f, index.data()); },
      [&] { k::scalar::quantize_dithered(x.data(), offset.data(), n, 2.0f, index.data()); });
  measure_kernel(
      "uniform_symbols", n, 3 * n, [&] { k::uniform_symbols(index.data(), n, 16, 32, symbols.data()); },
      [&] { k::scalar::uniform_symbols(index.data(), n, 16, 32, symbols.data()); });
  measure_kernel(
      "uniform_values", n, (f + 1) * n, [&] { k::uniform_values(symbols.data(), n, 16, 0.5f, y.data()); },
      [&] { k::scalar::uniform_values(symbols.data(), n, 16, 0.5f, y.data()); });
  const std::vector<float> table = normal_floats(63, 3);
  measure_kernel(
      "symbol_values", n, (f + 1) * n, [&] { k::symbol_values(symbols.data(), n, table.data(), table.size(), y.data()); },
      [&] { k::scalar::symbol_values(symbols.data(), n, table.data(), table.size(), y.data()); });
  measure_kernel(
      "dither_offsets", n, (f + 2) * n, [&] { k::dither_offsets(words.data(), n, 0.25f, 0x1p-17f, offset.data()); },
      [&] { k::scalar::dither_offsets(words.data(), n, 0.25f, 0x1p-17f, offset.data()); });
  measure_kernel(
      "subtract_dither", n, 3 * f * n, [&] { k::subtract_dither(offset.data(), n, 0.5f, y.data()); },
      [&] { k::scalar::subtract_dither(offset.data(), n, 0.5f, y.data()); });
  return 0;
}
