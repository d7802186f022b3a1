// cache: the plain formats: floats of 32 or 16 bits, in a layout that a small matrix product reads. Private.
#pragma once

#include "cache/format.h"
#include "kernels/matmul.h"
#include "kpd/base/dtype.h"

namespace kpd::cache {

// Nothing is ever sealed by it. In a block keys lie as [key_width][64], values as [64][value_width].
LayerFormats float_formats(DType dtype, const Layer& layer);

// The products of attention with a block whose keys lie as [width][64] floats, or whose values as [64][width].
inline kernels::MatmulShape scores_shape(size_t n_rows, size_t width) {
  return {.n_rows = n_rows, .depth = width, .n = kBlockTokens, .lda = width, .ldb = kBlockTokens, .ldc = kBlockTokens};
}
inline kernels::MatmulShape sums_shape(size_t n_rows, size_t width) {
  return {
      .n_rows = n_rows, .depth = kBlockTokens, .n = width, .lda = kBlockTokens, .ldb = width, .ldc = width, .accumulate = true};
}

// Beside a partner that seals: a sealed part is a copy of the open one.
std::unique_ptr<KeyFormat> float_keys(DType dtype, size_t width);
std::unique_ptr<ValueFormat> float_values(DType dtype, size_t width);

}  // namespace kpd::cache
