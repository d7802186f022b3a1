// What a sampler keeps, against a sort in double; penalties and bias; the same draws on every instruction set.
#include "kpd/llm/sampler.h"

#include <gtest/gtest.h>

#include <set>

#include "base/expect_error.h"
#include "kpd/base/cpu.h"
#include "llm/candidates.h"
#include "llm/sampler_fixture.h"

namespace kpd::llm {
namespace {

using namespace testing;

constexpr float kInf = std::numeric_limits<float>::infinity();

TEST(Sampler, GreedyTakesTheFirstOfTheLargest) {
  for (const size_t n : {1, 15, 1024, 1025, 3000}) {
    for (std::vector<float> row : rows(n)) {
      for (const size_t at : {n - 1, n / 2, size_t{0}}) {
        row[at] = 300;
        EXPECT_EQ(Sampler({}).pick(row), static_cast<text::TokenId>(at));
        EXPECT_EQ(Sampler({.temperature = 1, .top_k = 1}).pick(row), static_cast<text::TokenId>(at));
      }
    }
  }
}

TEST(Sampler, DrawsFollowTheLaw) {
  for (const std::vector<float>& row : rows(300)) {
    for (SamplingOptions o : laws()) {
      o.seed = 11;
      EXPECT_LT(deviation(draw_counts(row, o, 600), expected_law(row, o)), 5) << describe_sampling(o);
    }
  }
}

// The whole support: with u spread evenly over (0, 1) every kept token of some weight is drawn, and no other.
TEST(Candidates, KeepWhatASortKeeps) {
  for (const size_t n : {5, 300, 3000}) {
    for (const std::vector<float>& row : rows(n)) {
      for (const SamplingOptions& o : laws()) {
        const float scale = static_cast<float>(1.4426950408889634 / o.temperature);
        const float largest = *std::max_element(row.begin(), row.end());
        Candidates c;
        c.fit(n);
        c.gather(row, -std::numeric_limits<float>::max());
        c.weigh(largest, scale);
        if (o.top_k > 0) c.keep_count(o.top_k);
        if (o.top_p < 1) c.keep_mass(o.top_p * c.total());
        if (o.min_p > 0) c.keep_weights(static_cast<float>(o.min_p));
        const std::vector<double> law = expected_law(row, o);
        double outside = 0;
        const std::vector<text::TokenId> ids = c.kept();
        const std::set<text::TokenId> kept(ids.begin(), ids.end());
        for (size_t i = 0; i < n; ++i) {
          if ((law[i] > 0) == kept.contains(static_cast<text::TokenId>(i))) continue;
          if (law[i] > 1e-37) outside += law[i];  // below that a float has none
          if (law[i] == 0) outside += std::exp((static_cast<double>(row[i]) - static_cast<double>(largest)) / o.temperature);
        }
        // Where float weights put a border elsewhere, the tokens there are as good as equal; a sort in double decides for one.
        EXPECT_LT(outside, 1e-4) << describe_sampling(o) << ", " << n;
        EXPECT_TRUE(std::is_sorted(ids.begin(), ids.end()));
      }
    }
  }
}

TEST(Candidates, BordersAmongEquals) {
  const std::vector<float> row(1000, 0.25f);
  Candidates c;
  c.fit(row.size());
  const auto all = [&] {
    c.gather(row, 0);
    c.weigh(0.25f, 1);
  };
  all();
  c.keep_count(137);
  EXPECT_EQ(c.kept().size(), 137u);
  EXPECT_EQ(c.kept().back(), 136) << "of equals the first";
  all();
  c.keep_mass(0.9 * c.total());
  EXPECT_NEAR(static_cast<double>(c.kept().size()), 900, 1);
  all();
  c.keep_mass(1e-9);
  EXPECT_EQ(c.kept().size(), 1u);
  all();
  c.keep_mass(2 * c.total());
  EXPECT_EQ(c.kept().size(), 1000u);
}

// Logits so near to a common limit that no histogram over their range tells many of them apart.
TEST(Candidates, LogitsThatCrowd) {
  constexpr size_t kCount = 3000;
  std::vector<float> row(kCount);
  for (size_t i = 0; i < kCount; ++i) row[i] = std::ldexp(1.0f, -static_cast<int>(i % 140)) * (i % 2 == 0 ? 1.0f : -3e38f);
  std::vector<float> sorted = row;
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  Candidates c;
  c.fit(kCount);
  for (const size_t k : {1, 64, 65, 700, 1499, 1500, 2999}) {
    c.gather(row, -std::numeric_limits<float>::max());
    c.weigh(sorted[0], 1e-37f);
    c.keep_count(k);
    const std::vector<text::TokenId> kept = c.kept();
    ASSERT_EQ(kept.size(), k);
    float least = kInf;
    for (const text::TokenId id : kept) least = std::min(least, row[static_cast<size_t>(id)]);
    EXPECT_EQ(least, sorted[k - 1]);
  }
}

// Tokens all but equal, in descending order: what is drawn shows where the cut is, to a few in a thousand.
TEST(Sampler, CutsAreWhereTheyShouldBe) {
  std::vector<float> row(1000);
  for (size_t i = 0; i < row.size(); ++i) row[i] = -1e-5f * static_cast<float>(i);
  const auto last = [&](const SamplingOptions& o) {
    Sampler sampler(o);
    text::TokenId most = 0;
    for (int i = 0; i < 2000; ++i) most = std::max(most, sampler.pick(row));
    return most;
  };
  const auto expect_last = [&](const SamplingOptions& o, text::TokenId token) {
    const text::TokenId found = last(o);
    EXPECT_LE(found, token + 1) << describe_sampling(o);
    EXPECT_GE(found, token - 4) << describe_sampling(o);
  };
  expect_last({.temperature = 1}, 999);
  expect_last({.temperature = 1, .top_p = 0.5}, 498);  // those before weigh a little more
  expect_last({.temperature = 1, .top_p = 0.9}, 898);
  expect_last({.temperature = 1, .top_k = 300}, 299);
  expect_last({.temperature = 1, .top_k = 300, .top_p = 0.5}, 149);
  expect_last({.temperature = 1, .min_p = 0.995}, 501);  // 1e-5 a token: exp(-0.005012)
  expect_last({.temperature = 0.1, .min_p = 0.98}, 202);
  expect_last({.temperature = 1, .top_p = 0.9, .min_p = 0.995}, 501);
}

TEST(Sampler, TheTailIsDrawn) {
  // One token has half of the mass, a hundred thousand the other half.
  std::vector<float> row(100001, 0);
  row[777] = std::log(100000.0f);
  Sampler sampler({.temperature = 1, .seed = 4});
  size_t tail = 0;
  std::set<text::TokenId> seen;
  for (int i = 0; i < 200; ++i) {
    const text::TokenId token = sampler.pick(row);
    tail += token == 777 ? 0 : 1;
    seen.insert(token);
  }
  EXPECT_NEAR(static_cast<double>(tail), 100, 36);
  EXPECT_GT(seen.size(), tail * 98 / 100) << "of so many no token comes twice as a rule";
}

TEST(Sampler, TheSameDrawsOnEveryInstructionSet) {
  const std::string before = active_isa();
  std::vector<std::vector<text::TokenId>> picks;
  for (const std::string& isa : available_isas()) {
    set_isa(isa);
    picks.emplace_back();
    for (const std::vector<float>& row : rows(1333)) {
      for (const SamplingOptions& o : laws()) {
        Sampler sampler(o);
        for (int i = 0; i < 20; ++i) picks.back().push_back(sampler.pick(row));
      }
    }
  }
  set_isa(before);
  for (const auto& p : picks) EXPECT_EQ(p, picks[0]);
}

TEST(Sampler, DrawsFollowFromSeedAndNumber) {
  const std::vector<float> even(1000, 0);
  const auto draws = [&](uint64_t seed, uint64_t first) {
    Sampler sampler({.temperature = 1, .seed = seed}, first);
    std::vector<text::TokenId> out;
    for (int i = 0; i < 8; ++i) out.push_back(sampler.pick(even));
    return out;
  };
  EXPECT_EQ(draws(3, 5), draws(3, 5));
  EXPECT_NE(draws(3, 5), draws(4, 5));
  const std::vector<text::TokenId> first = draws(3, 0), later = draws(3, 3);
  EXPECT_TRUE(std::equal(first.begin() + 3, first.end(), later.begin()));
}

TEST(Sampler, PresenceAndFrequencyCountTheAnswerAlone) {
  const std::vector<float> row = {5, 4.5f, 1};
  SamplingOptions o;
  o.presence_penalty = 1;
  Sampler presence(o);
  presence.seen(0);  // of the prompt
  EXPECT_EQ(presence.pick(row), 0);
  EXPECT_EQ(presence.pick(row), 1);
  EXPECT_EQ(presence.pick(row), 0) << "4 and 3.5, however often";
  EXPECT_EQ(presence.pick(row), 0);
  o = {};
  o.frequency_penalty = 1;
  Sampler frequency(o);
  std::vector<text::TokenId> picks;
  for (int i = 0; i < 9; ++i) picks.push_back(frequency.pick(row));
  EXPECT_EQ(picks, (std::vector<text::TokenId>{0, 1, 0, 1, 0, 1, 0, 1, 0}));
  o.frequency_penalty = -1;  // asks for repetition
  Sampler eager(o);
  EXPECT_EQ(eager.pick(std::vector<float>{0, 1}), 1);
  EXPECT_EQ(eager.pick(std::vector<float>{1.5f, 1}), 1);
}

TEST(Sampler, Bias) {
  SamplingOptions o;
  o.logit_bias = {{0, -kInf}, {2, 2.5f}};
  EXPECT_EQ(Sampler(o).pick(std::vector<float>{9, 3, 1}), 2);
  o.temperature = 1;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    o.seed = seed;
    EXPECT_NE(Sampler(o).pick(std::vector<float>{9, 3, 1}), 0);
  }
  Sampler short_row(o);
  EXPECT_KPD_ERROR(kInvalidArgument, "the bias of token 2: the vocabulary has 2", short_row.pick(std::vector<float>{1, 2}));
  o.logit_bias = {{1, kInf}};
  EXPECT_KPD_ERROR(kInvalidArgument, "the bias of token 1 is inf", check_sampling(o));
  o.logit_bias = {{-1, 0}};
  EXPECT_KPD_ERROR(kInvalidArgument, "the bias of token -1", check_sampling(o));
}

TEST(Sampler, Description) {
  EXPECT_EQ(describe_sampling({}), "greedy");
  SamplingOptions o{.temperature = 0.8, .top_k = 40, .top_p = 0.95, .min_p = 0.05, .repeat_penalty = 1.1};
  EXPECT_EQ(describe_sampling(o), "temperature 0.8, top-k 40, top-p 0.95, min-p 0.05, repeat penalty 1.1");
}

}  // namespace
}  // namespace kpd::llm
