// exact_math against long double libm, which is used in tests only.
#include "kpd/base/exact_math.h"

#include <cmath>
#include <cstdint>
#include <limits>

#include <gtest/gtest.h>

namespace kpd {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double relative_error(double value, long double reference) {
  if (reference == 0) return value == 0 ? 0 : 1;
  return static_cast<double>(std::fabs((static_cast<long double>(value) - reference) / reference));
}
long double tail_reference(double x) { return 0.5L * erfcl(static_cast<long double>(x) / sqrtl(2.0L)); }
long double pdf_reference(double x) {
  return expl(-0.5L * x * static_cast<long double>(x)) / sqrtl(2.0L * 3.14159265358979323846264338328L);
}

TEST(ExactMath, ExpAgreesWithLibm) {
  double worst = 0;
  for (double x = -700; x <= 700; x += 0.0371) worst = std::max(worst, relative_error(exact_exp(x), expl(x)));
  EXPECT_LT(worst, 3e-16);
  EXPECT_EQ(exact_exp(0), 1.0);
  EXPECT_EQ(exact_exp(-709), 0.0);
  EXPECT_EQ(exact_exp(710), kInfinity);
  EXPECT_EQ(exact_exp(-kInfinity), 0.0);
}

TEST(ExactMath, Log2AgreesWithLibm) {
  double worst = 0;
  for (double x = 1e-300; x < 1e300; x *= 1.37) worst = std::max(worst, relative_error(exact_log2(x), log2l(x)));
  for (double x = 0.5; x < 2; x += 0.000731) worst = std::max(worst, relative_error(exact_log2(x), log2l(x)));
  EXPECT_LT(worst, 2e-15);
  EXPECT_EQ(exact_log2(1), 0.0);
  EXPECT_EQ(exact_log2(1024), 10.0);
  EXPECT_EQ(exact_log2(std::ldexp(1.0, -1074)), -1074.0);
  EXPECT_EQ(exact_log2(0), -kInfinity);
}

TEST(ExactMath, NormalFunctionsAgreeWithLibm) {
  double worst_pdf = 0, worst_tail = 0, worst_cdf = 0;
  for (double x = -12; x <= 12; x += 0.00377) {
    worst_pdf = std::max(worst_pdf, relative_error(normal_pdf(x), pdf_reference(x)));
    worst_tail = std::max(worst_tail, relative_error(normal_upper_tail(x), tail_reference(x)));
    worst_cdf = std::max(worst_cdf, relative_error(normal_cdf(x), tail_reference(-x)));
  }
  EXPECT_LT(worst_pdf, 1e-15);
  EXPECT_LT(worst_tail, 2e-15);
  EXPECT_LT(worst_cdf, 2e-15);
  EXPECT_EQ(normal_upper_tail(0), 0.5);
  EXPECT_EQ(normal_upper_tail(kInfinity), 0.0);
  EXPECT_EQ(normal_cdf(kInfinity), 1.0);
}

TEST(ExactMath, CdfIsMonotone) {
  double previous = 0;
  for (double x = -15; x <= 8; x += 0.0005) {
    const double p = normal_cdf(x);
    ASSERT_GE(p, previous) << x;
    previous = p;
  }
}

TEST(ExactMath, IntervalsDoNotCancel) {
  // Long double tails still cancel in narrow intervals, so narrow ones are held against the density at the middle with the
  // first two terms of its Taylor series.
  double worst = 0;
  for (double a = -11; a <= 11; a += 0.0931) {
    for (double width : {0.51, 0.9, 1.7, 4.0}) {
      const double b = a + width;
      const long double reference = a > 0   ? tail_reference(a) - tail_reference(b)
                                    : b < 0 ? tail_reference(-b) - tail_reference(-a)
                                            : 1 - tail_reference(b) - tail_reference(-a);
      worst = std::max(worst, relative_error(normal_interval(a, b), reference));
    }
    const double m = a, h = 1.0 / 1024;
    const long double series =
        2 * h * pdf_reference(m) * (1 + (m * m - 1.0L) * h * h / 6 + (m * m * m * m - 6.0L * m * m + 3) * h * h * h * h / 120);
    worst = std::max(worst, relative_error(normal_interval(m - h, m + h), series));
    const double b = a + 0.45;
    const long double middle = a > 0   ? tail_reference(a) - tail_reference(b)
                               : b < 0 ? tail_reference(-b) - tail_reference(-a)
                                       : 1 - tail_reference(b) - tail_reference(-a);
    worst = std::max(worst, relative_error(normal_interval(a, b), middle));
  }
  EXPECT_LT(worst, 1e-14);
  EXPECT_DOUBLE_EQ(normal_interval(-kInfinity, kInfinity), 1.0);
  EXPECT_EQ(normal_interval(2, 1), 0.0);
  EXPECT_EQ(normal_interval(40, 41), 0.0);
}

TEST(ExactMath, CellMeansAreCentroids) {
  for (double a = -9; a <= 9; a += 0.1713) {
    for (double width : {0.001, 0.05, 0.3, 0.49, 0.6, 2.0}) {
      const double b = a + width;
      const NormalCell cell = normal_cell(a, b);
      EXPECT_GT(cell.mean, a);
      EXPECT_LT(cell.mean, b);
      EXPECT_EQ(cell.mass, normal_interval(a, b));
      // mass * mean = phi(a) - phi(b)
      const long double moment = pdf_reference(a) - pdf_reference(b);
      EXPECT_NEAR(cell.mass * cell.mean, static_cast<double>(moment),
                  1e-17 + 4e-16 * static_cast<double>(pdf_reference(a) + pdf_reference(b)));
    }
  }
  const NormalCell upper_half = normal_cell(0, kInfinity);
  EXPECT_NEAR(upper_half.mean, std::sqrt(2 / 3.14159265358979323846), 2e-16);
  EXPECT_EQ(upper_half.mass, 0.5);
  EXPECT_EQ(normal_cell(50, 51).mean, 50.0);
}

}  // namespace
}  // namespace kpd
