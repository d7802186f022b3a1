// kernels: y[r][o] = sum over i of W[o][i] x[r][i] in float, with weights in float32, float16 or bfloat16. Private.
//
// Weights are packed into tiles of 16 outputs, column after column: a tile is [n_in][16] elements. Each (row, output) is one
// chain acc = w x + acc over ascending columns, fused where the instruction set has it. So a result is bitwise the same for any
// number of rows and any split into tiles or threads; instruction sets with and without fused multiply-add differ by rounding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/dispatch.h"
#include "kpd/base/block_type.h"
#include "kpd/base/dtype.h"

namespace kpd::kernels {

inline constexpr size_t kFloatTileOutputs = 16;

// A packed matrix, not owned.
struct FloatMatrix {
  DType dtype = DType::kFloat32;
  const uint8_t* bytes = nullptr;  // float_packed_bytes(dtype, n_out, n_in); aligned to its element
  size_t n_out = 0, n_in = 0;

  size_t n_tiles() const { return (n_out + kFloatTileOutputs - 1) / kFloatTileOutputs; }
};

size_t float_packed_bytes(DType dtype, size_t n_out, size_t n_in);

// Packs tiles [tile_begin, tile_end) of the row-major [n_out, n_in] matrix src into dst, the whole packed matrix. Outputs past
// n_out are zero. Threads may pack different tiles. Throws Error(kInvalidArgument) where the sizes do not fit.
void pack_float_tiles(DType dtype, std::span<const uint8_t> src, size_t n_out, size_t n_in, size_t tile_begin, size_t tile_end,
                      std::span<uint8_t> dst);

// One float32 tile [n_in][16] from `outputs` <= 16 rows of n_in floats, row_stride apart; the other outputs become zero. For
// weights that are dequantized tile by tile.
KPD_KERNEL(pack_float_tile, void(const float* rows, size_t row_stride, size_t outputs, size_t n_in, float* tile));

// out[r * out_stride + o] for n_rows rows x[r * x_stride + i] and every output o < n_out of tiles [tile_begin, tile_end).
// Threads split the tiles. `out` does not overlap the inputs.
KPD_KERNEL(float_product, void(const FloatMatrix& w, const float* x, size_t x_stride, size_t n_rows, size_t tile_begin,
                               size_t tile_end, float* out, size_t out_stride));

}  // namespace kpd::kernels
