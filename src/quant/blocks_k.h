// quant: the decoders of ggml's blocks of 256 values, one block each: `block` is a whole block, y takes 256 values.
#pragma once

#include <cstdint>

namespace kpd::quant {

// The 16 levels of the IQ4 types.
extern const int8_t kIq4Levels[16];

void decode_q2_k(const uint8_t* block, float* y);
void decode_q3_k(const uint8_t* block, float* y);
void decode_q4_k(const uint8_t* block, float* y);
void decode_q5_k(const uint8_t* block, float* y);
void decode_q6_k(const uint8_t* block, float* y);
void decode_iq4_xs(const uint8_t* block, float* y);

}  // namespace kpd::quant
