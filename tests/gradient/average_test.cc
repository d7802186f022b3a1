// tests: averages between ranks: the right mean, the same bits everywhere, errors that name the rank.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <thread>

#include "base/expect_error.h"
#include "gradient/aggregate/averager.h"
#include "gradient/average_fixture.h"
#include "gradient/round_trip.h"
#include "kpd/base/bytes.h"
#include "kpd/base/hash.h"
#include "kpd/base/crc32.h"
#include "kpd/comm/inprocess.h"
#include "kpd/gradient/aggregate.h"

namespace kpd::gradient {
namespace {

using namespace testing;
using kpd::testing::expect_error;

// sum of squared weights: the error of a mean of independent estimates is v times this.
double weight_factor(int ranks) {
  double total = 0, squares = 0;
  for (int r = 0; r < ranks; ++r) {
    total += r + 1;
    squares += (r + 1.0) * (r + 1);
  }
  return squares / (total * total);
}

class Average : public ::testing::TestWithParam<std::tuple<Pattern, std::string>> {};
INSTANTIATE_TEST_SUITE_P(All, Average,
                         ::testing::Combine(::testing::Values(Pattern::kGather, Pattern::kAllgather, Pattern::kSra),
                                            ::testing::Values("eden:bits=2,block=64", "eden:bits=4,code=entropy,block=128",
                                                              "eden:bits=3,code=entropy,dither=shared", "qsgd:bits=4",
                                                              "float32")));

TEST_P(Average, IsTheWeightedMeanAndTheSameOnAllRanks) {
  const auto [pattern, codec] = GetParam();
  for (const int ranks : {1, 2, 5}) {
    AverageOptions options;
    options.pattern = pattern;
    const std::vector<Outcome> out = average(ranks, codec, options, 2);
    for (const Outcome& o : out) ASSERT_EQ(o.error, "");
    const double v = Codec::parse(codec).limit_vnmse();
    const double error = nmse(out[0].mean, ranks);
    if (codec == "float32") {
      EXPECT_LT(error, 1e-12);
    } else if (std::isfinite(v)) {
      // sra: every shard's own part is exact, the second code adds its own error.
      const double most = v * weight_factor(ranks) + (pattern == Pattern::kSra ? v * weight_factor(ranks) : 0);
      EXPECT_LT(error, 1.1 * most) << ranks;
      EXPECT_GT(error, ranks == 1 && pattern == Pattern::kSra ? 0 : .2 * most) << ranks;
    }
    for (int r = 1; r < ranks; ++r) {
      const Outcome& o = out[static_cast<size_t>(r)];
      EXPECT_EQ(o.report.has_mean, pattern != Pattern::kGather);
      if (pattern != Pattern::kGather) {
        EXPECT_EQ(hash_of(o.mean), hash_of(out[0].mean));
      }
    }
  }
}

TEST_P(Average, DoesNotDependOnThreads) {
  const auto [pattern, codec] = GetParam();
  AverageOptions options;
  options.pattern = pattern;
  const std::vector<Outcome> one = average(3, codec, options);
  options.threads = 3;
  const std::vector<Outcome> three = average(3, codec, options);
  EXPECT_EQ(hash_of(one[0].mean), hash_of(three[0].mean));
}

TEST(Averaging, RanksThatMeanSomethingElseAreNamed) {
  AverageOptions options;
  const auto errors = [&](const std::function<void(int, AverageOptions&, Manifest&)>& change) {
    return average(3, "eden:bits=2", options, 1, change)[0].error;
  };
  options.timeout = comm::Milliseconds(2000);
  EXPECT_NE(errors([](int r, AverageOptions& o, Manifest&) { o.run += r == 2; }).find("rank 2 averages with another run id"),
            std::string::npos);
  EXPECT_NE(errors([](int r, AverageOptions&, Manifest& m) {
              m[0].name = r == 1 ? "z" : "a";
            }).find("rank 1 averages with another set"),
            std::string::npos);
  EXPECT_NE(errors([](int r, AverageOptions& o, Manifest&) {
              o.pattern = r == 1 ? Pattern::kSra : Pattern::kAllgather;
            }).find("another pattern"),
            std::string::npos);
}

TEST(Averaging, ASilentAndALostRankAreNamed) {
  auto group = comm::make_inprocess_group(2);
  AverageOptions options;
  options.timeout = comm::Milliseconds(30);
  const auto greet = [&] { Averager(*group[0], kManifest, Codec::parse("drive"), RunSecret(), options); };
  EXPECT_KPD_ERROR(kIo, "rank 1 did not answer within 0.03 s", greet());
  group[1].reset();
  EXPECT_KPD_ERROR(kIo, "rank 1 was lost", greet());
}

TEST(Averaging, PatternsByName) {
  EXPECT_EQ(parse_pattern("sra"), Pattern::kSra);
  EXPECT_EQ(pattern_name(Pattern::kAllgather), "allgather");
  EXPECT_KPD_ERROR(kInvalidArgument, "did you mean 'allgather'", parse_pattern("allgathr"));
}

// Passes on all but what `change` does to the pieces of a rank's message.
class Tampering final : public comm::Exchange {
 public:
  Tampering(comm::Exchange& under, std::function<void(std::vector<uint8_t>&)> change)
      : under_(under), change_(std::move(change)) {}
  std::string_view engine() const override { return under_.engine(); }
  int rank() const override { return under_.rank(); }
  int size() const override { return under_.size(); }
  void send(int to, uint32_t tag, std::vector<uint8_t> bytes) override {
    change_(bytes);
    under_.send(to, tag, std::move(bytes));
  }
  comm::Delivery receive(int from, uint32_t tag, std::vector<uint8_t>& bytes, comm::Milliseconds timeout) override {
    return under_.receive(from, tag, bytes, timeout);
  }
  bool lost(int peer) const override { return under_.lost(peer); }
  bool flush(comm::Milliseconds timeout) override { return under_.flush(timeout); }
  comm::Traffic traffic() const override { return under_.traffic(); }

