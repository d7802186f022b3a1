// base: how a weight tensor's values lie in a model file: plain floats, or ggml's blocks of codes with their scales.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kpd/base/dtype.h"

namespace kpd {

// The numbers are ggml's, as GGUF files store them.
enum class BlockType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kIQ4_NL = 20,
  kIQ4_XS = 23,
  kBF16 = 30,
};

struct BlockTypeInfo {
  BlockType type;
  const char* name;     // ggml's, "Q4_1"
  size_t block_values;  // values a block holds; 1 for plain floats
  size_t block_bytes;   // and its bytes
};

// All that kpd reads, in the order above.
std::span<const BlockTypeInfo> block_types();
const BlockTypeInfo& block_type_info(BlockType type);
// Null for a number that kpd does not read.
const BlockTypeInfo* find_block_type(uint32_t ggml_number);
// The element type of plain floats (F32, F16, BF16).
DType float_dtype(BlockType type);

}  // namespace kpd
