// kernels: the plain reference of llm_ops.h.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "kernels/llm_ops.h"
#include "kpd/base/dtype.h"

namespace kpd::kernels::scalar {

void rms_norm(const float* x, const float* w, size_t n, float eps, float* y) {
  float sum = 0;
  for (size_t i = 0; i < n; ++i) sum += x[i] * x[i];
  const float factor = 1.0f / std::sqrt(sum / static_cast<float>(n) + eps);
  for (size_t i = 0; i < n; ++i) y[i] = w[i] * (x[i] * factor);
}

void silu_multiply(const float* gate, const float* up, size_t n, float* y) {
  for (size_t i = 0; i < n; ++i) y[i] = gate[i] / (1.0f + std::exp(-gate[i])) * up[i];
}

void gelu_tanh_multiply(const float* gate, const float* up, size_t n, float* y) {
  const float root = std::sqrt(2.0f / std::numbers::pi_v<float>);
  for (size_t i = 0; i < n; ++i) {
    const float g = gate[i];
    y[i] = 0.5f * g * (1.0f + std::tanh(root * (g + 0.044715f * g * g * g))) * up[i];
  }
}

void soft_cap(float* x, size_t n, float cap) {
  for (size_t i = 0; i < n; ++i) x[i] = cap * std::tanh(x[i] / cap);
}

void rotate_halves(float* x, const float* c, const float* s, size_t half) {
  for (size_t i = 0; i < half; ++i) {
    const float a = x[i], b = x[i + half];
    x[i] = a * c[i] - b * s[i];
    x[i + half] = b * c[i] + a * s[i];
  }
}

void add(float* x, const float* y, size_t n) {
  for (size_t i = 0; i < n; ++i) x[i] += y[i];
}

void scale(float* x, size_t n, float factor) {
  for (size_t i = 0; i < n; ++i) x[i] *= factor;
}

float max_value(const float* x, size_t n) {
  float best = -std::numeric_limits<float>::infinity();
  for (size_t i = 0; i < n; ++i) best = std::max(best, x[i]);
  return best;
}

float exp_shifted(float* x, size_t n, float shift) {
  float sum = 0;
  for (size_t i = 0; i < n; ++i) {
    x[i] = std::exp(x[i] - shift);
    sum += x[i];
  }
  return sum;
}

void widen_fp16(const uint16_t* src, size_t n, float* dst) { load_floats({src, n, DType::kFloat16}, 0, {dst, n}); }

void widen_bf16(const uint16_t* src, size_t n, float* dst) { load_floats({src, n, DType::kBFloat16}, 0, {dst, n}); }

}  // namespace kpd::kernels::scalar
