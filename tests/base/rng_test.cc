// tests: Philox by its published vectors, words by their coordinates, moments of the distributions made of them.
#include "kpd/base/rng.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

#include "base/expect_error.h"

namespace kpd {
namespace {

// Known answers published with the paper's Random123 library for philox4x32, 10 rounds.
TEST(Philox, PublishedVectors) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}), (PhiloxCounter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const uint32_t f = 0xffffffffu;
  EXPECT_EQ(philox4x32({f, f, f, f}, {f, f}), (PhiloxCounter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxCounter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(CounterRng, WordIsNamedByItsIndex) {
  const uint64_t seed = 0x0123456789abcdefu, stream = 0xfedcba9876543210u;
  CounterRng rng(seed, stream);
  for (uint32_t i = 0; i < 40; ++i) {
    const auto block = philox4x32({i / 4, 0, 0x76543210u, 0xfedcba98u}, {0x89abcdefu, 0x01234567u});
    ASSERT_EQ(rng.next_u32(), block[i % 4]) << i;
  }
}

TEST(CounterRng, StreamsAndSeedsDiffer) {
  std::set<uint64_t> first;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    for (uint64_t stream = 0; stream < 20; ++stream) first.insert(CounterRng(seed, stream).next_u64());
  }
  EXPECT_EQ(first.size(), 400u);
}

TEST(CounterRng, DoublesAreUniform) {
  CounterRng rng(1);
  const int n = 100000;
  double sum = 0, sum2 = 0;
  for (int i = 0; i < n; ++i) {
    const double v = rng.next_double();
    ASSERT_GE(v, 0);
    ASSERT_LT(v, 1);
    sum += v, sum2 += v * v;
  }
  EXPECT_NEAR(sum / n, 0.5, 0.005);
  EXPECT_NEAR(sum2 / n, 1.0 / 3, 0.005);
}

TEST(CounterRng, BelowIsUniformWithoutModuloBias) {
  CounterRng rng(2);
  std::vector<int> counts(7);
  for (int i = 0; i < 70000; ++i) ++counts[rng.next_below(7)];
  double chi2 = 0;
  for (const int c : counts) chi2 += (c - 10000.0) * (c - 10000.0) / 10000;
  EXPECT_LT(chi2, 22.5);  // 6 degrees of freedom, p = .001

  // With modulo alone, bound = 3 * 2^62 would give the lowest third of the range twice as often.
  const uint64_t bound = uint64_t{3} << 62;
  int low = 0;
  for (int i = 0; i < 30000; ++i) {
    const uint64_t v = rng.next_below(bound);
    ASSERT_LT(v, bound);
    low += v < bound / 3;
  }
  EXPECT_NEAR(low / 30000.0, 1.0 / 3, 0.01);
  EXPECT_EQ(rng.next_below(1), 0u);
  EXPECT_KPD_ERROR(kInvalidArgument, "below 0", rng.next_below(0));
}

TEST(CounterRng, NormalMoments) {
  CounterRng rng(3);
  const int n = 200000;
  double m1 = 0, m2 = 0, m3 = 0, m4 = 0;
  for (int i = 0; i < n; ++i) {
    const double v = rng.next_normal();
    m1 += v, m2 += v * v, m3 += v * v * v, m4 += v * v * v * v;
  }
  EXPECT_NEAR(m1 / n, 0, 0.01);
  EXPECT_NEAR(m2 / n, 1, 0.015);
  EXPECT_NEAR(m3 / n, 0, 0.04);
  EXPECT_NEAR(m4 / n, 3, 0.12);
}

TEST(CounterRng, GammaMeanAndVarianceAreItsShape) {
  for (const double shape : {0.3, 1.0, 4.5}) {
    CounterRng rng(4);
    const int n = 100000;
    double sum = 0, sum2 = 0;
    for (int i = 0; i < n; ++i) {
      const double v = rng.next_gamma(shape);
      ASSERT_GE(v, 0);
      sum += v, sum2 += v * v;
    }
    const double mean = sum / n;
    EXPECT_NEAR(mean, shape, 0.03 * shape + 0.01);
    EXPECT_NEAR(sum2 / n - mean * mean, shape, 0.06 * shape + 0.01);
  }
  EXPECT_KPD_ERROR(kInvalidArgument, "gamma shape", CounterRng(0).next_gamma(0));
  EXPECT_KPD_ERROR(kInvalidArgument, "gamma shape", CounterRng(0).next_gamma(std::nan("")));
}

TEST(OsEntropy, Differs) { EXPECT_NE(os_entropy(), os_entropy()); }

}  // namespace
}  // namespace kpd
