// quant: ggml's blocks of 32 values and plain floats, both ways; blocks of 256 are decoded in blocks_k.cc. A block of 32 is a
// 16-bit float d (the _1 types: and a minimum m), the fifth bits of the codes where there are five, and the codes: nibbles of
// values 0 to 15 low, of 16 to 31 high.
#include "kpd/quant/blocks.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kpd/base/bytes.h"
#include "kpd/base/dtype.h"
#include "kpd/base/error.h"
#include "quant/blocks_k.h"

namespace kpd::quant {
namespace {

constexpr int kBlock = 32;

float load_half(const uint8_t* p) { return fp16_to_float(load_u16(p)); }

void decode_q8_0(const uint8_t* block, float* y) {
  const float d = load_half(block);
  for (int i = 0; i < kBlock; ++i) y[i] = d * static_cast<float>(static_cast<int8_t>(block[2 + i]));
}

void decode_q4_0(const uint8_t* block, float* y) {
  const float d = load_half(block);
  const uint8_t* q = block + 2;
  for (int i = 0; i < 16; ++i) {
    y[i] = d * static_cast<float>((q[i] & 15) - 8);
    y[16 + i] = d * static_cast<float>((q[i] >> 4) - 8);
  }
}

void decode_q4_1(const uint8_t* block, float* y) {
  const float d = load_half(block), m = load_half(block + 2);
  const uint8_t* q = block + 4;
  for (int i = 0; i < 16; ++i) {
    y[i] = d * static_cast<float>(q[i] & 15) + m;
    y[16 + i] = d * static_cast<float>(q[i] >> 4) + m;
  }
}

void decode_q5_0(const uint8_t* block, float* y) {
  const float d = load_half(block);
  const uint32_t fifth = load_u32(block + 2);
  const uint8_t* q = block + 6;
  for (int i = 0; i < 16; ++i) {
    const int low = (q[i] & 15) | static_cast<int>((fifth >> i) & 1) << 4;
    const int high = (q[i] >> 4) | static_cast<int>((fifth >> (16 + i)) & 1) << 4;
    y[i] = d * static_cast<float>(low - 16);
    y[16 + i] = d * static_cast<float>(high - 16);
  }
}

void decode_q5_1(const uint8_t* block, float* y) {
  const float d = load_half(block), m = load_half(block + 2);
  const uint32_t fifth = load_u32(block + 4);
  const uint8_t* q = block + 8;
  for (int i = 0; i < 16; ++i) {
    const int low = (q[i] & 15) | static_cast<int>((fifth >> i) & 1) << 4;
    const int high = (q[i] >> 4) | static_cast<int>((fifth >> (16 + i)) & 1) << 4;
    y[i] = d * static_cast<float>(low) + m;
    y[16 + i] = d * static_cast<float>(high) + m;
  }
}

void decode_iq4_nl(const uint8_t* block, float* y) {
  const float d = load_half(block);
  const uint8_t* q = block + 2;
  for (int i = 0; i < 16; ++i) {
    y[i] = d * static_cast<float>(kIq4Levels[q[i] & 15]);
    y[16 + i] = d * static_cast<float>(kIq4Levels[q[i] >> 4]);
  }
}

// ggml converts floats to bytes as x86 does, also where C leaves it open: what no 32-bit integer holds (NaN, infinity; of
// blocks whose 1/d overflows) gives 0.
int to_code(float v) { return std::fabs(v) < 2147483648.0f ? static_cast<int8_t>(static_cast<int32_t>(v)) : 0; }

float inverse(float d) { return d != 0.0f ? 1.0f / d : 0.0f; }

void encode_q8_0(const float* x, uint8_t* block) {
  float magnitude = 0;
  for (int i = 0; i < kBlock; ++i) magnitude = std::max(magnitude, std::fabs(x[i]));
  const float d = magnitude / 127.0f, scale = inverse(d);
  store_u16(block, float_to_fp16(d));
  for (int i = 0; i < kBlock; ++i) block[2 + i] = static_cast<uint8_t>(to_code(std::round(x[i] * scale)));
}

// Codes from 0 to 2^Bits - 1 as the block keeps them: nibbles and, of five bits, the word of fifth bits before them.
template <int Bits>
void store_codes(const uint8_t (&codes)[kBlock], uint8_t* dst) {
  if constexpr (Bits == 5) {
    uint32_t fifth = 0;
    for (int i = 0; i < kBlock; ++i) fifth |= static_cast<uint32_t>(codes[i] >> 4) << i;
    store_u32(dst, fifth);
    dst += 4;
  }
  for (int i = 0; i < 16; ++i) dst[i] = static_cast<uint8_t>((codes[i] & 15) | (codes[16 + i] & 15) << 4);
}

// Q4_0, Q5_0: the value of the largest magnitude, the first of them, becomes the lowest code, so d has its sign turned.
template <int Bits>
void encode_symmetric(const float* x, uint8_t* block) {
  constexpr int kHalf = 1 << (Bits - 1);
  float magnitude = 0, extreme = 0;
  for (int i = 0; i < kBlock; ++i) {
    if (std::fabs(x[i]) > magnitude) {
      magnitude = std::fabs(x[i]);
      extreme = x[i];
    }
  }
  const float d = extreme / -static_cast<float>(kHalf), scale = inverse(d);
  store_u16(block, float_to_fp16(d));
  uint8_t codes[kBlock];
  for (int i = 0; i < kBlock; ++i) {
    const int code = to_code(x[i] * scale + (static_cast<float>(kHalf) + 0.5f));
    codes[i] = static_cast<uint8_t>(std::clamp(code, 0, 2 * kHalf - 1));
  }
  store_codes<Bits>(codes, block + 2);
}

// Q4_1, Q5_1: from the least value to the largest.
template <int Bits>
void encode_affine(const float* x, uint8_t* block) {
  constexpr int kMax = (1 << Bits) - 1;
  float low = x[0], high = x[0];
  for (int i = 1; i < kBlock; ++i) {
    low = std::min(low, x[i]);
    high = std::max(high, x[i]);
  }
  const float d = (high - low) / static_cast<float>(kMax), scale = inverse(d);
  store_u16(block, float_to_fp16(d));
  store_u16(block + 2, float_to_fp16(low));
  uint8_t codes[kBlock];
  for (int i = 0; i < kBlock; ++i) {
    codes[i] = static_cast<uint8_t>(std::clamp(to_code((x[i] - low) * scale + 0.5f), 0, kMax));
  }
  store_codes<Bits>(codes, block + 4);
}

// The place of the level nearest to v; the lower one of two equally near.
uint8_t nearest_level(float v) {
  if (!(v > static_cast<float>(kIq4Levels[0]))) return 0;
  if (v >= static_cast<float>(kIq4Levels[15])) return 15;
  const int8_t* const above = std::upper_bound(kIq4Levels, kIq4Levels + 16, v);
  const float below = v - static_cast<float>(above[-1]), beyond = static_cast<float>(above[0]) - v;
  return static_cast<uint8_t>((below < beyond ? above - 1 : above) - kIq4Levels);
}

// IQ4_NL: codes for the scale that makes the largest value the first level, then the scale that is best for these codes, with
// squares as weights.
void encode_iq4_nl(const float* x, uint8_t* block) {
  constexpr float kLeast = 1e-15f;
  float largest = 0, at_largest = 0;
  for (int i = 0; i < kBlock; ++i) {
    if (std::fabs(x[i]) <= largest) continue;
    largest = std::fabs(x[i]);
    at_largest = x[i];
  }
  uint8_t codes[kBlock] = {};
  float d = 0;
  if (largest >= kLeast) {
    const float inverse_d = 1 / (at_largest / static_cast<float>(kIq4Levels[0]));
    float sum_qx = 0, sum_q2 = 0;
    for (int i = 0; i < kBlock; ++i) {
      codes[i] = nearest_level(inverse_d * x[i]);
      const float q = static_cast<float>(kIq4Levels[codes[i]]), weight = x[i] * x[i];
      sum_qx += weight * q * x[i];
      sum_q2 += weight * q * q;
    }
    d = sum_qx / sum_q2;
  }
  store_u16(block, float_to_fp16(d));
  for (int i = 0; i < 16; ++i) block[2 + i] = static_cast<uint8_t>(codes[i] | codes[16 + i] << 4);
}

template <class Decode>
void decode_all(const BlockTypeInfo& info, const uint8_t* src, std::span<float> dst, const Decode& decode) {
  for (size_t i = 0; i < dst.size(); i += info.block_values, src += info.block_bytes) decode(src, dst.data() + i);
}

template <class Encode>
void encode_all(const BlockTypeInfo& info, std::span<const float> src, uint8_t* dst, const Encode& encode) {
  for (size_t i = 0; i < src.size(); i += info.block_values, dst += info.block_bytes) encode(src.data() + i, dst);
}

}  // namespace

void dequantize_blocks(BlockType type, std::span<const uint8_t> src, uint64_t first, std::span<float> dst) {
  const BlockTypeInfo& info = block_type_info(type);
  if (src.size() % info.block_bytes != 0 || first % info.block_values != 0 || dst.size() % info.block_values != 0) {
    fail(ErrorCode::kInvalidArgument, "values ", first, " to ", first + dst.size(), " asked of ", src.size(), " bytes of ",
         info.name, ", expected whole blocks of ", info.block_values, " values in ", info.block_bytes, " bytes");
  }
  const uint64_t count = src.size() / info.block_bytes * info.block_values;
  if (first > count || dst.size() > count - first) {
    fail(ErrorCode::kInvalidArgument, "values ", first, " to ", first + dst.size(), " asked of a row of ", count);
  }
  const uint8_t* p = src.data() + first / info.block_values * info.block_bytes;
  switch (type) {
    case BlockType::kF32:
      return load_floats({p, dst.size(), DType::kFloat32}, 0, dst);
    case BlockType::kF16:
      return load_floats({p, dst.size(), DType::kFloat16}, 0, dst);
    case BlockType::kBF16:
      return load_floats({p, dst.size(), DType::kBFloat16}, 0, dst);
    case BlockType::kQ8_0:
      return decode_all(info, p, dst, decode_q8_0);
    case BlockType::kQ4_0:
      return decode_all(info, p, dst, decode_q4_0);
    case BlockType::kQ4_1:
      return decode_all(info, p, dst, decode_q4_1);
    case BlockType::kQ5_0:
      return decode_all(info, p, dst, decode_q5_0);
    case BlockType::kQ5_1:
      return decode_all(info, p, dst, decode_q5_1);
    case BlockType::kQ2_K:
      return decode_all(info, p, dst, decode_q2_k);
    case BlockType::kQ3_K:
      return decode_all(info, p, dst, decode_q3_k);
    case BlockType::kQ4_K:
      return decode_all(info, p, dst, decode_q4_k);
    case BlockType::kQ5_K:
      return decode_all(info, p, dst, decode_q5_k);
    case BlockType::kQ6_K:
      return decode_all(info, p, dst, decode_q6_k);
    case BlockType::kIQ4_NL:
      return decode_all(info, p, dst, decode_iq4_nl);
    case BlockType::kIQ4_XS:
      return decode_all(info, p, dst, decode_iq4_xs);
  }
}

void quantize_blocks(BlockType type, std::span<const float> src, std::span<uint8_t> dst) {
  const BlockTypeInfo& info = block_type_info(type);
  if (src.size() % info.block_values != 0 || dst.size() % info.block_bytes != 0 ||
      src.size() / info.block_values != dst.size() / info.block_bytes) {
    fail(ErrorCode::kInvalidArgument, src.size(), " values into ", dst.size(), " bytes of ", info.name,
         ", expected whole blocks of ", info.block_values, " values in ", info.block_bytes, " bytes");
  }
  switch (type) {
    case BlockType::kF32:
      return store_floats(src, DType::kFloat32, dst.data());
    case BlockType::kF16:
      return store_floats(src, DType::kFloat16, dst.data());
    case BlockType::kBF16:
      return store_floats(src, DType::kBFloat16, dst.data());
    case BlockType::kQ8_0:
      return encode_all(info, src, dst.data(), encode_q8_0);
    case BlockType::kQ4_0:
      return encode_all(info, src, dst.data(), encode_symmetric<4>);
    case BlockType::kQ4_1:
      return encode_all(info, src, dst.data(), encode_affine<4>);
    case BlockType::kQ5_0:
      return encode_all(info, src, dst.data(), encode_symmetric<5>);
    case BlockType::kQ5_1:
      return encode_all(info, src, dst.data(), encode_affine<5>);
    case BlockType::kIQ4_NL:
      return encode_all(info, src, dst.data(), encode_iq4_nl);
    default:
      fail(ErrorCode::kUnsupported, "values cannot be written as ", info.name,
           ", expected one of F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, IQ4_NL");
  }
}

}  // namespace kpd::quant
