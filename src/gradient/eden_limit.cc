// gradient: what error EDEN's codes have, in the limit of large dimension and for tensors of a given size (kpd/quant/sphere.h).
#include <algorithm>

#include "gradient/eden.h"
#include "kpd/quant/gaussian_step.h"
#include "kpd/quant/lloyd_max.h"
#include "kpd/quant/sphere.h"

namespace kpd::gradient {
namespace {

double limit_of_large_dimension(const WireParams& p) {
  double cos2 = 0;
  if ((p.flags & kFlagEntropy) != 0) {
    const auto step = quant::gaussian_step(p.param, (p.flags & kFlagDither) != 0);
    if (step->dither) return step->dither_vnmse();
    cos2 = step->cos2();
  } else {
    cos2 = quant::fixed_rate_expected_q2(p.bits());
  }
  switch (p.scale) {
    case ScaleKind::kBiased:
      return quant::biased_vnmse(cos2);
    case ScaleKind::kNorm:
      return quant::norm_vnmse(cos2);
    default:
      return quant::unbiased_vnmse(cos2);
  }
}

quant::SphereMoments lloyd_max_moments(int bits, uint32_t n) {
  const quant::LloydMax& q = quant::lloyd_max(bits);
  std::vector<double> edges{0.0};
  edges.insert(edges.end(), q.thresholds.begin(), q.thresholds.end());
  return quant::sphere_moments({edges, q.levels}, n);
}

double own_scale_error(ScaleKind kind, const quant::SphereMoments& m, uint32_t n) {
  switch (kind) {
    case ScaleKind::kBiased:
      return quant::sphere_biased_vnmse(m, n);
    case ScaleKind::kNorm:
      return quant::sphere_norm_vnmse(m, n);
    default:
      return quant::sphere_unbiased_vnmse(m, n);
  }
}

double one_bit_error(ScaleKind kind, uint32_t kept, uint32_t n) {
  switch (kind) {
    case ScaleKind::kBiased:
      return quant::sphere_one_bit_biased_vnmse(kept, n);
    case ScaleKind::kNorm:
      return quant::sphere_one_bit_norm_vnmse(kept, n);
    default:
      return quant::sphere_one_bit_unbiased_vnmse(kept, n);
  }
}

double fixed_error(const WireParams& p, uint32_t n) {
  const EdenPlan plan = eden_plan(n, p.rate);
  if (p.rate <= kOneBit) return one_bit_error(p.scale, plan.kept, n);
  quant::SphereMoments m = lloyd_max_moments(plan.parts[0].bits, n);
  if (plan.n_parts == 2) {
    m = quant::mix_moments(m, plan.parts[0].n / static_cast<double>(n), lloyd_max_moments(plan.parts[1].bits, n));
  }
  return own_scale_error(p.scale, m, n);
}

double entropy_error(const WireParams& p, uint32_t n) {
  const auto step = quant::gaussian_step(p.param, (p.flags & kFlagDither) != 0);
  if (step->dither) return step->dither_vnmse();
  const quant::SphereMoments m = quant::sphere_moments(step->half(), n);
  return has_constant_scale(p) ? quant::sphere_constant_scale_vnmse(m) : own_scale_error(p.scale, m, n);
}

}  // namespace

double eden_limit(const WireParams& p, uint64_t n) {
  if (n == 0) return limit_of_large_dimension(p);
  const uint32_t block = usual_block(p, n);
  return (p.flags & kFlagEntropy) != 0 ? entropy_error(p, block) : fixed_error(p, block);
}

}  // namespace kpd::gradient
