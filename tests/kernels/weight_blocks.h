// tests: random weight blocks of ggml's types and what they mean, value by value, in double.
#pragma once

#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/isa_fixture.h"
#include "kpd/base/block_type.h"
#include "kpd/base/dtype.h"

namespace kpd::testing {

enum class WeightFill {
  kRandom,
  kAllZeros,  // every code byte 0
  kAllOnes,   // every code byte 255
  kLowest,    // every code byte 128: -128 as an 8-bit weight
};

// Offsets of the f16 scales in a block; the second is 0 where there is none.
struct ScaleOffsets {
  size_t d, m;
};

inline ScaleOffsets scale_offsets(BlockType type) {
  switch (type) {
    case BlockType::kQ4_1:
    case BlockType::kQ4_K:
    case BlockType::kQ5_1:
    case BlockType::kQ5_K:
      return {0, 2};
    case BlockType::kQ2_K:
      return {80, 82};
    case BlockType::kQ3_K:
      return {108, 0};
    case BlockType::kQ6_K:
      return {208, 0};
    default:
      return {0, 0};
  }
}

inline std::vector<uint8_t> random_blocks(BlockType type, size_t n_values, WeightFill fill, uint64_t seed) {
  const BlockTypeInfo& info = block_type_info(type);
  const size_t n_blocks = n_values / info.block_values;
  std::vector<uint8_t> bytes(n_blocks * info.block_bytes);
  CounterRng rng(seed);
  const uint8_t fills[] = {0, 0, 255, 128};
  for (uint8_t& b : bytes)
    b = fill == WeightFill::kRandom ? static_cast<uint8_t>(rng.next_u32()) : fills[static_cast<int>(fill)];
  const ScaleOffsets at = scale_offsets(type);
  for (size_t b = 0; b < n_blocks; ++b) {
    uint8_t* block = bytes.data() + b * info.block_bytes;
    // Now and then a subnormal half.
    const uint16_t d = float_to_fp16(b % 7 == 3 ? 0x1p-20f : static_cast<float>(rng.next_normal()) * .01f);
    const uint16_t m = float_to_fp16(static_cast<float>(rng.next_normal()) * .05f);
    if (at.m != 0) std::memcpy(block + at.m, &m, 2);
    std::memcpy(block + at.d, &d, 2);
  }
  return bytes;
}

inline double half_at(const uint8_t* p) {
  uint16_t bits;
  std::memcpy(&bits, p, 2);
  return fp16_to_float(bits);
}

// w = scaled + min.
struct WeightParts {
  double scaled, min;
};

inline int q4_k_scale(const uint8_t* s, size_t j, bool want_min) {
  if (j < 4) return s[j + (want_min ? 4 : 0)] & 63;
  return want_min ? (s[j + 4] >> 4) + (s[j] >> 6) * 16 : (s[j + 4] & 15) + (s[j - 4] >> 6) * 16;
}

inline WeightParts weight_parts(BlockType type, const std::vector<uint8_t>& bytes, size_t i) {
  static const int kLevels[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
  const BlockTypeInfo& info = block_type_info(type);
  const uint8_t* block = bytes.data() + i / info.block_values * info.block_bytes;
  const size_t k = i % info.block_values;
  const ScaleOffsets at = scale_offsets(type);
  const double d = half_at(block + at.d);
  const auto nibble = [&](size_t first) { return k < 16 ? block[first + k] & 15 : block[first + k - 16] >> 4; };
  switch (type) {
    case BlockType::kQ4_0:
      return {d * (nibble(2) - 8), 0};
    case BlockType::kQ4_1:
      return {d * nibble(4), half_at(block + 2)};
    case BlockType::kQ5_0:
      return {d * (nibble(6) + ((block[2 + k / 8] >> (k % 8)) & 1) * 16 - 16), 0};
    case BlockType::kQ5_1:
      return {d * (nibble(8) + ((block[4 + k / 8] >> (k % 8)) & 1) * 16), half_at(block + 2)};
    case BlockType::kIQ4_XS: {
      const size_t j = k / 32, l = k % 32;
      const uint8_t* q = block + 8 + 16 * j;
      const int low = j % 2 == 0 ? block[4 + j / 2] & 15 : block[4 + j / 2] >> 4;
      const int scale = low + (((block[2] + block[3] * 256) >> (2 * j)) & 3) * 16 - 32;
      return {d * scale * kLevels[l < 16 ? q[l] & 15 : q[l - 16] >> 4], 0};
    }
    case BlockType::kQ2_K: {
      const int q = (block[16 + k / 128 * 32 + k % 32] >> (k % 128 / 32 * 2)) & 3, both = block[k / 16];
      return {d * (both & 15) * q, -half_at(block + 82) * (both >> 4)};
    }
    case BlockType::kQ3_K: {
      const size_t half = k / 128, shift = k % 128 / 32 * 2, l = k % 32, j = k / 16;
      const int q = ((block[32 + half * 32 + l] >> shift) & 3) - ((block[l] >> (k / 32)) & 1 ? 0 : 4);
      const int low = j < 8 ? block[96 + j] & 15 : block[96 + j - 8] >> 4;
      return {d * (low + ((block[104 + j % 4] >> (j / 4 * 2)) & 3) * 16 - 32) * q, 0};
    }
    case BlockType::kIQ4_NL:
      return {d * kLevels[nibble(2)], 0};
    case BlockType::kQ8_0:
      return {d * static_cast<int8_t>(block[2 + k]), 0};
    case BlockType::kQ4_K:
    case BlockType::kQ5_K: {
      const bool five = type == BlockType::kQ5_K;
      const uint8_t byte = block[(five ? 48 : 16) + k / 64 * 32 + k % 32];
      const size_t j = k / 32;
      const int high = five && (block[16 + k % 32] & (1 << j)) != 0 ? 16 : 0;
      return {d * q4_k_scale(block + 4, j, false) * ((j % 2 == 0 ? byte & 15 : byte >> 4) + high),
              -half_at(block + 2) * q4_k_scale(block + 4, j, true)};
    }
    case BlockType::kQ6_K: {
      const size_t half = k / 128, quarter = k % 128 / 32, l = k % 32;
      const uint8_t low = block[half * 64 + quarter % 2 * 32 + l], high = block[128 + half * 32 + l];
      const int q = (quarter < 2 ? low & 15 : low >> 4) + ((high >> (2 * quarter)) & 3) * 16;
      return {d * static_cast<int8_t>(block[192 + k / 16]) * (q - 32), 0};
    }
    default:
      ADD_FAILURE() << "no definition of " << info.name;
      return {0, 0};
  }
}

// All types with an integer product.
inline const BlockType kIntTypes[] = {BlockType::kQ4_0, BlockType::kQ4_1,   BlockType::kQ5_0,   BlockType::kQ5_1,
                                      BlockType::kQ8_0, BlockType::kQ3_K,   BlockType::kQ4_K,   BlockType::kQ5_K,
                                      BlockType::kQ6_K, BlockType::kIQ4_NL, BlockType::kIQ4_XS, BlockType::kQ2_K};

inline std::vector<double> dequantize(BlockType type, const std::vector<uint8_t>& bytes, size_t n_values) {
  std::vector<double> w(n_values);
  for (size_t i = 0; i < n_values; ++i) {
    const WeightParts parts = weight_parts(type, bytes, i);
    w[i] = parts.scaled + parts.min;
  }
  return w;
}

// |scaled| + |min|: what roundings are relative to.
inline double max_magnitude(BlockType type, const std::vector<uint8_t>& bytes, size_t i) {
  const WeightParts parts = weight_parts(type, bytes, i);
  return std::fabs(parts.scaled) + std::fabs(parts.min);
}

}  // namespace kpd::testing
