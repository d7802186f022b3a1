// What a draw needs of a row of logits: every instruction set gives the scalar reference's bits, and that one is exp.
#include "kernels/sample.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "isa_fixture.h"

namespace kpd::kernels {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr size_t kLengths[] = {1, 7, 15, 16, 17, 63, 1023, 1024, 1025, 5000, 16384};

class Sample : public testing::IsaTest {};
KPD_ON_EVERY_ISA(Sample);

// Logits of a model's kind, some of them -infinity and equal.
std::vector<float> logits(size_t n, uint64_t seed) {
  std::vector<float> x = testing::random_floats(n, seed);
  for (float& v : x) v = std::min(6 * v - 3, 19.0f);
  for (size_t i = 0; i < n; i += 5) x[i] = i % 25 == 0 ? -kInf : 1.5f;
  x[n / 2] = 20;
  return x;
}

TEST_P(Sample, LaneMaxima) {
  for (const size_t n : kLengths) {
    const std::vector<float> x = logits(n, n);
    std::vector<float> maxima(sample_blocks(n) * kSampleLanes, 7), expected = maxima;
    EXPECT_EQ(lane_maxima(x.data(), n, maxima.data()), 20);
    EXPECT_EQ(scalar::lane_maxima(x.data(), n, expected.data()), 20);
    EXPECT_EQ(maxima, expected);
    for (size_t j = 0; j < maxima.size(); ++j) {
      float most = -kInf;
      for (size_t i = j / kSampleLanes * kSampleBlock + j % kSampleLanes;
           i < std::min(n, (j / kSampleLanes + 1) * kSampleBlock); i += kSampleLanes)
        most = std::max(most, x[i]);
      EXPECT_EQ(maxima[j], most) << "set " << j << " of " << n;
    }
    for (const size_t at : {size_t{0}, n / 3, n - 1}) {
      std::vector<float> damaged = x;
      damaged[at] = std::numeric_limits<float>::quiet_NaN();
      EXPECT_TRUE(std::isnan(lane_maxima(damaged.data(), n, maxima.data()))) << at << " of " << n;
      damaged[at] = kInf;
      EXPECT_EQ(lane_maxima(damaged.data(), n, maxima.data()), kInf);
    }
    const std::vector<float> nothing(n, -kInf);
    EXPECT_EQ(lane_maxima(nothing.data(), n, maxima.data()), -kInf);
  }
}

TEST_P(Sample, WeightsAndSumsHaveTheReferencesBits) {
  for (const size_t n : kLengths) {
    const std::vector<float> x = logits(n, n + 1);
    for (const float scale : {1.442695f, 2.06f, 40.0f, 1e30f, 0.0144f}) {
      std::vector<float> w(n), expected_w(n);
      std::vector<double> sums(sample_blocks(n)), expected(sums), alone(sums);
      exp2_sums(x.data(), n, 20, scale, sums.data(), w.data());
      exp2_sums(x.data(), n, 20, scale, alone.data(), nullptr);
      scalar::exp2_sums(x.data(), n, 20, scale, expected.data(), expected_w.data());
      for (size_t i = 0; i < n; ++i) ASSERT_EQ(std::bit_cast<uint32_t>(w[i]), std::bit_cast<uint32_t>(expected_w[i])) << i;
      for (size_t j = 0; j < sums.size(); ++j) {
        ASSERT_EQ(std::bit_cast<uint64_t>(sums[j]), std::bit_cast<uint64_t>(expected[j])) << j;
        ASSERT_EQ(sums[j], alone[j]);
      }
      const double total = std::accumulate(sums.begin(), sums.end(), 0.0);
      EXPECT_NEAR(total, std::accumulate(w.begin(), w.end(), 0.0), 1e-12 * total);
    }
  }
}

TEST_P(Sample, WeightsAreExp2WithinTwoPartsInTenMillion) {
  constexpr size_t kCount = 100000;
  std::vector<float> y(kCount), w(kCount);
  for (size_t i = 0; i < kCount; ++i) y[i] = -125.0f * static_cast<float>(i) / (kCount - 1);
  std::vector<double> sums(sample_blocks(kCount));
  exp2_sums(y.data(), kCount, 0, 1, sums.data(), w.data());
  double worst = 0;
  for (size_t i = 0; i < kCount; ++i)
    worst = std::max(worst, std::fabs(static_cast<double>(w[i]) / std::exp2(static_cast<double>(y[i])) - 1));
  EXPECT_LT(worst, 2e-7);
  EXPECT_GT(worst, 2e-8) << "the polynomial is of floats";
  const float ends[] = {0, -125.01f, -1e30f, -kInf};
  exp2_sums(ends, 4, 0, 1, sums.data(), w.data());
  EXPECT_EQ(std::vector<float>(w.begin(), w.begin() + 4), (std::vector<float>{1, 0, 0, 0}));
}

TEST_P(Sample, GatherFrom) {
  for (const size_t n : kLengths) {
    const std::vector<float> x = logits(n, n + 2);
    for (const float least : {-std::numeric_limits<float>::max(), -3.0f, 1.5f, 8.0f, 20.0f, 21.0f}) {
      std::vector<float> values(n + kSampleLanes), expected_values;
      std::vector<uint32_t> ids(n + kSampleLanes), expected_ids;
      const size_t count = gather_from(x.data(), n, least, values.data(), ids.data());
      for (size_t i = 0; i < n; ++i) {
        if (x[i] < least) continue;
        expected_values.push_back(x[i]);
        expected_ids.push_back(static_cast<uint32_t>(i));
      }
      ASSERT_EQ(count, expected_ids.size());
      values.resize(count);
      ids.resize(count);
      EXPECT_EQ(values, expected_values);
      EXPECT_EQ(ids, expected_ids);
    }
  }
}

}  // namespace
}  // namespace kpd::kernels
