// kernels: integer weight products with Highway: the choice of the target's kernels (int_product-inl.h).
#include "base/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/int_product.cc"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "kernels/int_product-inl.h"
#include "kpd/base/cpu.h"

HWY_BEFORE_NAMESPACE();
namespace kpd::kernels {
namespace HWY_NAMESPACE {

void IntProduct(const IntMatrix& w, const Int8Rows& x, size_t tile_begin, size_t tile_end, float* out, size_t out_stride) {
#if KPD_TARGET_IS_SCALAR
  scalar::int_product(w, x, tile_begin, tile_end, out, out_stride);
#else
#if HWY_ARCH_X86 && HWY_TARGET == HWY_AVX3
  // Equal results: only the speed differs.
  static const bool has_quads = __builtin_cpu_supports("avx512vnni");
  if (has_quads) return int_products::any_product<true>(w, x, tile_begin, tile_end, out, out_stride);
#endif
  int_products::any_product<false>(w, x, tile_begin, tile_end, out, out_stride);
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace kpd::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kpd::kernels {
HWY_EXPORT(IntProduct);

void int_product(const IntMatrix& w, const Int8Rows& x, size_t tile_begin, size_t tile_end, float* out, size_t out_stride) {
  if (use_scalar_kernels()) return scalar::int_product(w, x, tile_begin, tile_end, out, out_stride);
  HWY_DYNAMIC_DISPATCH(IntProduct)(w, x, tile_begin, tile_end, out, out_stride);
}
}  // namespace kpd::kernels
#endif
