// quant: ggml's block formats, values to and from bytes. The plain reference of every weight kernel, and what exact arithmetic
// uses.
#pragma once

#include <cstdint>
#include <span>

#include "kpd/base/block_type.h"

namespace kpd::quant {

// dst[i] = value first + i of `src`, a row of whole blocks of `type`. first and dst.size() are multiples of the block's values.
// Bit for bit what ggml's dequantize_row_* give. Thread-safe. Throws Error(kInvalidArgument) where the sizes do not fit.
void dequantize_blocks(BlockType type, std::span<const uint8_t> src, uint64_t first, std::span<float> dst);

// Round to nearest by ggml's reference rules (quantize_row_*_ref), bit for bit, for F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0,
// Q5_1, IQ4_NL. Throws Error(kUnsupported) for the others, Error(kInvalidArgument) where the sizes do not fit.
void quantize_blocks(BlockType type, std::span<const float> src, std::span<uint8_t> dst);

}  // namespace kpd::quant
