// kernels: the plain reference of hadamard.h. Every fast path is tested against it, bit for bit.
#include <bit>

#include "kernels/hadamard.h"

namespace kpd::kernels::scalar {
namespace {

bool bit_at(const uint32_t* words, size_t i) { return words != nullptr && ((words[i / 32] >> (i % 32)) & 1) != 0; }

float edge(float v, const uint32_t* signs, size_t i, float scale) {
  const float scaled = scale == 1.0f ? v : v * scale;
  return bit_at(signs, i) ? -scaled : scaled;
}

void butterflies(float* y, size_t n) {
  for (size_t h = 1; h < n; h *= 2) {
    for (size_t base = 0; base < n; base += 2 * h) {
      for (size_t i = base; i < base + h; ++i) {
        const float a = y[i], b = y[i + h];
        y[i] = a + b;
        y[i + h] = a - b;
      }
    }
  }
}

}  // namespace

void fwht(float* y, size_t n, const HadamardIn& in, const HadamardOut* out) {
  for (size_t i = 0; i < n; ++i) y[i] = edge(in.src[i], in.signs, i, in.scale);
  butterflies(y, n);
  if (out == nullptr) return;
  for (size_t i = 0; i < n; ++i) {
    const float v = edge(y[i], out->signs, i, out->scale);
    out->dst[i] = out->accumulate ? out->dst[i] + v : v;
  }
}

void fwht_rows(float* y, size_t n_rows, size_t n, size_t stride, const HadamardEdge& before, const HadamardEdge& after) {
  for (size_t r = 0; r < n_rows; ++r) {
    float* const row = y + r * stride;
    for (size_t i = 0; i < n; ++i) row[i] = edge(row[i], before.signs, before.first_bit + i, before.scale);
    butterflies(row, n);
    for (size_t i = 0; i < n; ++i) row[i] = edge(row[i], after.signs, after.first_bit + i, after.scale);
  }
}

void flip_scale(const HadamardIn& in, size_t n, float* dst, bool accumulate) {
  for (size_t i = 0; i < n; ++i) {
    const float v = edge(in.src[i], in.signs, i, in.scale);
    dst[i] = accumulate ? dst[i] + v : v;
  }
}

void mirror_butterfly(float* y, size_t n) {
  for (size_t i = 0; i < n / 2; ++i) {
    const float a = y[i], b = y[n - 1 - i];
    y[i] = (a + b) * kSqrtHalf;
    y[n - 1 - i] = (a - b) * kSqrtHalf;
  }
}

}  // namespace kpd::kernels::scalar
