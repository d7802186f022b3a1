// base: includes the file KPD_VARIANT_INCLUDE once for the target at hand as it is, and once for each of its variants that
// KPD_VARIANTS names, with the compiler told that their instructions are there. A kernel's source includes this in every pass
// of Highway's foreach_target.h; it has no include guard, nor has the file that it includes.
//
// That file lies between KPD_BEFORE_VARIANT(); and KPD_AFTER_VARIANT(); instead of HWY_BEFORE_NAMESPACE and
// HWY_AFTER_NAMESPACE, has the namespace KPD_VARIANT inside HWY_NAMESPACE, and asks KPD_HAS_VNNI, KPD_HAS_VBMI, KPD_HAS_GFNI (0
// or 1).
#include "base/targets.h"

// Where the compiler's own flags are the target (AArch64), there is nothing to tell it.
#undef KPD_BEFORE_VARIANT
#undef KPD_AFTER_VARIANT
#ifdef HWY_TARGET_STR
#define KPD_BEFORE_VARIANT() HWY_PUSH_ATTRIBUTES(HWY_TARGET_STR KPD_VARIANT_STR) static_assert(true, "a semicolon follows")
#define KPD_AFTER_VARIANT() HWY_POP_ATTRIBUTES static_assert(true, "a semicolon follows")
#else
#define KPD_BEFORE_VARIANT() static_assert(true, "a semicolon follows")
#define KPD_AFTER_VARIANT() static_assert(true, "a semicolon follows")
#endif

#ifndef KPD_VARIANT_VNNI
#define KPD_VARIANT_VNNI 1
#define KPD_VARIANT_VNNI_VBMI_GFNI 2
#endif

#if !KPD_TARGET_IS_SCALAR

#define KPD_VARIANT plain
#define KPD_VARIANT_STR ""
#define KPD_HAS_VNNI 0
#define KPD_HAS_VBMI 0
#define KPD_HAS_GFNI 0
#include "base/one_variant-inl.h"

#if KPD_VARIANTS_BUILT && (HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3) && (KPD_VARIANTS & KPD_VARIANT_VNNI)
#define KPD_VARIANT vnni
#if HWY_TARGET == HWY_AVX2
#define KPD_VARIANT_STR ",avxvnni"
#else
#define KPD_VARIANT_STR ",avx512vnni"
#endif
#define KPD_HAS_VNNI 1
#define KPD_HAS_VBMI 0
#define KPD_HAS_GFNI 0
#include "base/one_variant-inl.h"
#endif

#if KPD_VARIANTS_BUILT && HWY_TARGET == HWY_AVX3 && (KPD_VARIANTS & KPD_VARIANT_VNNI_VBMI_GFNI)
#define KPD_VARIANT vnni_vbmi_gfni
#define KPD_VARIANT_STR ",avx512vnni,avx512vbmi,gfni"
#define KPD_HAS_VNNI 1
#define KPD_HAS_VBMI 1
#define KPD_HAS_GFNI 1
#include "base/one_variant-inl.h"
#endif

#endif  // !KPD_TARGET_IS_SCALAR
