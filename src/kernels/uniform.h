// kernels: uniform quantization to 16-bit indices and dot products for the entropy codes. Private.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kpd::kernels {

// index[i] = round half away from zero of y[i] * inverse (float product, plus .5, truncated), saturated to 16 bits.
void quantize_uniform(const float* y, size_t n, float inverse, int16_t* index);
// index[i] = floor(y[i] * inverse + offset[i]), saturated. offset = dither / step + 1/2.
void quantize_dithered(const float* y, const float* offset, size_t n, float inverse, int16_t* index);
// sum of a_i b_i, products exact in double, 16-lane fixed tree (hadamard.h).
double dot(const float* a, const float* b, size_t n);

namespace scalar {
void quantize_uniform(const float* y, size_t n, float inverse, int16_t* index);
void quantize_dithered(const float* y, const float* offset, size_t n, float inverse, int16_t* index);
double dot(const float* a, const float* b, size_t n);
}  // namespace scalar

}  // namespace kpd::kernels
