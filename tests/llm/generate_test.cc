// Sampling and stop texts.
#include "kpd/llm/generate.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kpd/base/error.h"

namespace kpd::llm {
namespace {

TEST(Sampler, TemperatureZeroTakesTheLargest) {
  Sampler sampler({});
  EXPECT_EQ(sampler.pick(std::vector<float>{1, 3, 2, 3}), 1);
}

TEST(Sampler, DrawsFollowTheProbabilities) {
  SamplingOptions o;
  o.temperature = 0.5;
  o.seed = 3;
  Sampler sampler(o);
  const std::vector<float> logits = {0, 0.5f, 1, -3};
  std::vector<double> expected;
  double total = 0;
  for (const float l : logits) total += std::exp(static_cast<double>(l) / 0.5);
  std::vector<size_t> counts(4);
  constexpr size_t kDraws = 20000;
  for (size_t i = 0; i < kDraws; ++i) ++counts[static_cast<size_t>(sampler.pick(logits))];
  for (size_t i = 0; i < 4; ++i) {
    const double p = std::exp(static_cast<double>(logits[i]) / 0.5) / total;
    // Five standard errors.
    EXPECT_NEAR(static_cast<double>(counts[i]) / kDraws, p, 5 * std::sqrt(p * (1 - p) / kDraws) + 1e-9);
  }
  Sampler again(o);
  Sampler third(o);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(again.pick(logits), third.pick(logits));
}

TEST(Sampler, TopKTopPMinP) {
  const std::vector<float> logits = {std::log(0.5f), std::log(0.3f), std::log(0.15f), std::log(0.05f)};
  const auto reached = [&](SamplingOptions o) {
    o.temperature = 1;
    Sampler sampler(o);
    TokenId last = 0;
    for (int i = 0; i < 500; ++i) last = std::max(last, sampler.pick(logits));
    return last;
  };
  EXPECT_EQ(reached({}), 3);
  EXPECT_EQ(reached({.top_k = 2}), 1);
  EXPECT_EQ(reached({.top_p = 0.75}), 1);
  EXPECT_EQ(reached({.top_p = 0.85}), 2);
  EXPECT_EQ(reached({.min_p = 0.5}), 1);
}

TEST(Sampler, RepetitionCosts) {
  Sampler sampler({.repeat_penalty = 2});
  const std::vector<float> logits = {3, 2, -1};
  EXPECT_EQ(sampler.pick(logits), 0);
  EXPECT_EQ(sampler.pick(logits), 1);
}

TEST(Sampler, Refusals) {
  for (const SamplingOptions& o : {SamplingOptions{.temperature = -1}, SamplingOptions{.top_p = 0}, SamplingOptions{.min_p = 2},
                                   SamplingOptions{.repeat_penalty = 0}}) {
    EXPECT_THROW(check_sampling(o), Error);
  }
}

TEST(StopFilter, HoldsBackWhatMayBecomeAStop) {
  StopFilter filter({"END", "\n\n"});
  EXPECT_EQ(filter.push("abE"), "ab");
  EXPECT_EQ(filter.push("N"), "");
  EXPECT_EQ(filter.push("x\n"), "ENx");
  EXPECT_FALSE(filter.stopped());
  EXPECT_EQ(filter.push("\nmore"), "");
  EXPECT_TRUE(filter.stopped());
  EXPECT_EQ(filter.finish(), "");
  StopFilter open({"END"});
  EXPECT_EQ(open.push("fine EN"), "fine ");
  EXPECT_EQ(open.finish(), "EN");
}

}  // namespace
}  // namespace kpd::llm
