// tests: the errors of 400 clients average whatever the length and wherever the energy lies (averaging.h): a spanning subset,
// the larger one is tests/paper/averaging_test.cc. Seeds are fixed; the statistic has a standard error of 1 %.
#include "gradient/averaging.h"

#include <gtest/gtest.h>

namespace kpd::gradient {
namespace {

using namespace testing;

TEST(AverageRatio, TellsIndependentErrorsFromSharedOnes) {
  const std::vector<float> x = {1, 2}, a = {2, 2}, b = {1, 3};
  AverageRatio shared(2), independent(2), weighted(2);
  for (int c = 0; c < 10; ++c) shared.add(x, a);
  EXPECT_DOUBLE_EQ(shared.ratio(), 10);
  independent.add(x, a);
  independent.add(x, b);
  EXPECT_DOUBLE_EQ(independent.ratio(), 1);
  weighted.add(x, a, 3);
  weighted.add(x, a, -1);
  EXPECT_DOUBLE_EQ(weighted.ratio(), 4.0 / 10.0);
  EXPECT_DOUBLE_EQ(weighted.error2(), 10);
  EXPECT_TRUE(std::isnan(AverageRatio(2).ratio()));
}

struct Case {
  const char* spec;
  size_t n;
  Shape shape;
};

TEST(Averaging, OfEveryLengthAndShape) {
  const Case cases[] = {{"eden:bits=1", 8191, Shape::kHalves},      {"eden:bits=1", 1000, Shape::kHalves},
                        {"eden:bits=1", 7936, Shape::kGeometric},   {"eden:bits=4", 6144, Shape::kLastThird},
                        {"eden:bits=2", 4097, Shape::kLastFew},     {"eden:bits=1", 4096, Shape::kSparse},
                        {"eden:bits=4", 200, Shape::kFirstQuarter}, {"eden:code=entropy,bits=2", 1536, Shape::kOneRow},
                        {"drive", 8191, Shape::kHeavyTailed},       {"hadamard-sq:bits=1", 1023, Shape::kAlternating}};
  for (const Case& c : cases) {
    const Averaging a = measure_averaging(c.spec, c.shape, c.n);
    EXPECT_NEAR(a.ratio, 1.0, .05) << c.spec << " n=" << c.n;
    const double limit = Codec::parse(c.spec).limit_vnmse();
    EXPECT_LE(a.vnmse, 1.03 * limit) << c.spec << " n=" << c.n;
  }
}

TEST(Averaging, OfSmallBlocks) {
  // 30 trials: a standard error of 3 %. With three rounds the ratio was 5.
  for (const size_t n : {64, 127}) EXPECT_NEAR(measure_averaging("eden:bits=1", Shape::kSparse, n, 400, 30).ratio, 1.0, .12);
}

}  // namespace
}  // namespace kpd::gradient
