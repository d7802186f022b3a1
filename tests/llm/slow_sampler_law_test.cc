// A million draws of each kind against the law that a sort in double gives.
#include <gtest/gtest.h>

#include <span>

#include "llm/sampler_fixture.h"

namespace kpd::llm {
namespace {

using namespace testing;

TEST(SamplerLaw, AMillionDraws) {
  const std::vector<std::vector<float>> all = rows(500);
  for (const size_t kind : {0, 4}) {
    const std::vector<float>& row = all[kind];
    const std::vector<SamplingOptions> some = laws();
    for (SamplingOptions o : std::span(some).first(6)) {
      o.seed = 2026;
      EXPECT_LT(deviation(draw_counts(row, o, 1000000), expected_law(row, o)), 4.5) << describe_sampling(o);
    }
  }
}

}  // namespace
}  // namespace kpd::llm
