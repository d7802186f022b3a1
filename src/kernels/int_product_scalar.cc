// kernels: the plain reference of int_product.h.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/int_product.h"
#include "kpd/base/dtype.h"

namespace kpd::kernels::scalar {
namespace {

float load_f16(const uint8_t* p) {
  uint16_t bits;
  std::memcpy(&bits, p, 2);
  return fp16_to_float(bits);
}

// Layouts with a scale (and a minimum) per 16 columns.
bool has_halves(IntLayout layout) {
  return layout == IntLayout::kQ2K || layout == IntLayout::kQ3K || layout == IntLayout::kQ6K;
}

// One block of one output: integer weights, their scale and minimum (has_halves: of columns 0-15 and of 16-31).
struct Block {
  int8_t weights[kBlockCols];
  float d[2] = {};
  float m[2] = {};
};

// The weight of column i without its scale.
int8_t weight(IntLayout layout, const uint8_t* codes, size_t output, size_t i) {
  const size_t byte = 4 * output + i % 4, group = i / 4;
  if (layout == IntLayout::kQ8) return static_cast<int8_t>(codes[group * 64 + byte]);
  const auto two_bits = [&](size_t first) { return (codes[first + group / 4 * 64 + byte] >> (group % 4 * 2)) & 3; };
  if (layout == IntLayout::kQ2K) return static_cast<int8_t>(two_bits(0));
  if (layout == IntLayout::kQ3K) return static_cast<int8_t>((two_bits(0) | ((codes[128 + byte] >> group) & 1) << 2) - 4);
  const int nibble = (codes[group / 2 * 64 + byte] >> (group % 2 * 4)) & 15;
  const auto fifth_bit = [&] { return (codes[256 + byte] >> group) & 1; };
  switch (layout) {
    case IntLayout::kQ4:
      return static_cast<int8_t>(nibble - 8);
    case IntLayout::kQ4Table:
    case IntLayout::kQ4TableK:
      return kQ4Levels[nibble];
    case IntLayout::kQ5:
      return static_cast<int8_t>((nibble | fifth_bit() << 4) - 16);
    case IntLayout::kQ5Min:
    case IntLayout::kQ5K:
      return static_cast<int8_t>(nibble | fifth_bit() << 4);
    case IntLayout::kQ6K:
      return static_cast<int8_t>((nibble | two_bits(256) << 4) - 32);
    default:
      return static_cast<int8_t>(nibble);
  }
}

// All products of scales are exact: 11 bits of a half times 8.
Block read_block(IntLayout layout, const uint8_t* header, const uint8_t* block, size_t output) {
  Block out;
  size_t codes = 32;
  switch (layout) {
    case IntLayout::kQ4K:
    case IntLayout::kQ5K:
      out.d[0] = load_f16(header + 2 * output) * static_cast<float>(block[output]);
      out.m[0] = -(load_f16(header + 32 + 2 * output) * static_cast<float>(block[16 + output]));
      break;
    case IntLayout::kQ4TableK:
      out.d[0] = load_f16(header + 2 * output) * static_cast<float>(static_cast<int8_t>(block[output]));
      codes = 16;
      break;
    case IntLayout::kQ2K:
      for (size_t h = 0; h < 2; ++h) {
        out.d[h] = load_f16(header + 2 * output) * static_cast<float>(block[16 * h + output] & 15);
        out.m[h] = -(load_f16(header + 32 + 2 * output) * static_cast<float>(block[16 * h + output] >> 4));
      }
      break;
    case IntLayout::kQ3K:
    case IntLayout::kQ6K:
      for (size_t h = 0; h < 2; ++h) {
        out.d[h] = load_f16(header + 2 * output) * static_cast<float>(static_cast<int8_t>(block[16 * h + output]));
      }
      break;
    case IntLayout::kQ4Min:
    case IntLayout::kQ5Min:
      out.m[0] = load_f16(block + 32 + 2 * output);
      codes = 64;
      [[fallthrough]];
    default:
      out.d[0] = load_f16(block + 2 * output);
  }
  for (size_t i = 0; i < kBlockCols; ++i) out.weights[i] = weight(layout, block + codes, output, i);
  return out;
}

int dot(const int8_t* weights, const int8_t* x, size_t n) {
  int sum = 0;
  for (size_t i = 0; i < n; ++i) sum += weights[i] * x[i];
  return sum;
}

// What block b of row r adds to an output.
float block_term(IntLayout layout, const Block& block, const Int8Rows& x, size_t r, size_t b) {
  const int8_t* codes = x.codes + r * x.n_cols + b * kBlockCols;
  const size_t index = r * (x.n_cols / kBlockCols) + b;
  const float dx = x.scales[index];
  if (has_halves(layout)) {
    const float low = static_cast<float>(dot(block.weights, codes, 16)) * (block.d[0] * dx);
    const float both = low + static_cast<float>(dot(block.weights + 16, codes + 16, 16)) * (block.d[1] * dx);
    if (layout != IntLayout::kQ2K) return both;
    const float min = block.m[0] * (dx * static_cast<float>(x.sums[2 * index]));
    return both + (min + block.m[1] * (dx * static_cast<float>(x.sums[2 * index + 1])));
  }
  const float term = static_cast<float>(dot(block.weights, codes, kBlockCols)) * (block.d[0] * dx);
  const bool has_min =
      layout == IntLayout::kQ4Min || layout == IntLayout::kQ4K || layout == IntLayout::kQ5Min || layout == IntLayout::kQ5K;
  return has_min ? term + block.m[0] * x.scaled_sums[index] : term;
}

}  // namespace

void quantize_rows(const float* x, size_t x_stride, size_t row_begin, size_t row_end, Int8Buffer& dst) {
  const size_t n_blocks = dst.n_cols / kBlockCols;
  for (size_t r = row_begin; r < row_end; ++r) {
    for (size_t b = 0; b < n_blocks; ++b) {
      const float* src = x + r * x_stride + b * kBlockCols;
      uint32_t max_bits = 0;  // of |x|: integers order like floats, with what is not finite on top
      for (size_t i = 0; i < kBlockCols; ++i) max_bits = std::max(max_bits, std::bit_cast<uint32_t>(src[i]) & 0x7fffffffu);
      const float max = std::bit_cast<float>(max_bits);
      const bool finite = max_bits < 0x7f800000u, zero = max < kMinInt8Max;
      const float scale = !finite ? std::numeric_limits<float>::quiet_NaN() : zero ? 0.0f : max / 127.0f;
      const float inverse = 127.0f / max;
      int8_t* codes = dst.codes.data() + r * dst.n_cols + b * kBlockCols;
      int sums[2] = {};
      for (size_t i = 0; i < kBlockCols; ++i) {
        codes[i] = finite && !zero ? static_cast<int8_t>(std::nearbyint(src[i] * inverse)) : int8_t{0};
        sums[i / 16] += codes[i];
      }
      dst.scales[r * n_blocks + b] = scale;
      for (size_t h = 0; h < 2; ++h) dst.sums[(r * n_blocks + b) * 2 + h] = static_cast<int16_t>(sums[h]);
      dst.scaled_sums[r * n_blocks + b] = scale * static_cast<float>(sums[0] + sums[1]);
    }
  }
}

void int_product(const IntMatrix& w, const Int8Rows& x, size_t tile_begin, size_t tile_end, float* out, size_t out_stride) {
  const IntLayoutInfo info = int_layout_info(w.layout);
  const size_t stride = tile_bytes(w.layout, w.n_in), n_blocks = w.n_in / kBlockCols;
  for (size_t r = 0; r < x.n_rows; ++r) {
    for (size_t o = tile_begin * kTileOutputs; o < std::min(tile_end * kTileOutputs, w.n_out); ++o) {
      const uint8_t* block = w.bytes + o / kTileOutputs * stride;
      const uint8_t* header = block;
      float acc = 0;
      for (size_t b = 0; b < n_blocks; ++b, block += info.block_bytes) {
        if (b % info.super_blocks == 0) {
          header = block;
          block += info.header_bytes;
        }
        acc += block_term(w.layout, read_block(w.layout, header, block, o % kTileOutputs), x, r, b);
      }
      out[r * out_stride + o] = acc;
    }
  }
}

}  // namespace kpd::kernels::scalar
