// kernels: the plain reference of uniform.h.
#include <cmath>

#include "kernels/uniform.h"

namespace kpd::kernels::scalar {
namespace {

int16_t saturate(float v) {
  if (v >= 32767.0f) return 32767;
  if (v <= -32768.0f) return -32768;
  return static_cast<int16_t>(v);
}

}  // namespace

void quantize_uniform(const float* y, size_t n, float inverse, int16_t* index) {
  for (size_t i = 0; i < n; ++i) {
    const float v = y[i] * inverse;
    index[i] = saturate(std::copysign(std::trunc(std::fabs(v) + 0.5f), v));
  }
}

void quantize_dithered(const float* y, const float* offset, size_t n, float inverse, int16_t* index) {
  for (size_t i = 0; i < n; ++i) index[i] = saturate(std::floor(y[i] * inverse + offset[i]));
}

void uniform_symbols(const int16_t* index, size_t n, int32_t bias, uint8_t escape, uint8_t* symbols) {
  for (size_t i = 0; i < n; ++i) {
    const int symbol = index[i] + bias;
    symbols[i] = symbol >= 0 && symbol < escape ? static_cast<uint8_t>(symbol) : escape;
  }
}

void uniform_values(const uint8_t* symbols, size_t n, int32_t bias, float step, float* y) {
  for (size_t i = 0; i < n; ++i) y[i] = static_cast<float>(symbols[i] - bias) * step;
}

void symbol_values(const uint8_t* symbols, size_t n, const float* table, size_t /*n_entries*/, float* y) {
  for (size_t i = 0; i < n; ++i) y[i] = table[symbols[i]];
}

void dither_offsets(const uint32_t* words, size_t n, float base, float unit, float* offset) {
  for (size_t i = 0; i < n; ++i) offset[i] = base + static_cast<float>((words[i / 2] >> (16 * (i % 2))) & 0xffff) * unit;
}

void subtract_dither(const float* offset, size_t n, float step, float* y) {
  for (size_t i = 0; i < n; ++i) y[i] -= (offset[i] - 0.5f) * step;
}

}  // namespace kpd::kernels::scalar
