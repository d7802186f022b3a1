// tests: every codec that claims to be unbiased is so for short blocks, over 4,000 equal clients; more lengths, rates and
// inputs in slow_unbiased_test.cc.
#include "gradient/unbiased.h"

namespace kpd::gradient {
namespace {

using namespace unbiased;

TEST(Unbiased, EveryCodecAtEveryRate) {
  for (const std::string& spec : specs_at({.05, .5, 1, 4})) expect_unbiased(spec, lognormal_input(64), "lognormal");
  for (const std::string& spec : specs_at({.05, .1})) expect_unbiased(spec, lognormal_input(96), "lognormal");
}

// The statistic sees what it is for: the scale of large dimension is too short at n = 96, a biased code shrinks.
TEST(Unbiased, AShrunkenEstimateIsSeen) {
  const Bias b = measure("eden:bits=4,scale=biased", lognormal_input(96), 4000);
  EXPECT_LT(b.shrinkage, -5 * b.shrinkage_error - 1e-6);
  EXPECT_GT(b.deviation, 5);
  const auto step = quant::gaussian_step(Codec::parse("eden:bits=.05,code=entropy").params().param);
  EXPECT_LT(step->sphere_zq(96) / step->expected_zq, .9);
}

}  // namespace
}  // namespace kpd::gradient
