// quant: quantizers on the sphere; see the header. sphere_partial_mean is normative (docs/format/gradient.md, section 12), the
// error estimates are not.
#include "kpd/quant/sphere.h"

#include <array>
#include <cmath>

#include "kpd/base/error.h"
#include "kpd/base/exact_math.h"

namespace kpd::quant {
namespace {

constexpr double kPi = 3.14159265358979323846;
constexpr double kSumEnd = 12;      // no mass beyond that a double sum would notice
constexpr double kPanelWidth = .5;  // of the quadrature

void check_dimension(uint32_t n, uint32_t least) {
  if (n < least) fail(ErrorCode::kInvalidArgument, "a sphere of ", n, " dimensions, expected at least ", least);
}

// Gamma(n/2) / Gamma((n-1)/2), by h_2 = 1/sqrt(pi), h_3 = sqrt(pi)/2, h_n = h_(n-2) (n-2)/(n-3). Kept for all lengths that a
// block of the entropy code can have, since the recurrence costs as much as encoding a block.
constexpr uint32_t kKeptRatios = 8192;
double next_ratio(double before, uint32_t n) { return before * static_cast<double>(n - 2) / static_cast<double>(n - 3); }
double gamma_ratio(uint32_t n) {
  static const std::array<double, kKeptRatios> kept = [] {
    std::array<double, kKeptRatios> h{};
    h[2] = 0.56418958354775628695;
    h[3] = 0.88622692545275801365;
    for (uint32_t i = 4; i < kKeptRatios; ++i) h[i] = next_ratio(h[i - 2], i);
    return h;
  }();
  if (n < kKeptRatios) return kept[n];
  uint32_t i = kKeptRatios - 2 + (n & 1);
  double h = kept[i];
  while (i < n) {
    i += 2;
    h = next_ratio(h, i);
  }
  return h;
}

// x^(m/2) for x >= 0: a square root where m is odd, times powers by squaring from the lowest bit.
double half_power(double x, uint32_t m) {
  double result = (m & 1) != 0 ? std::sqrt(x) : 1.0;
  for (uint32_t e = m >> 1; e > 0; e >>= 1) {
    if ((e & 1) != 0) result *= x;
    if (e > 1) x *= x;
  }
  return result;
}

double one_less_share(uint32_t n, double z) {
  const double left = 1.0 - z * z / static_cast<double>(n);
  return left > 0 ? left : 0;
}

// Gauss-Legendre with 8 points a panel: adds weight * f(z) of each point z in (a, b).
template <class Fn>
void integrate(double a, double b, const Fn& f) {
  static constexpr double kNodes[] = {0.1834346424956498, 0.5255324099163290, 0.7966664774136267, 0.9602898564975363};
  static constexpr double kWeights[] = {0.3626837833783620, 0.3137066458778873, 0.2223810344533745, 0.1012285362903763};
  const int panels = static_cast<int>((b - a) / kPanelWidth) + 1;
  const double half = 0.5 * (b - a) / panels;
  for (int p = 0; p < panels; ++p) {
    const double middle = a + (2 * p + 1) * half;
    for (int k = 0; k < 4; ++k) {
      f(middle - half * kNodes[k], half * kWeights[k]);
      f(middle + half * kNodes[k], half * kWeights[k]);
    }
  }
}

// (co)variance of means over a block, for m = n, from a variance and its projections.
double on_sphere(double var, double p, double q, uint32_t n) { return (var - 0.5 * p * q) / static_cast<double>(n); }

}  // namespace

double sphere_partial_mean(uint32_t n, double a, double b) {
  check_dimension(n, 2);
  const double d = n;
  const double front = gamma_ratio(n) / std::sqrt(kPi * d) * d / (d - 1);
  return front * (half_power(one_less_share(n, a), n - 1) - half_power(one_less_share(n, b), n - 1));
}

SphereMoments sphere_moments(const HalfQuantizer& q, uint32_t n) {
  check_dimension(n, 3);
  const double density_at_0 = gamma_ratio(n) / std::sqrt(kPi * static_cast<double>(n));
  const double radius = std::sqrt(static_cast<double>(n));
  SphereMoments m;
  double z2q2 = 0, q4 = 0, zq3 = 0, normal_zq = 0, normal_q2 = 0;
  for (size_t i = 0; i < q.edges.size() && q.edges[i] < kSumEnd; ++i) {
    const double a = q.edges[i], b = i + 1 < q.edges.size() && q.edges[i + 1] < kSumEnd ? q.edges[i + 1] : kSumEnd;
    const double v = q.values[i], v2 = v * v;
    if (v == 0) continue;
    m.zq += 2 * v * sphere_partial_mean(n, a, b);
    double mass = 0, normal_mass = 0, m1 = 0, m2 = 0, m3 = 0;
    const double end = b < radius ? b : radius;
    if (a < end) integrate(a, end, [&](double z, double w) { mass += w * half_power(one_less_share(n, z), n - 3); });
    integrate(a, b, [&](double z, double w) {
      const double p = w * normal_pdf(z);
      normal_mass += p;
      m1 += p * z;
      m2 += p * z * z;
      m3 += p * z * z * z;
    });
    m.q2 += 2 * v2 * mass * density_at_0;
    normal_zq += 2 * v * m1;
    normal_q2 += 2 * v2 * normal_mass;
    z2q2 += 2 * v2 * m2;
    q4 += 2 * v2 * v2 * normal_mass;
    zq3 += 2 * v2 * v * m1;
    m.project_zq += 2 * v * (m3 - m1);
    m.project_q2 += 2 * v2 * (m2 - normal_mass);
  }
  m.var_zq = z2q2 - normal_zq * normal_zq;
  m.var_q2 = q4 - normal_q2 * normal_q2;
  m.cov = zq3 - normal_zq * normal_q2;
  return m;
}

SphereMoments mix_moments(const SphereMoments& a, double a_share, const SphereMoments& b) {
  const auto mix = [a_share](double of_a, double of_b) { return a_share * of_a + (1 - a_share) * of_b; };
  return {mix(a.zq, b.zq),
          mix(a.q2, b.q2),
          mix(a.var_zq, b.var_zq),
          mix(a.var_q2, b.var_q2),
          mix(a.cov, b.cov),
          mix(a.project_zq, b.project_zq),
          mix(a.project_q2, b.project_q2)};
}

double sphere_constant_scale_vnmse(const SphereMoments& m) { return m.q2 / (m.zq * m.zq) - 1; }

// With A and B the block's means of Q^2 and ZQ the errors are A/B^2 - 1, 1 - B^2/A and 2 - 2 B/sqrt(A); their expectations by
// Taylor's expansion around the means to the second order.
double sphere_unbiased_vnmse(const SphereMoments& m, uint32_t n) {
  const double a = m.q2, b = m.zq, b2 = b * b;
  const double var_b = on_sphere(m.var_zq, m.project_zq, m.project_zq, n);
  const double cov = on_sphere(m.cov, m.project_zq, m.project_q2, n);
  return a / b2 - 1 + (3 * a * var_b / b2 - 2 * cov / b) / b2;
}

double sphere_biased_vnmse(const SphereMoments& m, uint32_t n) {
  const double a = m.q2, b = m.zq;
  const double var_a = on_sphere(m.var_q2, m.project_q2, m.project_q2, n);
  const double var_b = on_sphere(m.var_zq, m.project_zq, m.project_zq, n);
  const double cov = on_sphere(m.cov, m.project_zq, m.project_q2, n);
  return 1 - b * b / a - (var_b - 2 * b * cov / a + b * b * var_a / (a * a)) / a;
}

double sphere_norm_vnmse(const SphereMoments& m, uint32_t n) {
  const double a = m.q2, b = m.zq, root = std::sqrt(a);
  const double var_a = on_sphere(m.var_q2, m.project_q2, m.project_q2, n);
  const double cov = on_sphere(m.cov, m.project_zq, m.project_q2, n);
  return 2 - 2 * (b / root - 0.5 * cov / (a * root) + 0.375 * b * var_a / (a * a * root));
}

double sphere_one_bit_unbiased_vnmse(uint32_t k, uint32_t n) {
  check_dimension(n, 2);
  // (pi/2) (1 - c1/k + c2/k^2 + c3/k^3); c1 as above from Q = sign, c2 and c3 from 1 at k = 1 and 4/pi at k = 2.
  constexpr double kC1 = 5 - 1.5 * kPi;
  constexpr double kAt1 = 2 / kPi - 1 + kC1, kAt2 = 8 / (kPi * kPi) - 1 + kC1 / 2;  // c2 + c3, c2/4 + c3/8
  constexpr double kC2 = 8 * kAt2 - kAt1, kC3 = kAt1 - kC2;
  const double d = k;
  return kPi / 2 * (1 - (kC1 - (kC2 + kC3 / d) / d) / d) * static_cast<double>(n) / d - 1;
}

double sphere_one_bit_biased_vnmse(uint32_t k, uint32_t n) {
  check_dimension(n, 2);
  const double cos2 = 2 / kPi + (1 - 2 / kPi) / static_cast<double>(k);
  return 1 - static_cast<double>(k) / static_cast<double>(n) * cos2;
}

double sphere_one_bit_norm_vnmse(uint32_t k, uint32_t n) {
  const double mean_magnitude = 2 * sphere_partial_mean(n, 0, kSumEnd * kSumEnd * kSumEnd);
  return 2 - 2 * mean_magnitude * std::sqrt(static_cast<double>(k) / static_cast<double>(n));
}

}  // namespace kpd::quant
