// kernels: what stands between the matrix products of a language model. Private. All work on one row; results depend on the
// instruction set (exp and tanh by polynomials, sums by lanes), never on threads or on how rows are batched.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dispatch.h"

namespace kpd::kernels {

// y[i] = w[i] x[i] / sqrt(mean(x^2) + eps); y may be x.
KPD_KERNEL(rms_norm, void(const float* x, const float* w, size_t n, float eps, float* y));
// y[i] = silu(gate[i]) up[i]; y may be one of them.
KPD_KERNEL(silu_multiply, void(const float* gate, const float* up, size_t n, float* y));
// The tanh form of gelu.
KPD_KERNEL(gelu_tanh_multiply, void(const float* gate, const float* up, size_t n, float* y));
// x[i] = cap tanh(x[i] / cap)
KPD_KERNEL(soft_cap, void(float* x, size_t n, float cap));
// Rotates pairs (x[i], x[i + half]) by the angle whose cosine and sine are c[i], s[i], i < half.
KPD_KERNEL(rotate_halves, void(float* x, const float* c, const float* s, size_t half));
// x[i] += y[i]
KPD_KERNEL(add, void(float* x, const float* y, size_t n));
// x[i] *= factor
KPD_KERNEL(scale, void(float* x, size_t n, float factor));
KPD_KERNEL(max_value, float(const float* x, size_t n));  // -infinity for none
// x[i] = exp(x[i] - shift); returns the sum.
KPD_KERNEL(exp_shifted, float(float* x, size_t n, float shift));
// dst[i] = float(src[i]), IEEE binary16 or bfloat16; dst is not src.
KPD_KERNEL(widen_fp16, void(const uint16_t* src, size_t n, float* dst));
KPD_KERNEL(widen_bf16, void(const uint16_t* src, size_t n, float* dst));
// log of the sum of exp(x[i]), summed in double over blocks.
double log_sum_exp(const float* x, size_t n);

}  // namespace kpd::kernels
