// base: which instruction set the kernels use.
//
// Chosen once, on first use: the best the machine has, or what the environment variable KPD_ISA names (the only variable the
// core reads). "scalar" is the readable reference. A name that is unknown or that this machine lacks is Error(kUnsupported)
// listing the valid ones.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kpd {

// Names available on this machine, best first, ending in "scalar".
std::vector<std::string> available_isas();
// The one in use, e.g. "avx2".
std::string active_isa();
// Forces one (tests, --isa); throws as described above. Not thread-safe against running kernels.
void set_isa(const std::string& name);
bool use_scalar_kernels();

}  // namespace kpd
