// kernels: the plain reference of float_product.h, and its packing.
#include <algorithm>
#include <cstring>

#include "kernels/float_product.h"
#include "kpd/base/error.h"

namespace kpd::kernels {

size_t float_packed_bytes(DType dtype, size_t n_out, size_t n_in) {
  return (n_out + kFloatTileOutputs - 1) / kFloatTileOutputs * kFloatTileOutputs * n_in * dtype_bytes(dtype);
}

void pack_float_tiles(DType dtype, std::span<const uint8_t> src, size_t n_out, size_t n_in, size_t tile_begin, size_t tile_end,
                      std::span<uint8_t> dst) {
  const size_t size = dtype_bytes(dtype), n_tiles = (n_out + kFloatTileOutputs - 1) / kFloatTileOutputs;
  if (src.size() != n_out * n_in * size || dst.size() != float_packed_bytes(dtype, n_out, n_in) || tile_begin > tile_end ||
      tile_end > n_tiles) {
    fail(ErrorCode::kInvalidArgument, "packing ", n_out, " x ", n_in, " ", dtype_name(dtype), " weights: ", src.size(), " and ",
         dst.size(), " bytes, expected ", n_out * n_in * size, " and ", float_packed_bytes(dtype, n_out, n_in));
  }
  for (size_t t = tile_begin; t < tile_end; ++t) {
    uint8_t* tile = dst.data() + t * kFloatTileOutputs * n_in * size;
    const size_t outputs = std::min(kFloatTileOutputs, n_out - t * kFloatTileOutputs);
    if (outputs < kFloatTileOutputs) std::memset(tile, 0, kFloatTileOutputs * n_in * size);
    for (size_t o = 0; o < outputs; ++o) {
      const uint8_t* row = src.data() + (t * kFloatTileOutputs + o) * n_in * size;
      for (size_t i = 0; i < n_in; ++i) std::memcpy(tile + (i * kFloatTileOutputs + o) * size, row + i * size, size);
    }
  }
}

namespace scalar {
namespace {

float load(DType dtype, const uint8_t* p) {
  if (dtype == DType::kFloat32) {
    float v;
    std::memcpy(&v, p, 4);
    return v;
  }
  uint16_t bits;
  std::memcpy(&bits, p, 2);
  return dtype == DType::kBFloat16 ? bf16_to_float(bits) : fp16_to_float(bits);
}

}  // namespace

void pack_float_tile(const float* rows, size_t row_stride, size_t outputs, size_t n_in, float* tile) {
  for (size_t i = 0; i < n_in; ++i) {
    for (size_t o = 0; o < kFloatTileOutputs; ++o) {
      tile[i * kFloatTileOutputs + o] = o < outputs ? rows[o * row_stride + i] : 0.0f;
    }
  }
}

void float_product(const FloatMatrix& w, const float* x, size_t x_stride, size_t n_rows, size_t tile_begin, size_t tile_end,
                   float* out, size_t out_stride) {
  const size_t size = dtype_bytes(w.dtype);
  for (size_t r = 0; r < n_rows; ++r) {
    for (size_t o = tile_begin * kFloatTileOutputs; o < std::min(tile_end * kFloatTileOutputs, w.n_out); ++o) {
      const uint8_t* column = w.bytes + (o / kFloatTileOutputs * w.n_in * kFloatTileOutputs + o % kFloatTileOutputs) * size;
      float acc = 0;
      for (size_t i = 0; i < w.n_in; ++i) acc += load(w.dtype, column + i * kFloatTileOutputs * size) * x[r * x_stride + i];
      out[r * out_stride + o] = acc;
    }
  }
}

}  // namespace scalar
}  // namespace kpd::kernels
