// bench: what stands between the matrix products of a language model, rows of 576, 4096 and 131072 numbers (a model's width, a
// wide one's, a vocabulary).
//
//   build/bench/bench_llm_ops
#include "kernels/llm_ops.h"

#include "kernel_timing.h"

using namespace kpd;
using namespace kpd::bench;
namespace k = kpd::kernels;

int main() {
  print_kernel_header();
  for (const size_t n : {size_t{576}, size_t{4096}, size_t{131072}}) {
    const std::vector<float> x = normal_floats(n, 1), w = normal_floats(n, 2);
    std::vector<float> y(n);
    const size_t map = 2 * n * sizeof(float), zip = 3 * n * sizeof(float);
    measure_kernel(
        "rms_norm", n, zip, [&] { k::rms_norm(x.data(), w.data(), n, 1e-5f, y.data()); },
        [&] { k::scalar::rms_norm(x.data(), w.data(), n, 1e-5f, y.data()); });
    measure_kernel(
        "silu_multiply", n, zip, [&] { k::silu_multiply(x.data(), w.data(), n, y.data()); },
        [&] { k::scalar::silu_multiply(x.data(), w.data(), n, y.data()); });
    measure_kernel(
        "gelu_tanh_multiply", n, zip, [&] { k::gelu_tanh_multiply(x.data(), w.data(), n, y.data()); },
        [&] { k::scalar::gelu_tanh_multiply(x.data(), w.data(), n, y.data()); });
    y = x;
    measure_kernel(
        "soft_cap", n, map, [&] { k::soft_cap(y.data(), n, 30.0f); }, [&] { k::scalar::soft_cap(y.data(), n, 30.0f); });
    y = x;
    measure_kernel(
        "rotate_halves", n, 3 * n * sizeof(float), [&] { k::rotate_halves(y.data(), w.data(), w.data() + n / 2, n / 2); },
        [&] { k::scalar::rotate_halves(y.data(), w.data(), w.data() + n / 2, n / 2); });
    y.assign(n, 0.0f);
    measure_kernel(
        "add", n, zip, [&] { k::add(y.data(), x.data(), n); }, [&] { k::scalar::add(y.data(), x.data(), n); });
    y = x;
    measure_kernel(
        "scale", n, map, [&] { k::scale(y.data(), n, 1.0f); }, [&] { k::scalar::scale(y.data(), n, 1.0f); });
    static volatile float sink;
    measure_kernel(
        "max_value", n, n * sizeof(float), [&] { sink = k::max_value(x.data(), n); },
        [&] { sink = k::scalar::max_value(x.data(), n); });
    // In place: after the first call the values are those of exp, and stay near 1.
    y = x;
    measure_kernel(
        "exp_shifted", n, map, [&] { sink = k::exp_shifted(y.data(), n, 1.0f); },
        [&] { sink = k::scalar::exp_shifted(y.data(), n, 1.0f); });
    (void)sink;
    std::vector<uint16_t> halves(n);
    for (size_t i = 0; i < n; ++i) halves[i] = static_cast<uint16_t>(0x3800 + i % 1024);
    measure_kernel(
        "widen_fp16", n, 6 * n, [&] { k::widen_fp16(halves.data(), n, y.data()); },
        [&] { k::scalar::widen_fp16(halves.data(), n, y.data()); });
    measure_kernel(
        "widen_bf16", n, 6 * n, [&] { k::widen_bf16(halves.data(), n, y.data()); },
        [&] { k::scalar::widen_bf16(halves.data(), n, y.data()); });
  }
  return 0;
}
