// kernels: uniform quantization to 16-bit indices and back, and dither. Private.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dispatch.h"

namespace kpd::kernels {

// index[i] = round half away from zero of y[i] * inverse (float product, plus .5, truncated), saturated to 16 bits.
KPD_KERNEL(quantize_uniform, void(const float* y, size_t n, float inverse, int16_t* index));
// index[i] = floor(y[i] * inverse + offset[i]), saturated. offset = dither / step + 1/2.
KPD_KERNEL(quantize_dithered, void(const float* y, const float* offset, size_t n, float inverse, int16_t* index));
// symbols[i] = index[i] + bias where that is in [0, escape), else escape. bias, escape < 256.
KPD_KERNEL(uniform_symbols, void(const int16_t* index, size_t n, int32_t bias, uint8_t escape, uint8_t* symbols));
// y[i] = (symbols[i] - bias) * step.
KPD_KERNEL(uniform_values, void(const uint8_t* symbols, size_t n, int32_t bias, float step, float* y));
// y[i] = table[symbols[i]]; every symbol is below n_entries.
KPD_KERNEL(symbol_values, void(const uint8_t* symbols, size_t n, const float* table, size_t n_entries, float* y));
// offset[i] = base + unit * half i of words, whose halves count from the low 16 bits of words[0].
KPD_KERNEL(dither_offsets, void(const uint32_t* words, size_t n, float base, float unit, float* offset));
// y[i] -= (offset[i] - 1/2) * step
KPD_KERNEL(subtract_dither, void(const float* offset, size_t n, float step, float* y));

}  // namespace kpd::kernels
