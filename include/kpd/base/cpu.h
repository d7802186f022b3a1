// base: which instruction set the kernels use.
//
// Chosen once, on first use: the best the machine has, or what the environment variable KPD_ISA names (the only variable the
// core reads). A name is a width of vectors (sse4, avx2, avx3 for AVX-512, neon), with what else of the processor may be used
// behind it: avx3+vnni, avx3+vnni+vbmi+gfni, avx2+vnni. "scalar" is the readable reference. A name that is unknown or that this
// machine lacks is Error(kUnsupported) listing the valid ones.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kpd {

// Names available on this machine, best first, ending in "scalar".
std::vector<std::string> available_isas();
// Those that this build has code for, of which the machine may lack some.
std::vector<std::string> built_isas();
// The one in use, e.g. "avx2" or "avx3+vnni".
std::string active_isa();
// Forces one (tests, --isa); throws as described above. Not thread-safe against running kernels.
void set_isa(const std::string& name);

}  // namespace kpd
