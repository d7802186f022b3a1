// gradient: rate allocation over blocks; reverse water-filling with the codec's measured curve instead of 4^-b (research: EDEN
// section 7 A).
#include "gradient/allocate.h"

#include <algorithm>
#include <array>

#include "gradient/eden.h"

namespace kpd::gradient {
namespace {

// The corner points of the lower convex hull of v(rate): units ascending, slope of each step (error saved per unit).
struct Hull {
  std::array<uint8_t, kAllocationRates> units;
  std::array<double, kAllocationRates> error;
  int n = 0;
};

Hull convex_hull(WireParams params) {
  Hull h;
  params.flags &= static_cast<uint8_t>(~kFlagAllocate);
  for (int u = 1; u <= kAllocationRates; ++u) {
    params.rate = std::clamp(rate_of_units(static_cast<uint8_t>(u)), kMinRate, kMaxRate);
    const double v = eden_limit(params);
    // Drop corners above the chord to the new point.
    while (h.n >= 2) {
      const double before = (h.error[h.n - 2] - h.error[h.n - 1]) / (h.units[h.n - 1] - h.units[h.n - 2]);
      const double after = (h.error[h.n - 1] - v) / (u - h.units[h.n - 1]);
      if (after <= before) break;
      --h.n;
    }
    h.units[h.n] = static_cast<uint8_t>(u);
    h.error[h.n] = v;
    ++h.n;
  }
  return h;
}

// The corner a block of this energy per element takes when a unit of rate costs `price`.
int corner_for(const Hull& h, double energy_per_element, double price) {
  int lo = 0, hi = h.n - 1;  // the last step whose saving is worth its price
  while (lo < hi) {
    const int mid = (lo + hi + 1) / 2;
    const double saving = (h.error[mid - 1] - h.error[mid]) / (h.units[mid] - h.units[mid - 1]);
    if (saving * energy_per_element >= price) {
      lo = mid;
    } else {
      hi = mid - 1;
    }
  }
  return lo;
}

}  // namespace

void allocate_rates(std::span<const double> energies, std::span<const uint32_t> lengths, const WireParams& params,
                    std::vector<uint8_t>& rates) {
  const Hull h = convex_hull(params);
  uint64_t elements = 0;
  double most = 0;
  for (size_t k = 0; k < lengths.size(); ++k) {
    elements += lengths[k];
    most = std::max(most, energies[k] / lengths[k]);
  }
  // In units times elements. Every block pays at least one unit.
  const uint64_t budget = std::max(
      static_cast<uint64_t>((static_cast<double>(params.rate) * kRatesPerBit / kOneBit) * static_cast<double>(elements) + 0.5),
      elements);
  rates.assign(lengths.size(), 1);
  const auto fill = [&](double price) {
    uint64_t spent = 0;
    for (size_t k = 0; k < lengths.size(); ++k) {
      rates[k] = h.units[corner_for(h, energies[k] / lengths[k], price)];
      spent += uint64_t{rates[k]} * lengths[k];
    }
    return spent;
  };
  if (most == 0) return;
  double low = 0, high = most * h.error[0] * 2 + 1e-300;  // price: low spends too much or fits, high spends least
  if (fill(low) > budget) {
    for (int step = 0; step < 100; ++step) {
      const double mid = low + (high - low) / 2;
      (fill(mid) > budget ? low : high) = mid;
    }
    uint64_t spent = fill(high);
    // What is left goes, in order, to the blocks that would be next.
    for (size_t k = 0; k < lengths.size(); ++k) {
      const int next = corner_for(h, energies[k] / lengths[k], low);
      if (h.units[next] <= rates[k]) continue;
      const uint64_t extra = uint64_t{static_cast<uint64_t>(h.units[next] - rates[k])} * lengths[k];
      if (spent + extra > budget) continue;
      rates[k] = h.units[next];
      spent += extra;
    }
  }
}

}  // namespace kpd::gradient
