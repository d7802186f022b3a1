// base: elementary and normal-distribution functions from IEEE + - * / sqrt. See the header for the rule and why it matters.
//
// Tails: Laplace's continued fraction of the Mills ratio, Q(x)/phi(x) = 1/(x + 1/(x + 2/(x + 3/(x + ...)))), evaluated from the
// back, where rounding errors contract. Centre: phi(x) * sum x^(2k+1)/(2k+1)!!. Narrow cells: the Taylor series of phi around
// the cell's middle, whose coefficients are Hermite polynomials.
#include "kpd/base/exact_math.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace kpd {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kLn2High = 6.93147180369123816490e-01;  // 33 bits, so that k * kLn2High is exact for |k| < 2^20
constexpr double kLn2Low = 1.90821492927058770002e-10;
constexpr double kInverseLn2 = 1.44269504088896340736;
constexpr double kInverseSqrt2Pi = 0.398942280401432677939946;
constexpr double kSqrt2 = 1.41421356237309504880;
constexpr double kTailEnd = 37;  // beyond it the density is below the smallest normal double's neighbourhood; taken as 0

// 2^k for -1022 <= k <= 1023.
double power_of_two(int k) { return std::bit_cast<double>(static_cast<uint64_t>(k + 1023) << 52); }

// sum over n >= 0 of r^n / (n+2)! to r^13: (e^r - 1 - r) / r^2 for |r| <= 0.35.
double exp_tail_series(double r) {
  double s = 1.0 / 15;
  for (int n = 14; n >= 3; --n) s = (1.0 + r * s) / n;
  return (1.0 + r * s) * 0.5;
}

double tail_positive(double x);  // x >= 1

// P(0 < Z < x) for |x| <= 1; odd in x, no cancellation.
double centre(double x) {
  const double x2 = x * x;
  double s = 1.0;
  for (int k = 18; k >= 1; --k) s = 1.0 + x2 * s / (2 * k + 1);
  return normal_pdf(x) * x * s;
}

double tail_positive(double x) {
  if (x > kTailEnd) return 0;
  // Terms for 3e-16; the start value is the fraction's limit for constant coefficients.
  const int n_terms = x < 1.5 ? 240 : x < 2 ? 120 : x < 3 ? 72 : x < 4 ? 40 : x < 6 ? 28 : x < 8 ? 18 : 14;
  double t = (x + std::sqrt(x * x + 4.0 * (n_terms + 1))) * 0.5;
  for (int n = n_terms; n >= 1; --n) t = x + n / t;
  return normal_pdf(x) / t;
}

// A cell of half width h around m with |m| * h <= 3, h <= 0.25: phi(m + t) = phi(m) sum (-1)^n g_n (t/h)^n with g_n = He_n(m)
// h^n / n!, integrated term by term: even n give the mass, odd n the shift of the mean.
NormalCell narrow_cell(double m, double h) {
  double previous = 1.0, current = m * h;
  double even = 1.0, odd = current / 3;
  for (int n = 1; n < 34; ++n) {
    const double next = (m * h * current - h * h * previous) / (n + 1);
    previous = current;
    current = next;
    if ((n + 1) % 2 == 0) {
      even += current / (n + 2);
    } else {
      odd += current / (n + 3);
    }
  }
  return {2.0 * h * normal_pdf(m) * even, m - h * (odd / even)};
}

bool is_narrow(double a, double b) {
  if (!(b - a < 0.5)) return false;
  const double m = 0.5 * (a + b), h = 0.5 * (b - a);
  return (m < 0 ? -m : m) * h <= 3;
}

}  // namespace

double exact_exp(double x) {
  if (!(x >= -708)) return 0;
  if (x > 709) return kInfinity;
  const double scaled = x * kInverseLn2;
  const int k = static_cast<int>(scaled < 0 ? scaled - 0.5 : scaled + 0.5);
  const double high = x - k * kLn2High;
  const double low = k * kLn2Low;
  const double r = high - low;
  const double correction = (high - r) - low;
  const double value = 1.0 + (r + (correction + r * r * exp_tail_series(r)));
  // In two steps, because 2^k alone may be beyond the range at either end.
  const int half = k / 2;
  return value * power_of_two(half) * power_of_two(k - half);
}

double exact_log2(double x) {
  if (!(x > 0) || x == kInfinity) return -kInfinity;
  int k = 0;
  if (x < power_of_two(-1022)) {
    x *= power_of_two(54);
    k = -54;
  }
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  k += static_cast<int>(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & 0x000fffffffffffffull) | 0x3ff0000000000000ull);
  if (m > kSqrt2) {
    m *= 0.5;
    ++k;
  }
  // log m = 2 atanh(s), |s| <= 0.172.
  const double s = (m - 1.0) / (m + 1.0);
  const double s2 = s * s;
  double sum = 1.0 / 25;
  for (int n = 23; n >= 3; n -= 2) sum = 1.0 / n + s2 * sum;
  const double log_m = 2.0 * (s + s * s2 * sum);
  return k + log_m * kInverseLn2;
}

double normal_pdf(double x) {
  if (x < 0) x = -x;
  if (!(x <= kTailEnd)) return 0;
  // x^2 = head^2 + (x - head)(x + head), head with few enough bits that head^2 is exact: otherwise x^2's rounding is amplified.
  const double head = std::bit_cast<double>(std::bit_cast<uint64_t>(x) & 0xfffffffff8000000ull);
  return kInverseSqrt2Pi * exact_exp(-0.5 * (head * head)) * exact_exp(-0.5 * ((x - head) * (x + head)));
}

double normal_upper_tail(double x) {
  if (x >= 1) return tail_positive(x);
  if (x <= -1) return 1.0 - tail_positive(-x);
  return 0.5 - centre(x);
}

double normal_cdf(double x) { return normal_upper_tail(-x); }

double normal_interval(double a, double b) {
  if (!(a < b)) return 0;
  if (is_narrow(a, b)) return narrow_cell(0.5 * (a + b), 0.5 * (b - a)).mass;
  if (a >= 1) return normal_upper_tail(a) - normal_upper_tail(b);
  if (b <= -1) return normal_upper_tail(-b) - normal_upper_tail(-a);
  // From 0 to each end. Beyond 1 the centre's share is 1/2 - tail, which loses nothing.
  const double above = b <= 1 ? (b >= -1 ? centre(b) : -(0.5 - tail_positive(-b))) : 0.5 - tail_positive(b);
  const double below = a >= -1 ? (a <= 1 ? centre(a) : 0.5 - tail_positive(a)) : -(0.5 - tail_positive(-a));
  return above - below;
}

NormalCell normal_cell(double a, double b) {
  const double near = a > 0 ? a : b < 0 ? b : 0;
  if (!(a < b)) return {0, near};
  if (is_narrow(a, b)) {
    const NormalCell cell = narrow_cell(0.5 * (a + b), 0.5 * (b - a));
    return cell.mass > 0 ? cell : NormalCell{0, near};
  }
  const double mass = normal_interval(a, b);
  if (!(mass > 0)) return {0, near};
  return {mass, (normal_pdf(a) - normal_pdf(b)) / mass};
}

}  // namespace kpd
