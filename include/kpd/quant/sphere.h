// quant: scalar quantizers of a coordinate Z of a uniform point of the sphere of radius sqrt(n) in R^n: what a uniformly
// rotated block of n numbers is made of. N(0,1) is its limit; at n = 64 and at a twentieth of a bit the two differ by 18 %.
//
// Z has the density c_n (1 - z^2/n)^((n-3)/2), c_n = Gamma(n/2) / (Gamma((n-1)/2) sqrt(pi n)). Everything here is computed
// with + - * / sqrt and base/exact_math.h in a fixed order: the closed-form scale of EDEN's entropy code decides stream bytes
// (docs/format/gradient.md, section 12). Pure functions, thread-safe.
#pragma once

#include <cstdint>
#include <vector>

namespace kpd::quant {

// E[Z; a < Z < b] = c_n n/(n-1) ((1 - a^2/n)^((n-1)/2) - (1 - b^2/n)^((n-1)/2)), a and b cut at sqrt(n), for n >= 2 (else
// Error(kInvalidArgument)) and 0 <= a <= b. About a hundred nanoseconds for n < 8192; allocates nothing.
double sphere_partial_mean(uint32_t n, double a, double b);

// A quantizer that is odd in z, by its half z >= 0: z in [edges[i], edges[i+1]) becomes values[i]; the last cell has no end.
struct HalfQuantizer {
  std::vector<double> edges;   // ascending, the first is 0
  std::vector<double> values;  // as many
};

// What decides the error of a block of n coordinates coded by a quantizer or a mixture of some.
struct SphereMoments {
  double zq = 0, q2 = 0;  // E[Z Q(Z)] and E[Q(Z)^2] on the sphere, exact
  // Under N(0,1): n times the (co)variances of the block's means of Z Q(Z) and Q(Z)^2, before the sphere takes its part, and
  // the projections E[f(Z) (Z^2 - 1)] by which it does: Cov = (var - projection * projection / 2) / n + O(n^-2).
  double var_zq = 0, var_q2 = 0, cov = 0;
  double project_zq = 0, project_q2 = 0;
};
// n >= 3, else Error(kInvalidArgument).
SphereMoments sphere_moments(const HalfQuantizer& q, uint32_t n);
// The moments where a share `a_share` of a block's coordinates takes `a` and the others take `b`.
SphereMoments mix_moments(const SphereMoments& a, double a_share, const SphereMoments& b);

// Expected |x^ - x|^2 / |x|^2 of a block of n coordinates.
// With one scale for all blocks, S = |x| / (sqrt(n) E[Z Q]): exact.
double sphere_constant_scale_vnmse(const SphereMoments& m);
// With a scale of each block's own (unbiased |y|^2/<y,q>, biased <y,q>/|q|^2, norm |y|/|q|): to first order in 1/n.
double sphere_unbiased_vnmse(const SphereMoments& m, uint32_t n);
double sphere_biased_vnmse(const SphereMoments& m, uint32_t n);
double sphere_norm_vnmse(const SphereMoments& m, uint32_t n);

// One bit for each of k of n coordinates (1 <= k <= n, n >= 2), the others lost, a scale of the block's own. Biased and norm
// are exact; so is unbiased, (n/k) E[tan^2 + 1] - 1, but for E[tan^2 + 1] = E[k |g|^2 / |g|_1^2], which is a series in 1/k that
// has the exact first two terms and the exact values at k = 1 and 2 (within .2 % of simulated ones).
double sphere_one_bit_unbiased_vnmse(uint32_t k, uint32_t n);
double sphere_one_bit_biased_vnmse(uint32_t k, uint32_t n);
double sphere_one_bit_norm_vnmse(uint32_t k, uint32_t n);

}  // namespace kpd::quant
