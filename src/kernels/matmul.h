// kernels: products of small float matrices, the work of attention. Private.
//
// A result c[r][j] is the same, bit for bit, for any number of rows: a chain of fused multiply-adds over k in increasing order.
// (On targets without fused multiply-add each step rounds twice; results differ between instruction sets.)
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dispatch.h"

namespace kpd::kernels {

// c[r][j] = (accumulate ? c[r][j] : 0) + sum over k of a[r * lda + k] b[k * ldb + j], r < n_rows, j < n, k < depth. c overlaps
// neither.
struct MatmulShape {
  size_t n_rows, depth, n;
  size_t lda, ldb, ldc;
  bool accumulate = false;
};
KPD_KERNEL(matmul, void(const float* a, const float* b, float* c, const MatmulShape& shape));

// The same, bit for bit, with b of 16-bit floats, widened as they are read: for few rows. next, if not null, is the b, as large
// and laid out alike, of a later call; it is asked for meanwhile.
KPD_KERNEL(matmul_fp16, void(const float* a, const uint16_t* b, float* c, const MatmulShape& shape, const uint16_t* next));
KPD_KERNEL(matmul_bf16, void(const float* a, const uint16_t* b, float* c, const MatmulShape& shape, const uint16_t* next));

}  // namespace kpd::kernels
