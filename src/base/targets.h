// base: which Highway targets and variants kpd is built for, and how a kernel lists its forms. Included before <hwy/...> by
// every kernel and by base/cpu.cc, so that both agree.
//
// One target a register width is enough: SSE4, AVX2, AVX-512 on x86 (below SSE4 the scalar reference runs); NEON on ARM, also
// where SVE is present (kernels keep vectors in arrays, which sizeless SVE types do not allow, and 128 bits already fill such
// cores' pipes in our loops).
#pragma once

// Builds for sanitizers and fuzzers look for faults of memory, of which a vector width has the same in each target; they keep
// one besides the scalar reference and compile in half the time.
#ifndef HWY_DISABLED_TARGETS
#define KPD_UNUSED_TARGETS (HWY_SSSE3 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#ifdef KPD_FEWER_TARGETS
#define HWY_DISABLED_TARGETS (KPD_UNUSED_TARGETS | HWY_SSE4 | HWY_AVX3)
#else
#define HWY_DISABLED_TARGETS KPD_UNUSED_TARGETS
#endif
#endif

#include <hwy/detect_targets.h>  // after HWY_DISABLED_TARGETS

// True in the per-target region of a target without vectors: nothing is compiled there, the scalar reference runs.
#define KPD_TARGET_IS_SCALAR (HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128)

// ---- A kernel's forms, best first; each list ends in a comma or is empty ----
#if HWY_TARGETS & HWY_AVX3
#define KPD_FORM_AVX3(features, function) {::kpd::IsaTarget::kAvx3, features, &N_AVX3::function},
#else
#define KPD_FORM_AVX3(features, function)
#endif
#if HWY_TARGETS & HWY_AVX2
#define KPD_FORM_AVX2(features, function) {::kpd::IsaTarget::kAvx2, features, &N_AVX2::function},
#else
#define KPD_FORM_AVX2(features, function)
#endif
#if HWY_TARGETS & HWY_SSE4
#define KPD_FORM_SSE4(features, function) {::kpd::IsaTarget::kSse4, features, &N_SSE4::function},
#else
#define KPD_FORM_SSE4(features, function)
#endif
#if HWY_TARGETS & HWY_NEON
#define KPD_FORM_NEON(features, function) {::kpd::IsaTarget::kNeon, features, &N_NEON::function},
#else
#define KPD_FORM_NEON(features, function)
#endif
#define KPD_FORMS(function) \
  KPD_FORM_AVX3(0, function) KPD_FORM_AVX2(0, function) KPD_FORM_SSE4(0, function) KPD_FORM_NEON(0, function)

// The variants of base/foreach_variant-inl.h. Builds of one target have none: they run no other instructions' faults.
#ifdef KPD_FEWER_TARGETS
#define KPD_VARIANTS_BUILT 0
#define KPD_FORMS_VNNI(name)
#define KPD_FORMS_VNNI_VBMI_GFNI(name)
#else
#define KPD_VARIANTS_BUILT 1
#define KPD_FORMS_VNNI(name) KPD_FORM_AVX3(::kpd::kVnni, vnni::name) KPD_FORM_AVX2(::kpd::kVnni, vnni::name)
#define KPD_FORMS_VNNI_VBMI_GFNI(name) KPD_FORM_AVX3(::kpd::kVnni | ::kpd::kVbmi | ::kpd::kGfni, vnni_vbmi_gfni::name)
#endif

// Defines what KPD_KERNEL(name, ...) declared, from HWY_NAMESPACE::name of every target. Under HWY_ONCE.
#define KPD_DISPATCH(name) constinit const ::kpd::Kernel<decltype(scalar::name)> name(&scalar::name, {KPD_FORMS(name)})
// The same with variants, `forms` of them in order (KPD_FORMS_VNNI(name)), of a file that went through foreach_variant-inl.h.
#define KPD_DISPATCH_VARIANTS(name, forms) \
  constinit const ::kpd::Kernel<decltype(scalar::name)> name(&scalar::name, {forms KPD_FORMS(plain::name)})
