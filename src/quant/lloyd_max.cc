// quant: Lloyd-Max codebooks of N(0,1). With levels c_1 < ... < c_n of the positive half and thresholds t_i = (c_i +
// c_(i+1))/2, t_0 = 0, t_n = infinity, the quantizer is stationary where F_i = c_i - E[Z | t_(i-1) < Z < t_i] = 0. Newton on F,
// whose Jacobian is tridiagonal. The number of iterations is fixed and the order of operations written out, because the float
// tables are part of the stream format.
#include "kpd/quant/lloyd_max.h"

#include <array>
#include <cmath>
#include <limits>

#include "kpd/base/error.h"
#include "kpd/base/exact_math.h"

namespace kpd::quant {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int kNewtonSteps = 12;  // the last ones only polish: see the test of `residual`

// Asymptotically optimal point density is proportional to phi^(1/3), that is to the density of N(0,3) (Panter and Dite 1951):
// c_i = sqrt(3) Q^-1((n - i + 1/2) / 2n). Newton from the left converges, because Q is convex there.
std::vector<double> companding_guess(int n) {
  std::vector<double> levels(n);
  double x = 0;
  for (int i = 0; i < n; ++i) {
    const double tail = (n - i - 0.5) / (2.0 * n);
    const int n_steps = i == 0 ? 6 : 3;
    for (int step = 0; step < n_steps; ++step) x += (normal_upper_tail(x) - tail) / normal_pdf(x);
    levels[i] = std::sqrt(3.0) * x;
  }
  return levels;
}

double lower_edge(const std::vector<double>& c, size_t i) { return i == 0 ? 0.0 : 0.5 * (c[i - 1] + c[i]); }
double upper_edge(const std::vector<double>& c, size_t i) { return i + 1 == c.size() ? kInfinity : 0.5 * (c[i] + c[i + 1]); }

void newton_step(std::vector<double>& c) {
  const size_t n = c.size();
  // Row i: lower[i] d_(i-1) + diagonal[i] d_i + upper[i] d_(i+1) = right[i].
  std::vector<double> diagonal(n), upper(n), right(n);
  double previous_upper = 0;
  for (size_t i = 0; i < n; ++i) {
    const double a = lower_edge(c, i), b = upper_edge(c, i);
    const NormalCell cell = normal_cell(a, b);
    // Half the derivative of the centroid by each edge; the edges move by half of a level's step.
    const double by_a = i == 0 ? 0.0 : 0.5 * normal_pdf(a) * (cell.mean - a) / cell.mass;
    const double by_b = i + 1 == n ? 0.0 : 0.5 * normal_pdf(b) * (b - cell.mean) / cell.mass;
    double d = 1.0 - by_a - by_b;
    double r = cell.mean - c[i];
    // Forward elimination (Thomas) of lower[i] = -by_a, as the row is made.
    if (i > 0) {
      const double factor = -by_a / diagonal[i - 1];
      d -= factor * previous_upper;
      r -= factor * right[i - 1];
    }
    diagonal[i] = d;
    upper[i] = previous_upper = -by_b;
    right[i] = r;
  }
  double step = 0;
  for (size_t i = n; i-- > 0;) {
    step = (right[i] - upper[i] * step) / diagonal[i];
    right[i] = step;
  }
  for (size_t i = 0; i < n; ++i) c[i] += right[i];
}

LloydMax make(int bits) {
  LloydMax out;
  out.bits = bits;
  const int n = 1 << (bits - 1);
  out.levels = companding_guess(n);
  for (int step = 0; step < kNewtonSteps; ++step) newton_step(out.levels);
  double q2 = 0;
  for (size_t i = 0; i < out.levels.size(); ++i) {
    const NormalCell cell = normal_cell(lower_edge(out.levels, i), upper_edge(out.levels, i));
    const double residual = std::fabs(cell.mean - out.levels[i]);
    if (residual > out.residual) out.residual = residual;
    q2 += 2.0 * cell.mass * (out.levels[i] * out.levels[i]);
    out.float_levels.push_back(static_cast<float>(out.levels[i]));
    if (i + 1 < out.levels.size()) {
      out.thresholds.push_back(upper_edge(out.levels, i));
      out.float_thresholds.push_back(static_cast<float>(out.thresholds.back()));
    }
  }
  out.distortion = 1.0 - q2;
  return out;
}

}  // namespace

const LloydMax& lloyd_max(int bits) {
  if (bits < 1 || bits > kMaxLloydBits) {
    fail(ErrorCode::kInvalidArgument, "a Lloyd-Max codebook has 1 to ", kMaxLloydBits, " bits, not ", bits);
  }
  static const std::array<LloydMax, kMaxLloydBits> tables = [] {
    std::array<LloydMax, kMaxLloydBits> all;
    for (int b = 1; b <= kMaxLloydBits; ++b) all[b - 1] = make(b);
    return all;
  }();
  return tables[bits - 1];
}

double fixed_rate_expected_q2(double bits) {
  if (!(bits > 0 && bits <= kMaxLloydBits)) {
    fail(ErrorCode::kInvalidArgument, "a fixed-rate code has more than 0 and at most ", kMaxLloydBits, " bits, not ", bits);
  }
  if (bits < 1) return bits * (1.0 - lloyd_max(1).distortion);
  const int k = static_cast<int>(bits);
  const double f = bits - k;
  const double coarse = 1.0 - lloyd_max(k).distortion;
  if (f == 0) return coarse;
  return (1.0 - f) * coarse + f * (1.0 - lloyd_max(k + 1).distortion);
}

double unbiased_vnmse(double cos2) { return (1.0 - cos2) / cos2; }
double biased_vnmse(double cos2) { return 1.0 - cos2; }
double norm_vnmse(double cos2) { return 2.0 * (1.0 - cos2) / (1.0 + std::sqrt(cos2)); }

}  // namespace kpd::quant
