// kernels: y[r][o] = sum over i of W[o][i] x[r][i] with compressed weights and integer arithmetic. Private.
//
// Activations are 8-bit codes with a scale per 32 columns (Int8Rows). Weights are repacked at load from ggml's blocks into
// tiles of 16 outputs (never stored in files): the integer sum of a block is exact, then
//
//   acc[r][o] += float(isum) * (d * dx)                      a format with a scale d per 32 columns
//   acc[r][o] += float(isum) * (d * dx) + m * xs             and with a minimum: w = d q + m, xs = dx * sum of the row's codes
//   acc[r][o] += float(isum0) * (d0 * dx) + float(isum1) * (d1 * dx)     with a scale per 16 columns
//   acc[r][o] += ... + (m0 * (dx * s0) + m1 * (dx * s1))                 and a minimum; s0, s1: sums of the row's codes
//
// block after block, every operation rounded to float by itself (no fused multiply-add: once per 32 columns it costs nothing).
// So a row's result is bitwise the same for any number of rows, any split into tiles or threads, and any instruction set; the
// only error against the dequantized weights is that of the activations' codes and of these float operations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/dispatch.h"
#include "kpd/base/block_type.h"

namespace kpd::kernels {

inline constexpr size_t kTileOutputs = 16;
inline constexpr size_t kBlockCols = 32;
inline constexpr float kMinInt8Max = 1e-30f;  // below it a block of activations counts as zero: 127 / max must be finite

// Rows of 8-bit activation codes, not owned: x[r][i] is about scales[r][i / 32] * codes[r][i], |code| <= 127. Arrays are
// row-major without gaps; n_cols is a multiple of 32.
struct Int8Rows {
  const int8_t* codes = nullptr;       // [n_rows, n_cols]
  const float* scales = nullptr;       // [n_rows, n_cols / 32]
  const int16_t* sums = nullptr;       // [n_rows, n_cols / 16]: of 16 codes
  const float* scaled_sums = nullptr;  // [n_rows, n_cols / 32]: scale * float(sum of the block's 32 codes)
  size_t n_rows = 0, n_cols = 0;
};

// Owns what Int8Rows shows.
class Int8Buffer {
 public:
  // Contents are undefined afterwards. Memory is kept when it shrinks.
  void resize(size_t n_rows, size_t n_cols);
  Int8Rows rows() const { return {codes.data(), scales.data(), sums.data(), scaled_sums.data(), n_rows, n_cols}; }

  std::vector<int8_t> codes;
  std::vector<float> scales;
  std::vector<int16_t> sums;
  std::vector<float> scaled_sums;
  size_t n_rows = 0, n_cols = 0;
};

// Fills rows [row_begin, row_end) of dst from x[r * x_stride + i]. A block's scale is max|x| / 127 and a code is x * (127 /
// max|x|) rounded to nearest even. A block with max|x| < kMinInt8Max becomes zero. A block with a value that is not finite gets
// scale NaN and codes 0, so that its row's results are NaN. Equal bits on every instruction set. Threads may fill different
// rows.
KPD_KERNEL(quantize_rows, void(const float* x, size_t x_stride, size_t row_begin, size_t row_end, Int8Buffer& dst));

// How a packed tile of 16 outputs lies in memory: see int_product_pack.cc.
enum class IntLayout : uint8_t {
  kQ4,        // w = d (q - 8)             4.5 bits a weight: Q4_0
  kQ4Min,     // w = d q + m               5: Q4_1
  kQ4Table,   // w = d table[q]            4.5: IQ4_NL
  kQ4K,       // w = d sc q - dmin mc      4.625: Q4_K
  kQ4TableK,  // w = d sc table[q]        4.3125: IQ4_XS
  kQ5,        // w = d (q - 16)            5.5: Q5_0
  kQ5Min,     // w = d q + m               6: Q5_1
  kQ5K,       // w = d sc q - dmin mc      5.625: Q5_K
  kQ2K,       // w = d sc q - dmin mc      2.625: Q2_K
  kQ3K,       // w = d sc (q - 4)          3.5625: Q3_K
  kQ6K,       // w = d sc (q - 32)         6.5625: Q6_K
  kQ8,        // w = d q                   8.5: Q8_0
};

// Nothing for a type that only the float products serve.
std::optional<IntLayout> int_layout(BlockType type);

// A packed matrix, not owned.
struct IntMatrix {
  IntLayout layout = IntLayout::kQ4;
  const uint8_t* bytes = nullptr;  // packed_bytes(layout, n_out, n_in)
  size_t n_out = 0, n_in = 0;

  size_t n_tiles() const { return (n_out + kTileOutputs - 1) / kTileOutputs; }
};

// n_in is a multiple of 32; of 256 for the layouts that end in K.
size_t tile_bytes(IntLayout layout, size_t n_in);
size_t packed_bytes(IntLayout layout, size_t n_out, size_t n_in);

// Packs tiles [tile_begin, tile_end) of the [n_out, n_in] matrix of `type` at src (rows of whole blocks) into dst, the whole
// packed matrix. Outputs past n_out are zero weights. Threads may pack different tiles. Throws Error(kInvalidArgument) where
// sizes do not fit and Error(kUnsupported) for a type without a layout.
void pack_tiles(BlockType type, std::span<const uint8_t> src, size_t n_out, size_t n_in, size_t tile_begin, size_t tile_end,
                std::span<uint8_t> dst);

// out[r * out_stride + o] for every row r of x and every output o < n_out of tiles [tile_begin, tile_end). x.n_cols == w.n_in.
// Threads split the tiles. `out` does not overlap the inputs.
KPD_KERNEL(int_product,
           void(const IntMatrix& w, const Int8Rows& x, size_t tile_begin, size_t tile_end, float* out, size_t out_stride));

// Of a layout's blocks of 16 outputs x 32 columns. `super_blocks` of them follow a header that they share.
struct IntLayoutInfo {
  size_t super_blocks, header_bytes, block_bytes;
};

constexpr IntLayoutInfo int_layout_info(IntLayout layout) {
  switch (layout) {
    case IntLayout::kQ4Min:
      return {1, 0, 32 + 32 + 256};
    case IntLayout::kQ4K:
      return {8, 32 + 32, 16 + 16 + 256};
    case IntLayout::kQ4TableK:
      return {8, 32, 16 + 256};
    case IntLayout::kQ5:
      return {1, 0, 32 + 256 + 64};
    case IntLayout::kQ5Min:
      return {1, 0, 32 + 32 + 256 + 64};
    case IntLayout::kQ5K:
      return {8, 32 + 32, 16 + 16 + 256 + 64};
    case IntLayout::kQ2K:
      return {8, 32 + 32, 32 + 128};
    case IntLayout::kQ3K:
      return {8, 32, 32 + 128 + 64};
    case IntLayout::kQ6K:
      return {8, 32, 32 + 256 + 128};
    case IntLayout::kQ8:
      return {1, 0, 32 + 512};
    default:
      return {1, 0, 32 + 256};
  }
}

inline constexpr int8_t kQ4Levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

}  // namespace kpd::kernels
