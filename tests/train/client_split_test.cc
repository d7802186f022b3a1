// tests: how examples are dealt to clients, and which clients a round has.
#include "train/client_split.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <set>

#include "base/expect_error.h"
#include "kpd/base/error.h"

namespace kpd::train {
namespace {

std::vector<uint8_t> ten_classes(size_t n) {
  std::vector<uint8_t> labels(n);
  for (size_t i = 0; i < n; ++i) labels[i] = static_cast<uint8_t>(i % 10);
  return labels;
}

// Mean over clients of the share of a client's most frequent class.
double top_share(const std::vector<std::vector<uint32_t>>& split, const std::vector<uint8_t>& labels) {
  double sum = 0;
  for (const auto& client : split) {
    std::array<int, 10> counts{};
    for (const uint32_t i : client) ++counts[labels[i]];
    sum += *std::max_element(counts.begin(), counts.end()) / static_cast<double>(client.size());
  }
  return sum / static_cast<double>(split.size());
}

TEST(DirichletSplit, GivesEveryExampleOnce) {
  const auto labels = ten_classes(6000);
  const auto split = dirichlet_split(labels, 10, 30, 200, 0.3, 5);
  std::set<uint32_t> seen;
  for (const auto& client : split) {
    EXPECT_EQ(client.size(), 200u);
    seen.insert(client.begin(), client.end());
  }
  EXPECT_EQ(seen.size(), 6000u);
}

TEST(DirichletSplit, AlphaDecidesHowUnequalClientsAre) {
  const auto labels = ten_classes(60000);
  const double skewed = top_share(dirichlet_split(labels, 10, 100, 200, 0.05, 1), labels);
  const double medium = top_share(dirichlet_split(labels, 10, 100, 200, 0.3, 1), labels);
  const double even = top_share(dirichlet_split(labels, 10, 100, 200, 1e6, 1), labels);
  EXPECT_GT(skewed, 0.75);
  EXPECT_GT(medium, 0.4);
  EXPECT_LT(medium, 0.7);
  EXPECT_LT(even, 0.2);  // .1 plus sampling noise
}

TEST(DirichletSplit, DependsOnTheSeedOnly) {
  const auto labels = ten_classes(2000);
  EXPECT_EQ(dirichlet_split(labels, 10, 10, 100, 0.3, 9), dirichlet_split(labels, 10, 10, 100, 0.3, 9));
  EXPECT_NE(dirichlet_split(labels, 10, 10, 100, 0.3, 9), dirichlet_split(labels, 10, 10, 100, 0.3, 10));
}

TEST(DirichletSplit, RefusesMoreThanThereIs) {
  const auto labels = ten_classes(1000);
  EXPECT_KPD_ERROR(kInvalidArgument, "examples need", dirichlet_split(labels, 10, 6, 200, 0.3, 1));
  EXPECT_KPD_ERROR(kInvalidArgument, "examples need", dirichlet_split(labels, 10, uint64_t{1} << 60, 16, 0.3, 1));
  EXPECT_EQ(dirichlet_split(labels, 10, 5, 200, 0.3, 1).size(), 5u);
}

TEST(SampleClients, DifferentSortedAndNamedByRound) {
  const std::vector<uint64_t> sizes(300, 200);
  for (const Sampling sampling : {Sampling::kUniform, Sampling::kWeighted}) {
    const auto first = sample_clients(sizes, 10, sampling, 3, 1);
    EXPECT_EQ(first.size(), 10u);
    EXPECT_TRUE(std::is_sorted(first.begin(), first.end()));
    EXPECT_EQ(std::set<uint32_t>(first.begin(), first.end()).size(), 10u);
    EXPECT_EQ(first, sample_clients(sizes, 10, sampling, 3, 1));
    EXPECT_NE(first, sample_clients(sizes, 10, sampling, 3, 2));
    EXPECT_EQ(sample_clients(sizes, 300, sampling, 3, 1).size(), 300u);
  }
}

TEST(SampleClients, EveryClientComesEquallyOften) {
  const std::vector<uint64_t> sizes(20, 1);
  std::vector<int> counts(20);
  for (uint64_t round = 1; round <= 4000; ++round) {
    for (const uint32_t c : sample_clients(sizes, 5, Sampling::kUniform, 11, round)) ++counts[c];
  }
  for (const int count : counts) EXPECT_NEAR(count, 1000, 140);  // 5 sigma
}

TEST(SampleClients, WeightedFollowsTheSizes) {
  std::vector<uint64_t> sizes(20, 100);
  sizes[7] = 1900;  // half of all examples
  int weighted = 0, uniform = 0;
  for (uint64_t round = 1; round <= 2000; ++round) {
    weighted += sample_clients(sizes, 1, Sampling::kWeighted, 2, round)[0] == 7 ? 1 : 0;
    uniform += sample_clients(sizes, 1, Sampling::kUniform, 2, round)[0] == 7 ? 1 : 0;
  }
  EXPECT_NEAR(weighted, 1000, 112);
  EXPECT_NEAR(uniform, 100, 50);
}

TEST(SampleClients, WeightedNeverPicksAnEmptyClientWhileOthersAreLeft) {
  const std::vector<uint64_t> sizes = {0, 5, 0, 5, 0};
  for (uint64_t round = 1; round <= 50; ++round) {
    EXPECT_EQ(sample_clients(sizes, 2, Sampling::kWeighted, 1, round), (std::vector<uint32_t>{1, 3}));
  }
  EXPECT_EQ(sample_clients(sizes, 5, Sampling::kWeighted, 1, 1).size(), 5u);
}

TEST(DeriveSeed, EveryCoordinateMatters) {
  std::set<uint64_t> seen;
  for (uint64_t seed = 0; seed < 4; ++seed) {
    for (const Draw draw : {Draw::kInit, Draw::kOrder, Draw::kDropout}) {
      for (uint64_t a = 0; a < 4; ++a) {
        for (uint64_t b = 0; b < 4; ++b) seen.insert(derive_seed(seed, draw, a, b << 31));
      }
    }
  }
  EXPECT_EQ(seen.size(), 4u * 3 * 4 * 4);
}

}  // namespace
}  // namespace kpd::train
