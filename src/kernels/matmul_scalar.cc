// kernels: the plain reference of matmul.h.
#include "kernels/matmul.h"

#include "kpd/base/dtype.h"

namespace kpd::kernels::scalar {
namespace {

// load(i) is b's element i.
template <class Load>
void product(const float* a, const Load& load, float* c, const MatmulShape& shape) {
  for (size_t r = 0; r < shape.n_rows; ++r) {
    float* row = c + r * shape.ldc;
    if (!shape.accumulate) {
      for (size_t j = 0; j < shape.n; ++j) row[j] = 0;
    }
    for (size_t k = 0; k < shape.depth; ++k) {
      const float x = a[r * shape.lda + k];
      for (size_t j = 0; j < shape.n; ++j) row[j] += x * load(k * shape.ldb + j);
    }
  }
}

}  // namespace

void matmul(const float* a, const float* b, float* c, const MatmulShape& shape) {
  product(
      a, [b](size_t i) { return b[i]; }, c, shape);
}
void matmul_fp16(const float* a, const uint16_t* b, float* c, const MatmulShape& shape, const uint16_t* /*next*/) {
  product(
      a, [b](size_t i) { return fp16_to_float(b[i]); }, c, shape);
}
void matmul_bf16(const float* a, const uint16_t* b, float* c, const MatmulShape& shape, const uint16_t* /*next*/) {
  product(
      a, [b](size_t i) { return bf16_to_float(b[i]); }, c, shape);
}

}  // namespace kpd::kernels::scalar
