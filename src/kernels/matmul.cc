// kernels: matrix products with Highway (matmul.h). Blocks of six rows by one or two vectors, or three by four, stay in
// registers; 16-bit values are widened on their way there.
#include "base/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/matmul.cc"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "kernels/matmul.h"
#include "kernels/widen_f16-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kpd::kernels {
namespace HWY_NAMESPACE {

#if !KPD_TARGET_IS_SCALAR

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::CappedTag<float, 16>;
using V = hn::Vec<D>;
inline constexpr size_t kLanes = hn::MaxLanes(D());
inline constexpr size_t kLineBytes = 64;

// What b is made of: `load` gives a vector from element i on, `load_some` n elements, fewer than a vector, and zeros. next: see
// matmul.h.
struct Floats {
  const float* b;
  HWY_INLINE V load(size_t i) const { return hn::LoadU(D(), b + i); }
  V load_some(size_t i, size_t n) const {
    HWY_ALIGN float lanes[kLanes] = {};
    for (size_t j = 0; j < n; ++j) lanes[j] = b[i + j];
    return hn::Load(D(), lanes);
  }
  HWY_INLINE void prefetch(size_t, size_t) const {}
  Floats from(size_t i) const { return {b + i}; }
  Floats without_prefetch() const { return *this; }
};

template <bool kBf16>
struct Halves {
  const uint16_t *b, *next;
  HWY_INLINE V load(size_t i) const {
    if constexpr (kBf16) return widen_bf16(D(), b + i);
    return widen_f16(D(), b + i);
  }
  V load_some(size_t i, size_t n) const {
    HWY_ALIGN uint16_t lanes[kLanes] = {};
    for (size_t j = 0; j < n; ++j) lanes[j] = b[i + j];
    return Halves{lanes, nullptr}.load(0);
  }
  HWY_INLINE void prefetch(size_t i, size_t n) const {
    if (next == nullptr) return;
    const auto* const at = reinterpret_cast<const uint8_t*>(next + i);
    for (size_t byte = 0; byte < 2 * n; byte += kLineBytes) __builtin_prefetch(at + byte);
  }
  Halves from(size_t i) const { return {b + i, next == nullptr ? nullptr : next + i}; }
  Halves without_prefetch() const { return {b, nullptr}; }
};

// kRows rows by kVectors vectors from column j on.
template <size_t kRows, size_t kVectors, class B>
HWY_INLINE void Block(const float* HWY_RESTRICT a, const B& b, float* HWY_RESTRICT c, const MatmulShape& s) {
  const D d;
  V sums[kRows][kVectors];
  for (size_t r = 0; r < kRows; ++r) {
    for (size_t v = 0; v < kVectors; ++v) {
      sums[r][v] = s.accumulate ? hn::LoadU(d, c + r * s.ldc + v * kLanes) : hn::Zero(d);
    }
  }
  for (size_t k = 0; k < s.depth; ++k) {
    V columns[kVectors];
    for (size_t v = 0; v < kVectors; ++v) columns[v] = b.load(k * s.ldb + v * kLanes);
    b.prefetch(k * s.ldb, kVectors * kLanes);
    for (size_t r = 0; r < kRows; ++r) {
      const V x = hn::Set(d, a[r * s.lda + k]);
      for (size_t v = 0; v < kVectors; ++v) sums[r][v] = hn::MulAdd(x, columns[v], sums[r][v]);
    }
  }
  for (size_t r = 0; r < kRows; ++r) {
    for (size_t v = 0; v < kVectors; ++v) hn::StoreU(sums[r][v], d, c + r * s.ldc + v * kLanes);
  }
}

template <size_t kVectors, class B>
void Columns(const float* a, const B& b, float* c, const MatmulShape& s) {
  constexpr size_t kRows = kVectors > 2 ? 3 : 6;
  const auto b_for = [&b](size_t r) { return r == 0 ? b : b.without_prefetch(); };  // once is enough
  size_t r = 0;
  for (; r + kRows <= s.n_rows; r += kRows) Block<kRows, kVectors>(a + r * s.lda, b_for(r), c + r * s.ldc, s);
  if (r + 3 <= s.n_rows) {
    Block<3, kVectors>(a + r * s.lda, b_for(r), c + r * s.ldc, s);
    r += 3;
  }
  for (; r < s.n_rows; ++r) Block<1, kVectors>(a + r * s.lda, b_for(r), c + r * s.ldc, s);
}

// The last columns, fewer than a vector: one vector through a buffer.
template <class B>
void Rest(const float* a, const B& b, float* c, const MatmulShape& s, size_t n) {
  const D d;
  for (size_t r = 0; r < s.n_rows; ++r) {
    HWY_ALIGN float lanes[kLanes] = {};
    for (size_t j = 0; s.accumulate && j < n; ++j) lanes[j] = c[r * s.ldc + j];
    V sum = hn::Load(d, lanes);
    for (size_t k = 0; k < s.depth; ++k) sum = hn::MulAdd(hn::Set(d, a[r * s.lda + k]), b.load_some(k * s.ldb, n), sum);
    hn::Store(sum, d, lanes);
    for (size_t j = 0; j < n; ++j) c[r * s.ldc + j] = lanes[j];
  }
}

template <class B>
void Product(const float* a, const B& b, float* c, const MatmulShape& s) {
  size_t j = 0;
  for (; j + 4 * kLanes <= s.n && s.n_rows < 6; j += 4 * kLanes) Columns<4>(a, b.from(j), c + j, s);
  for (; j + 2 * kLanes <= s.n; j += 2 * kLanes) Columns<2>(a, b.from(j), c + j, s);
  for (; j + kLanes <= s.n; j += kLanes) Columns<1>(a, b.from(j), c + j, s);
  if (j < s.n) Rest(a, b.from(j), c + j, s, s.n - j);
}

void matmul(const float* a, const float* b, float* c, const MatmulShape& s) { Product(a, Floats{b}, c, s); }
void matmul_fp16(const float* a, const uint16_t* b, float* c, const MatmulShape& s, const uint16_t* next) {
  Product(a, Halves<false>{b, next}, c, s);
}
void matmul_bf16(const float* a, const uint16_t* b, float* c, const MatmulShape& s, const uint16_t* next) {
  Product(a, Halves<true>{b, next}, c, s);
}

#endif  // !KPD_TARGET_IS_SCALAR
}  // namespace HWY_NAMESPACE
}  // namespace kpd::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kpd::kernels {
KPD_DISPATCH(matmul);
KPD_DISPATCH(matmul_fp16);
KPD_DISPATCH(matmul_bf16);
}  // namespace kpd::kernels
#endif
