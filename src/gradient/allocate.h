// gradient: rate allocation over blocks (kFlagAllocate, spec allocate=energy). Private.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kpd/gradient/codec.h"

namespace kpd::gradient {

// Minimises sum_k energies[k] v(b_k) with sum_k lengths[k] b_k <= mean rate * sum lengths, b_k on the grid kRateUnit..8 bits, v
// the codec's own error limit: a Lagrange multiplier on the lower convex hull of v, found by bisection, then the left-over
// budget block by block. Blocks without energy get the lowest rate. Deterministic. rates[k] is in units of kRateUnit.
void allocate_rates(std::span<const double> energies, std::span<const uint32_t> lengths, const WireParams& params,
                    std::vector<uint8_t>& rates);

}  // namespace kpd::gradient