 private:
  comm::Exchange& under_;
  const std::function<void(std::vector<uint8_t>&)> change_;
};

// The checksum is a message's last piece: one that is cut short there, or comes in empty pieces, is no message.
TEST(Averaging, AMessageWithoutItsEndIsNamed) {
  for (const size_t bytes : {size_t{0}, size_t{2}}) {
    for (const Pattern pattern : {Pattern::kAllgather, Pattern::kSra}) {
      auto group = comm::make_inprocess_group(2);
      AverageOptions options;
      options.pattern = pattern;
      options.timeout = comm::Milliseconds(500);
      std::thread liar([&] {
        Tampering exchange(*group[1], [&](std::vector<uint8_t>& piece) {
          if (piece.size() == 4) piece.resize(bytes);
        });
        Averager averager(exchange, kManifest, Codec::parse("eden:bits=2"), RunSecret::from_seed(3), options);
        const Model x = model_of(1);
        Model mean = model_of(1);
        try {
          averager.average(0, x.views(), mean.spans());
        } catch (const Error&) {
          // rank 0 gave up
        }
      });
      Averager averager(*group[0], kManifest, Codec::parse("eden:bits=2"), RunSecret::from_seed(3), options);
      const Model x = model_of(0);
      Model mean = model_of(0);
      // Scatter-reduce asks for more until its time is over: it does not know how many pieces there are.
      const bool asks = bytes > 0 && pattern == Pattern::kSra;
      expect_error(
          asks ? ErrorCode::kIo : ErrorCode::kCorruptData, "rank 1", [&] { averager.average(0, x.views(), mean.spans()); },
          __FILE__, __LINE__);
      liar.join();
    }
  }
}

TEST(Averaging, WrongSizesAreTheCallersFault) {
  for (const Pattern pattern : {Pattern::kGather, Pattern::kAllgather, Pattern::kSra}) {
    auto group = comm::make_inprocess_group(2);
    AverageOptions options;
    options.pattern = pattern;
    std::thread other([&] { Averager(*group[1], kManifest, Codec::parse("drive"), RunSecret(), options); });
    Averager averager(*group[0], kManifest, Codec::parse("drive"), RunSecret(), options);
    other.join();
    Model x = model_of(0), mean = model_of(0);
    x.tensors[2].pop_back();
    EXPECT_KPD_ERROR(kInvalidArgument, "'b' has 10000 elements", averager.average(0, x.views(), mean.spans()));
    mean.tensors[0].pop_back();
    EXPECT_KPD_ERROR(kInvalidArgument, "'a' has 59999 floats", averager.average(0, model_of(0).views(), mean.spans()));
  }
}

TEST(Averaging, AGatherAuthenticates) {
  AverageOptions options;
  options.pattern = Pattern::kGather;
  options.aggregator.mac = [](std::span<const uint8_t> message) {
    std::array<uint8_t, 16> code{};
    store_u64(code.data(), hash64(message));
    return code;
  };
  const std::vector<Outcome> all = average(3, "eden:bits=2", options);
  EXPECT_EQ(all[0].report.ranks, 3u) << all[0].report.verdicts.at(1).reason;
}

// An average that fails half-way leaves nothing for the next.
TEST(Averaging, AGatherKnowsTheWeightsOfItsRanks) {
  auto group = comm::make_inprocess_group(3);
  AverageOptions options;
  options.pattern = Pattern::kGather;
  std::vector<std::thread> others;
  for (int r = 1; r < 3; ++r) {
    others.emplace_back([&, r] {
      Tampering exchange(*group[static_cast<size_t>(r)], [&](std::vector<uint8_t>& message) {
        if (r != 2 || message.size() < 1000) return;
        store_u64(message.data() + 64, 1u << 30);  // the weight
        store_u32(message.data() + message.size() - 4, crc32(std::span(message).first(message.size() - 4)));
      });
      Averager averager(exchange, kManifest, Codec::parse("float32"), RunSecret::from_seed(3), options);
      averager.average(0, model_of(r).views(), {});
    });
  }
  Averager averager(*group[0], kManifest, Codec::parse("float32"), RunSecret::from_seed(3), options);
  Model mean = model_of(0);
  const AverageReport report = averager.average(0, model_of(0).views(), mean.spans());
  for (std::thread& t : others) t.join();
  EXPECT_EQ(report.ranks, 2u);
  EXPECT_EQ(report.verdicts.at(2).refusal, Refusal::kWeight);
  EXPECT_EQ(report.verdicts.at(2).reason, "the message has weight 1073741824, expected 1");
}

// Messages of rounds 0 and 1 come in round 2 or later: they are taken from the engine, which would hold them for ever.
TEST(Averaging, AGatherDrainsWhatComesRoundsLate) {
  auto group = comm::make_inprocess_group(2);
  AverageOptions options;
  options.pattern = Pattern::kGather;
  options.timeout = comm::Milliseconds(20);
  std::thread greeter([&] { Averager(*group[1], kManifest, Codec::parse("drive"), RunSecret::from_seed(3), options); });
  Averager averager(*group[0], kManifest, Codec::parse("drive"), RunSecret::from_seed(3), options);
  greeter.join();
  const Model x = model_of(0);
  Model mean = model_of(0);
  for (uint64_t round = 0; round < 3; ++round) {
    EXPECT_EQ(averager.average(round, x.views(), mean.spans()).verdicts.at(1).refusal, Refusal::kSilent);
  }
  for (uint32_t round = 0; round < 3; ++round) group[1]->send(0, kUpdate + round, std::vector<uint8_t>(1000));
  averager.average(3, x.views(), mean.spans());
  std::vector<uint8_t> left;
  for (uint32_t round = 0; round < 3; ++round)
    EXPECT_EQ(group[0]->receive(1, kUpdate + round, left, comm::Milliseconds(0)), comm::Delivery::kTimedOut) << round;
}

TEST(Averaging, DitheredRoundsGoOnAfterAnError) {
  auto group = comm::make_inprocess_group(2);
  AverageOptions options;
  std::atomic<bool> lie{true};
  const auto play = [&](int rank, comm::Exchange& exchange) {
    Averager averager(exchange, kManifest, Codec::parse("eden:bits=2,code=entropy,dither=shared"), RunSecret::from_seed(3),
                      options);
    const Model x = model_of(rank);
    Model mean = model_of(rank);
    int failed = 0;
    for (uint64_t round = 0; round < 2; ++round) {
      try {
        averager.average(round, x.views(), mean.spans());
      } catch (const Error&) {
        ++failed;
      }
      lie = false;
    }
    return failed;
  };
  std::thread other([&] {
    Tampering exchange(*group[1], [&](std::vector<uint8_t>& message) {
      if (lie && message.size() > 1000) message[500] ^= 1;
    });
    play(1, exchange);
  });
  EXPECT_EQ(play(0, *group[0]), 1);
  other.join();
}

TEST(Averaging, AnotherSecretIsNamed) {
  auto group = comm::make_inprocess_group(2);
  std::thread other([&] {
    EXPECT_KPD_ERROR(kMismatch, "another secret or seed",
                     Averager(*group[1], kManifest, Codec::parse("drive"), RunSecret::from_seed(2)));
  });
  EXPECT_KPD_ERROR(kMismatch, "rank 1 averages with another secret",
                   Averager(*group[0], kManifest, Codec::parse("drive"), RunSecret::from_seed(1)));
  other.join();
}

// Runs `of(rank)` for two ranks side by side.
void two_ranks(const std::function<void(comm::Exchange&)>& of) {
  auto group = comm::make_inprocess_group(2);
  const auto run = [&](size_t rank) {
    try {
      of(*group[rank]);
    } catch (const std::exception& e) {
      ADD_FAILURE() << "rank " << rank << ": " << e.what();
    }
    group[rank].reset();
  };
  std::thread other([&] { run(1); });
  run(0);
  other.join();
}

TEST(Averaging, WhatIsNotFiniteCountsAsZeroIfAsked) {
  for (const Pattern pattern : {Pattern::kGather, Pattern::kAllgather, Pattern::kSra}) {
    for (const char* codec : {"eden:bits=8", "float32"}) {
      two_ranks([&](comm::Exchange& exchange) {
        AverageOptions options;
        options.pattern = pattern;
        options.nonfinite = NonFinite::kZero;
        Averager averager(exchange, kManifest, Codec::parse(codec), RunSecret::from_seed(3), options);
        Model x = model_of(7), mean = model_of(0);
        if (exchange.rank() == 1) {
          for (auto& t : x.tensors) t.front() = t.back() = std::numeric_limits<float>::quiet_NaN();
        }
        const AverageReport report = averager.average(0, x.views(), mean.spans());
        EXPECT_EQ(report.ranks, report.has_mean ? 2u : 0u);
        EXPECT_EQ(report.total_weight, report.has_mean ? 2u : 0u);
        if (!report.has_mean) return;
        const Model clean = model_of(7);
        for (size_t t = 0; t < kManifest.size(); ++t) {
          EXPECT_NEAR(mean.tensors[t].front(), clean.tensors[t].front() / 2, .1) << pattern_name(pattern) << codec;
          EXPECT_NEAR(mean.tensors[t].back(), clean.tensors[t].back() / 2, .1) << pattern_name(pattern) << codec;
        }
      });
    }
  }
  auto group = comm::make_inprocess_group(1);
  AverageOptions options;
  options.nonfinite = NonFinite::kPass;
  EXPECT_KPD_ERROR(kInvalidArgument, "nonfinite=pass",
                   Averager(*group[0], kManifest, Codec::parse("drive"), RunSecret(), options));
}

TEST(Averaging, AnAveragerThatFailedGoesNoFurther) {
  for (const Pattern pattern : {Pattern::kGather, Pattern::kAllgather, Pattern::kSra}) {
    two_ranks([&](comm::Exchange& exchange) {
      AverageOptions options;
      options.pattern = pattern;
      Averager averager(exchange, kManifest, Codec::parse("eden:bits=4"), RunSecret::from_seed(3), options);
      Model x = model_of(7), mean = model_of(0);
      x.tensors[0][exchange.rank() == 1 ? 5 : 6] = std::numeric_limits<float>::infinity();
      EXPECT_KPD_ERROR(kInvalidArgument, "not finite", averager.average(0, x.views(), mean.spans()));
      x = model_of(7);
      if (pattern == Pattern::kGather) {
        EXPECT_EQ(averager.average(1, x.views(), mean.spans()).has_mean, exchange.rank() == 0);
      } else {
        EXPECT_KPD_ERROR(kInvalidArgument, "has to be opened anew", averager.average(1, x.views(), mean.spans()));
      }
    });
  }
}

TEST(Averaging, TheMeanMayTakeThePlaceOfItsInput) {
  for (const Pattern pattern : {Pattern::kGather, Pattern::kAllgather, Pattern::kSra}) {
    Model means[2];
    for (const bool in_place : {false, true}) {
      two_ranks([&](comm::Exchange& exchange) {
        AverageOptions options;
        options.pattern = pattern;
        Averager averager(exchange, kManifest, Codec::parse("eden:bits=4"), RunSecret::from_seed(3), options);
        Model x = model_of(exchange.rank()), apart = model_of(5);
        Model& mean = in_place ? x : apart;
        const bool sends_only = pattern == Pattern::kGather && exchange.rank() > 0;  // it needs no room
        averager.average(0, x.views(), sends_only ? std::vector<std::span<float>>() : mean.spans());
        if (exchange.rank() == 0) means[in_place ? 1 : 0] = mean;
      });
    }
    EXPECT_EQ(means[0].tensors, means[1].tensors) << pattern_name(pattern);
  }
}

}  // namespace
}  // namespace kpd::gradient
