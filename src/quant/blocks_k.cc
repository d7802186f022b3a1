// quant: ggml's blocks of 256 values (ggml-common.h names the fields, ggml-quants.c their meaning). A block is cut into groups
// of 16 or 32 values with small integer scales under one or two 16-bit floats. Each value is two roundings at most, product
// then difference, in the order in which ggml takes them: bits depend on it.
#include "quant/blocks_k.h"

#include "kpd/base/bytes.h"
#include "kpd/base/dtype.h"

namespace kpd::quant {
namespace {

float load_half(const uint8_t* p) { return fp16_to_float(load_u16(p)); }

struct ScaleAndMin {
  float scale, min;
};

// Q4_K and Q5_K pack eight 6-bit scales and eight 6-bit minima into 12 bytes: of groups 0 to 3 in the low bits of bytes 0 to 3
// and 4 to 7, of the others the low nibbles share bytes 8 to 11 and the high bits lie above the first.
ScaleAndMin packed_scale(const uint8_t* packed, int group, float d, float dmin) {
  uint32_t scale, min;
  if (group < 4) {
    scale = packed[group] & 63u;
    min = packed[group + 4] & 63u;
  } else {
    scale = (packed[group + 4] & 15u) | (packed[group - 4] >> 6) << 4;
    min = static_cast<uint32_t>(packed[group + 4] >> 4) | (packed[group] >> 6) << 4;
  }
  return {d * static_cast<float>(scale), dmin * static_cast<float>(min)};
}

}  // namespace

const int8_t kIq4Levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

void decode_q2_k(const uint8_t* block, float* y) {
  const uint8_t *scales = block, *codes = block + 16;
  const float d = load_half(block + 80), dmin = load_half(block + 82);
  for (int group = 0; group < 16; ++group) {
    const float scale = d * static_cast<float>(scales[group] & 15), min = dmin * static_cast<float>(scales[group] >> 4);
    // A half of 128 values lies in 32 bytes: two groups side by side, four pairs of them in the bits.
    const uint8_t* q = codes + 32 * (group / 8) + 16 * (group % 2);
    const int shift = 2 * (group % 8 / 2);
    for (int i = 0; i < 16; ++i) y[16 * group + i] = scale * static_cast<float>((q[i] >> shift) & 3) - min;
  }
}

void decode_q3_k(const uint8_t* block, float* y) {
  const uint8_t *high = block, *codes = block + 32, *packed = block + 96;
  const float d = load_half(block + 108);
  for (int group = 0; group < 16; ++group) {
    // 6 bits a scale: nibbles in the first eight bytes, bits 4 and 5 in the last four.
    const int low = (packed[group % 8] >> (group < 8 ? 0 : 4)) & 15;
    const int top = (packed[8 + group % 4] >> (2 * (group / 4))) & 3;
    const float scale = d * static_cast<float>((low | top << 4) - 32);
    const uint8_t *q = codes + 32 * (group / 8) + 16 * (group % 2), *h = high + 16 * (group % 2);
    const int shift = 2 * (group % 8 / 2), bit = group / 2;
    for (int i = 0; i < 16; ++i) {
      const int code = ((q[i] >> shift) & 3) + 4 * ((h[i] >> bit) & 1) - 4;
      y[16 * group + i] = scale * static_cast<float>(code);
    }
  }
}

void decode_q4_k(const uint8_t* block, float* y) {
  const float d = load_half(block), dmin = load_half(block + 2);
  const uint8_t *packed = block + 4, *codes = block + 16;
  for (int group = 0; group < 8; ++group) {
    const auto [scale, min] = packed_scale(packed, group, d, dmin);
    const uint8_t* q = codes + 32 * (group / 2);
    const int shift = 4 * (group % 2);
    for (int i = 0; i < 32; ++i) y[32 * group + i] = scale * static_cast<float>((q[i] >> shift) & 15) - min;
  }
}

void decode_q5_k(const uint8_t* block, float* y) {
  const float d = load_half(block), dmin = load_half(block + 2);
  const uint8_t *packed = block + 4, *high = block + 16, *codes = block + 48;
  for (int group = 0; group < 8; ++group) {
    const auto [scale, min] = packed_scale(packed, group, d, dmin);
    const uint8_t* q = codes + 32 * (group / 2);
    const int shift = 4 * (group % 2);
    for (int i = 0; i < 32; ++i) {
      const int code = ((q[i] >> shift) & 15) | ((high[i] >> group) & 1) << 4;
      y[32 * group + i] = scale * static_cast<float>(code) - min;
    }
  }
}

void decode_q6_k(const uint8_t* block, float* y) {
  const uint8_t *low = block, *high = block + 128, *scales = block + 192;
  const float d = load_half(block + 208);
  for (int group = 0; group < 16; ++group) {
    const float scale = d * static_cast<float>(static_cast<int8_t>(scales[group]));
    // A half of 128 values: 64 bytes of nibbles, the low ones first, and 32 bytes of four times two bits.
    const int half = group / 8, within = group % 8;
    const uint8_t* l = low + 64 * half + 16 * (within % 4);
    const uint8_t* h = high + 32 * half + 16 * (within % 2);
    const int low_shift = within < 4 ? 0 : 4, high_shift = 2 * (within / 2);
    for (int i = 0; i < 16; ++i) {
      const int code = (((l[i] >> low_shift) & 15) | ((h[i] >> high_shift) & 3) << 4) - 32;
      y[16 * group + i] = scale * static_cast<float>(code);
    }
  }
}

void decode_iq4_xs(const uint8_t* block, float* y) {
  const float d = load_half(block);
  const uint32_t scales_high = load_u16(block + 2);
  const uint8_t *scales_low = block + 4, *codes = block + 8;
  for (int group = 0; group < 8; ++group) {
    const int low = (scales_low[group / 2] >> (4 * (group % 2))) & 15;
    const int high = static_cast<int>((scales_high >> (2 * group)) & 3);
    const float scale = d * static_cast<float>((low | high << 4) - 32);
    const uint8_t* q = codes + 16 * group;
    for (int i = 0; i < 16; ++i) {
      y[32 * group + i] = scale * static_cast<float>(kIq4Levels[q[i] & 15]);
      y[32 * group + 16 + i] = scale * static_cast<float>(kIq4Levels[q[i] >> 4]);
    }
  }
}

}  // namespace kpd::quant
