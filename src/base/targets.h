// base: which Highway targets kpd is built for. Included before <hwy/...> by every kernel and by base/cpu.cc, so that both
// agree.
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

// True in the per-target region of a target without vectors: kernels forward to their scalar reference there.
#define KPD_TARGET_IS_SCALAR (HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128)
