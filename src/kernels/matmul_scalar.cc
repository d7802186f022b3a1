// kernels: the plain reference of matmul.h.
#include "kernels/matmul.h"

namespace kpd::kernels::scalar {

void matmul(const float* a, const float* b, float* c, const MatmulShape& shape) {
  for (size_t r = 0; r < shape.n_rows; ++r) {
    float* row = c + r * shape.ldc;
    if (!shape.accumulate) {
      for (size_t j = 0; j < shape.n; ++j) row[j] = 0;
    }
    for (size_t k = 0; k < shape.depth; ++k) {
      const float x = a[r * shape.lda + k];
      const float* from = b + k * shape.ldb;
      for (size_t j = 0; j < shape.n; ++j) row[j] += x * from[j];
    }
  }
}

}  // namespace kpd::kernels::scalar
