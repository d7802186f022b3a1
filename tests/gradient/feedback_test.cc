// tests: error feedback: nothing is lost for good, and nothing grows.
#include "kpd/gradient/feedback.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <thread>

#include "base/expect_error.h"
#include "gradient/average_fixture.h"

namespace kpd::gradient {
namespace {

using namespace testing;
using kpd::testing::expect_error;

// The means of `rounds` rounds of the same vectors, averaged: what a long training sees.
double error_of_many_rounds(const std::string& codec, Pattern pattern, bool feedback, uint64_t rounds) {
  constexpr int kRanks = 3;
  auto group = comm::make_inprocess_group(kRanks);
  double error = 0;
  std::vector<std::thread> threads;
  for (int r = 0; r < kRanks; ++r) {
    threads.emplace_back([&, r] {
      AverageOptions options;
      options.pattern = pattern;
      options.error_feedback = feedback;
      options.weight = static_cast<uint64_t>(r) + 1;
      Averager averager(*group[static_cast<size_t>(r)], kManifest, Codec::parse(codec), RunSecret::from_seed(3), options);
      const Model x = model_of(r);
      Model mean = model_of(0), all = model_of(0);
      for (auto& t : all.tensors) std::fill(t.begin(), t.end(), 0.0f);
      for (uint64_t round = 0; round < rounds; ++round) {
        averager.average(round, x.views(), mean.spans());
        for (size_t t = 0; t < all.tensors.size(); ++t) {
          for (size_t i = 0; i < all.tensors[t].size(); ++i)
            all.tensors[t][i] += mean.tensors[t][i] / static_cast<float>(rounds);
        }
      }
      if (r == 0) error = nmse(all, kRanks);
    });
  }
  for (std::thread& t : threads) t.join();
  return error;
}

// At 1 bit scale=biased shrinks all to .64 of its length, in every round: an error of .13 of the vector that no number of
// rounds averages away. With feedback the sum of the rounds lacks only what the last one lost.
TEST(ErrorFeedback, TheMeanOfManyRoundsIsTheTruth) {
  for (const Pattern pattern : {Pattern::kGather, Pattern::kAllgather, Pattern::kSra}) {
    const std::string codec = "eden:bits=1,scale=biased";
    const double plain = error_of_many_rounds(codec, pattern, false, 24), kept = error_of_many_rounds(codec, pattern, true, 24);
    EXPECT_GT(plain, .04) << pattern_name(pattern);
    EXPECT_LT(kept, .1 * plain) << pattern_name(pattern);
    // The squared error falls with the square of the rounds.
    EXPECT_LT(kept, .5 * error_of_many_rounds(codec, pattern, true, 12)) << pattern_name(pattern);
  }
}

TEST(ErrorFeedback, WhatWouldGrowIsRefused) {
  auto group = comm::make_inprocess_group(1);
  AverageOptions options;
  options.error_feedback = true;
  const auto make = [&](const char* codec) {
    Averager averager(*group[0], kManifest, Codec::parse(codec), RunSecret::from_seed(3), options);
  };
  EXPECT_KPD_ERROR(kInvalidArgument, "(below 1 is needed) would grow without end", make("eden:bits=.1"));
  EXPECT_KPD_ERROR(kInvalidArgument, "use scale=biased, or more bits", make("randk:bits=2"));
  for (const char* good : {"eden:bits=.1,scale=biased", "eden:bits=4", "drive", "drive:scale=biased", "float32"}) make(good);
}

// A refused vector leaves what is kept as it was; what is not finite counts as 0 if asked, and does not stay.
TEST(ErrorFeedback, NothingThatIsNotFiniteIsKept) {
  const Manifest one = one_tensor(200);
  const Codec codec = Codec::parse("eden:bits=1,scale=biased");
  ErrorFeedback feedback(one, codec, RunSecret::from_seed(1));
  Encoder encoder(one, codec, RunSecret::from_seed(1));
  std::vector<float> x = normal_vector(200, 1);
  x[7] = std::numeric_limits<float>::quiet_NaN();
  const TensorView view{std::span<const float>(x)};
  std::vector<uint8_t> message(encoder.max_bytes());
  EXPECT_KPD_ERROR(kInvalidArgument, "tensor 'x': element 7 is not finite",
                   encoder.encode_message(feedback.add({&view, 1}), {}, message));
  for (const float e : feedback.error()) ASSERT_EQ(e, 0.0f);
  const uint64_t bytes = encoder.encode_message(feedback.add({&view, 1}, true), {}, message);
  feedback.keep(std::span(message).first(bytes), {});
  double norm2 = 0, error2 = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    ASSERT_TRUE(std::isfinite(feedback.error()[i]));
    norm2 += i == 7 ? 0 : static_cast<double>(x[i]) * x[i];
    error2 += static_cast<double>(feedback.error()[i]) * feedback.error()[i];
  }
  EXPECT_LT(error2, .6 * norm2);  // 1 - 2/pi on average
  EXPECT_KPD_ERROR(kInvalidArgument, "keep() without add()", feedback.keep(std::span(message).first(bytes), {}));
}

}  // namespace
}  // namespace kpd::gradient
