// gradient: the synthetic client vectors have the moments, correlations and reproducibility they promise.
#include "kpd/gradient/synthetic.h"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "base/expect_error.h"
#include "kpd/base/error.h"

namespace kpd::gradient {
namespace {

struct Moments {
  double mean = 0, variance = 0;
};
Moments moments(const std::vector<float>& x) {
  Moments m;
  for (float v : x) m.mean += v;
  m.mean /= static_cast<double>(x.size());
  for (float v : x) m.variance += (v - m.mean) * (v - m.mean);
  m.variance /= static_cast<double>(x.size());
  return m;
}

std::vector<float> make(const SyntheticSpec& spec, uint64_t dim, uint64_t trial, uint64_t client, int threads = 1) {
  SyntheticClients clients(spec, dim);
  clients.start_trial(trial, threads);
  std::vector<float> x(dim);
  clients.client(client, x, threads);
  return x;
}

SyntheticSpec spec_of(const char* text, double correlation = 0, uint64_t seed = 7) {
  SyntheticSpec spec = SyntheticSpec::parse(text);
  spec.correlation = correlation;
  spec.seed = seed;
  return spec;
}

TEST(NormalQuantile, InvertsTheNormalDistribution) {
  for (double p : {1e-10, 1e-6, 0.001, 0.02424, 0.02426, 0.3, 0.5, 0.7, 0.97574, 0.97576, 0.999, 1 - 1e-9}) {
    const double z = normal_quantile(p);
    const double tail = 0.5 * std::erfc(std::fabs(z) / std::sqrt(2.0));
    const double expected = p < 0.5 ? p : 1 - p;
    // The relative error of z is amplified by about z^2 in the tail's probability.
    EXPECT_NEAR(tail / expected, 1.0, 1.2e-9 * (z * z + 2) + 1e-6 * (p > 0.5 && expected < 1e-8)) << p;
    EXPECT_EQ(z < 0, p < 0.5) << p;
  }
}

TEST(Synthetic, MarginalsHaveTheirMoments) {
  const uint64_t n = 300001;
  const Moments normal = moments(make(spec_of("normal"), n, 0, 0));
  EXPECT_NEAR(normal.mean, 0, 0.008);
  EXPECT_NEAR(normal.variance, 1, 0.015);
  const Moments lognormal = moments(make(spec_of("lognormal"), n, 0, 0));
  EXPECT_NEAR(lognormal.mean, std::exp(0.5), 0.02);
  EXPECT_NEAR(lognormal.variance, (std::exp(1.0) - 1) * std::exp(1.0), 0.35);
  const Moments exponential = moments(make(spec_of("exponential"), n, 0, 0));
  EXPECT_NEAR(exponential.mean, 1, 0.008);
  EXPECT_NEAR(exponential.variance, 1, 0.03);
}

TEST(Synthetic, CorrelationIsThatOfTheUnderlyingNormals) {
  const uint64_t n = 200000;
  for (double r : {0.0, 0.5, 0.9}) {
    const auto a = make(spec_of("normal", r), n, 3, 0), b = make(spec_of("normal", r), n, 3, 1);
    double dot = 0;
    for (uint64_t i = 0; i < n; ++i) dot += double{a[i]} * b[i];
    EXPECT_NEAR(dot / n, r, 0.012) << r;
    EXPECT_NEAR(moments(a).variance, 1, 0.02) << r;
  }
  EXPECT_EQ(make(spec_of("lognormal", 1), 1000, 3, 0), make(spec_of("lognormal", 1), 1000, 3, 9));
}

TEST(Synthetic, EveryTrialClientAndSeedDiffersAndThreadsDoNot) {
  const uint64_t n = 200003;
  const auto x = make(spec_of("lognormal", 0.5), n, 1, 2);
  EXPECT_EQ(x, make(spec_of("lognormal", 0.5), n, 1, 2, 3));
  EXPECT_NE(x, make(spec_of("lognormal", 0.5), n, 2, 2));
  EXPECT_NE(x, make(spec_of("lognormal", 0.5), n, 1, 3));
  EXPECT_NE(x, make(spec_of("lognormal", 0.5, 8), n, 1, 2));
  EXPECT_NE(make(spec_of("normal", 1), n, 0, 0), make(spec_of("normal", 1), n, 1, 0));
  // A longer vector starts with the shorter one.
  const auto longer = make(spec_of("lognormal", 0.5), n + 5, 1, 2);
  EXPECT_EQ(x, std::vector<float>(longer.begin(), longer.begin() + n));
}

TEST(Synthetic, SparseIsTheWrittenVector) {
  const auto x = make(spec_of("sparse:3"), 6, 5, 4);
  EXPECT_EQ(x, (std::vector<float>{1.0f, 0.99f, 0.98f, 0, 0, 0}));
  EXPECT_EQ(make(spec_of("sparse:9"), 2, 0, 0).size(), 2u);
}

TEST(Synthetic, PartsAreTheNormalVectorTimesTheirFactors) {
  for (const uint64_t n : {7u, 8u, 200003u}) {
    const auto normal = make(spec_of("normal", 0.5), n, 1, 2), halves = make(spec_of("halves:0.5", 0.5), n, 1, 2, 3),
               blocks = make(spec_of("blocks:1,-2,0.25", 0.5), n, 1, 2);
    const float factors[] = {1, -2, 0.25f};
    for (uint64_t i = 0; i < n; ++i) {
      ASSERT_EQ(halves[i], i < (n + 1) / 2 ? normal[i] : 0.5f * normal[i]) << n << " " << i;
      ASSERT_EQ(blocks[i], factors[i * 3 / n] * normal[i]) << n << " " << i;
    }
  }
  EXPECT_EQ(spec_of("blocks:1").factors, std::vector<double>{1});
}

TEST(Synthetic, BadTextsAreRefused) {
  for (const char* text : {"",         "norml",   "sparse",    "sparse:",   "sparse:0",   "sparse:-1",  "sparse:2x",
                           "normal:3", "halves",  "halves:",   "halves:x",  "halves:1,2", "halves:nan", "halves:inf",
                           "blocks",   "blocks:", "blocks:1,", "blocks:,1", "blocks:1;2", "blocks:1 "}) {
    try {
      SyntheticSpec::parse(text);
      ADD_FAILURE() << text;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument);
    }
  }
  try {
    SyntheticSpec::parse("lognorml");
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("did you mean 'lognormal'?"), std::string::npos) << e.what();
  }
  EXPECT_KPD_ERROR(kInvalidArgument, "correlation 1.5", SyntheticClients(spec_of("normal", 1.5), 10));
}

}  // namespace
}  // namespace kpd::gradient
