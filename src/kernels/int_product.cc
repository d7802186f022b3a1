// kernels: integer weight products with Highway: the variants of int_product-inl.h.
#include "base/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/int_product.cc"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>

#include "kernels/int_product.h"
#include "kernels/widen_f16-inl.h"

#define KPD_VARIANT_INCLUDE "kernels/int_product-inl.h"
#define KPD_VARIANTS KPD_VARIANT_VNNI
#include "base/foreach_variant-inl.h"

#if HWY_ONCE
namespace kpd::kernels {
KPD_DISPATCH_VARIANTS(int_product, KPD_FORMS_VNNI(int_product));
}  // namespace kpd::kernels
#endif
