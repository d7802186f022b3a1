// kernels: matrix products with Highway (matmul.h). Blocks of four rows by two or four vectors stay in registers.
#include "base/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/matmul.cc"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "kernels/matmul.h"
#include "kpd/base/cpu.h"

HWY_BEFORE_NAMESPACE();
namespace kpd::kernels {
namespace HWY_NAMESPACE {

#if KPD_TARGET_IS_SCALAR
void Matmul(const float* a, const float* b, float* c, const MatmulShape& shape) { scalar::matmul(a, b, c, shape); }
#else

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::CappedTag<float, 16>;
using V = hn::Vec<D>;
inline constexpr size_t kLanes = hn::MaxLanes(D());

// kRows rows by kVectors vectors from column j on.
template <size_t kRows, size_t kVectors>
HWY_INLINE void Block(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b, float* HWY_RESTRICT c, const MatmulShape& s) {
  const D d;
  V sums[kRows][kVectors];
  for (size_t r = 0; r < kRows; ++r) {
    for (size_t v = 0; v < kVectors; ++v) {
      sums[r][v] = s.accumulate ? hn::LoadU(d, c + r * s.ldc + v * kLanes) : hn::Zero(d);
    }
  }
  for (size_t k = 0; k < s.depth; ++k) {
    V columns[kVectors];
    for (size_t v = 0; v < kVectors; ++v) columns[v] = hn::LoadU(d, b + k * s.ldb + v * kLanes);
    for (size_t r = 0; r < kRows; ++r) {
      const V x = hn::Set(d, a[r * s.lda + k]);
      for (size_t v = 0; v < kVectors; ++v) sums[r][v] = hn::MulAdd(x, columns[v], sums[r][v]);
    }
  }
  for (size_t r = 0; r < kRows; ++r) {
    for (size_t v = 0; v < kVectors; ++v) hn::StoreU(sums[r][v], d, c + r * s.ldc + v * kLanes);
  }
}

template <size_t kVectors>
void Columns(const float* a, const float* b, float* c, const MatmulShape& s) {
  constexpr size_t kRows = kVectors > 2 ? 3 : 6;
  size_t r = 0;
  for (; r + kRows <= s.n_rows; r += kRows) Block<kRows, kVectors>(a + r * s.lda, b, c + r * s.ldc, s);
  if (r + 3 <= s.n_rows) {
    Block<3, kVectors>(a + r * s.lda, b, c + r * s.ldc, s);
    r += 3;
  }
  for (; r < s.n_rows; ++r) Block<1, kVectors>(a + r * s.lda, b, c + r * s.ldc, s);
}

// The last columns, fewer than a vector: one vector through a buffer.
void Rest(const float* a, const float* b, float* c, const MatmulShape& s, size_t n) {
  const D d;
  for (size_t r = 0; r < s.n_rows; ++r) {
    HWY_ALIGN float lanes[kLanes] = {};
    for (size_t j = 0; s.accumulate && j < n; ++j) lanes[j] = c[r * s.ldc + j];
    V sum = hn::Load(d, lanes);
    for (size_t k = 0; k < s.depth; ++k) {
      HWY_ALIGN float column[kLanes] = {};
      for (size_t j = 0; j < n; ++j) column[j] = b[k * s.ldb + j];
      sum = hn::MulAdd(hn::Set(d, a[r * s.lda + k]), hn::Load(d, column), sum);
    }
    hn::Store(sum, d, lanes);
    for (size_t j = 0; j < n; ++j) c[r * s.ldc + j] = lanes[j];
  }
}

void Matmul(const float* a, const float* b, float* c, const MatmulShape& s) {
  size_t j = 0;
  for (; j + 4 * kLanes <= s.n && s.n_rows < 6; j += 4 * kLanes) Columns<4>(a, b + j, c + j, s);
  for (; j + 2 * kLanes <= s.n; j += 2 * kLanes) Columns<2>(a, b + j, c + j, s);
  for (; j + kLanes <= s.n; j += kLanes) Columns<1>(a, b + j, c + j, s);
  if (j < s.n) Rest(a, b + j, c + j, s, s.n - j);
}

#endif  // KPD_TARGET_IS_SCALAR
}  // namespace HWY_NAMESPACE
}  // namespace kpd::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kpd::kernels {
HWY_EXPORT(Matmul);

void matmul(const float* a, const float* b, float* c, const MatmulShape& shape) {
  if (use_scalar_kernels()) return scalar::matmul(a, b, c, shape);
  HWY_DYNAMIC_DISPATCH(Matmul)(a, b, c, shape);
}

}  // namespace kpd::kernels
#endif
