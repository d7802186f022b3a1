// kernels: what stands between the matrix products of a language model. Private. All work on one row; results depend on the
// instruction set (exp and tanh by polynomials, sums by lanes), never on threads or on how rows are batched.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kpd::kernels {

// y[i] = w[i] x[i] / sqrt(mean(x^2) + eps); y may be x.
void rms_norm(const float* x, const float* w, size_t n, float eps, float* y);
// y[i] = silu(gate[i]) up[i]; y may be one of them.
void silu_multiply(const float* gate, const float* up, size_t n, float* y);
// The tanh form of gelu.
void gelu_tanh_multiply(const float* gate, const float* up, size_t n, float* y);
// x[i] = cap tanh(x[i] / cap)
void soft_cap(float* x, size_t n, float cap);
// Rotates pairs (x[i], x[i + half]) by the angle whose cosine and sine are c[i], s[i], i < half.
void rotate_halves(float* x, const float* c, const float* s, size_t half);
// x[i] += y[i]
void add(float* x, const float* y, size_t n);
// x[i] *= factor
void scale(float* x, size_t n, float factor);
float max_value(const float* x, size_t n);  // -infinity for none
// x[i] = exp(x[i] - shift); returns the sum.
float exp_shifted(float* x, size_t n, float shift);
// dst[i] = float(src[i]), IEEE binary16 or bfloat16; dst is not src.
void widen_fp16(const uint16_t* src, size_t n, float* dst);
void widen_bf16(const uint16_t* src, size_t n, float* dst);
// log of the sum of exp(x[i]), summed in double over blocks.
double log_sum_exp(const float* x, size_t n);

namespace scalar {
void rms_norm(const float* x, const float* w, size_t n, float eps, float* y);
void silu_multiply(const float* gate, const float* up, size_t n, float* y);
void gelu_tanh_multiply(const float* gate, const float* up, size_t n, float* y);
void soft_cap(float* x, size_t n, float cap);
void rotate_halves(float* x, const float* c, const float* s, size_t half);
void add(float* x, const float* y, size_t n);
void scale(float* x, size_t n, float factor);
float max_value(const float* x, size_t n);
float exp_shifted(float* x, size_t n, float shift);
void widen_fp16(const uint16_t* src, size_t n, float* dst);
void widen_bf16(const uint16_t* src, size_t n, float* dst);
}  // namespace scalar

}  // namespace kpd::kernels
