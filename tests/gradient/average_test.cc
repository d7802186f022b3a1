// tests: averages between ranks: the right mean, the same bits everywhere, errors that name the rank.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <thread>

#include "base/expect_error.h"
#include "gradient/aggregate/averager.h"
#include "gradient/aggregate/second_hop.h"
#include "gradient/aggregate/shards.h"
#include "gradient/round_trip.h"
#include "kpd/base/bytes.h"
#include "kpd/base/hash.h"
#include "kpd/comm/inprocess.h"
#include "kpd/gradient/aggregate.h"

namespace kpd::gradient {
namespace {

using namespace testing;
using kpd::testing::expect_error;

struct Model {
  std::vector<std::vector<float>> tensors;
  std::vector<TensorView> views() const {
    std::vector<TensorView> v;
    for (const auto& t : tensors) v.emplace_back(std::span<const float>(t));
    return v;
  }
  std::vector<std::span<float>> spans() {
    std::vector<std::span<float>> v;
    for (auto& t : tensors) v.emplace_back(t);
    return v;
  }
};

const Manifest kManifest = {
    {"a", DType::kFloat32, {60, 1000}}, {"bias", DType::kFloat32, {7}}, {"b", DType::kFloat32, {10001}}};

Model model_of(int rank) {
  Model m;
  for (size_t i = 0; i < kManifest.size(); ++i) {
    m.tensors.push_back(normal_vector(kManifest[i].count(), 100 * static_cast<uint64_t>(rank) + i));
  }
  return m;
}

struct Outcome {
  Model mean;
  AverageReport report;
  std::string error;
};

// One average of `ranks` ranks, each a thread; weights 1, 2, 3, ...
std::vector<Outcome> average(int ranks, const std::string& codec, AverageOptions options, uint64_t rounds = 1,
                             const std::function<void(int, AverageOptions&, Manifest&)>& change = {}) {
  auto group = comm::make_inprocess_group(ranks);
  std::vector<Outcome> outcomes(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      Outcome& out = outcomes[static_cast<size_t>(r)];
      AverageOptions own = options;
      Manifest manifest = kManifest;
      own.weight = static_cast<uint64_t>(r) + 1;
      own.run = 5;
      if (change) change(r, own, manifest);
      const Model x = model_of(r);
      out.mean = model_of(r);
      try {
        Averager averager(*group[static_cast<size_t>(r)], manifest, Codec::parse(codec), RunSecret::from_seed(3), own);
        for (uint64_t round = 0; round < rounds; ++round) {
          out.report = averager.average(round, x.views(), out.mean.spans());
        }
      } catch (const Error& e) {
        out.error = e.what();
        group[static_cast<size_t>(r)].reset();
      }
    });
  }
  for (std::thread& t : threads) t.join();
  return outcomes;
}

uint64_t hash_of(const Model& m) {
  uint64_t hash = 0;
  for (const auto& t : m.tensors) {
    hash = hash * 31 + hash64({reinterpret_cast<const uint8_t*>(t.data()), t.size() * 4});
  }
  return hash;
}

double nmse(const Model& got, int ranks) {
  double error = 0, norm = 0, total = 0;
  std::vector<Model> x;
  for (int r = 0; r < ranks; ++r) {
    x.push_back(model_of(r));
    total += r + 1;
  }
  for (size_t t = 0; t < kManifest.size(); ++t) {
    for (size_t i = 0; i < got.tensors[t].size(); ++i) {
      double mean = 0;
      for (int r = 0; r < ranks; ++r) {
        const double v = x[static_cast<size_t>(r)].tensors[t][i];
        mean += (r + 1) / total * v;
        norm += v * v / ranks;
      }
      error += (got.tensors[t][i] - mean) * (got.tensors[t][i] - mean);
    }
  }
  return error / norm;
}

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

TEST(Averaging, ScatterReduceAllgatherSendsTwoOfNShares) {
  AverageOptions options;
  options.pattern = Pattern::kSra;
  options.second = Codec::parse("eden:bits=2");
  const std::vector<Outcome> sra = average(4, "eden:bits=2", options);
  options.pattern = Pattern::kAllgather;
  options.second.reset();
  const std::vector<Outcome> all = average(4, "eden:bits=2", options);
  const double ratio = static_cast<double>(sra[1].report.sent_bytes) / static_cast<double>(all[1].report.sent_bytes);
  EXPECT_NEAR(ratio, 2.0 / 4, .02);
}

TEST(Averaging, EqualVectorsGetMoreBitsInTheSecondHop) {
  auto group = comm::make_inprocess_group(4);
  std::vector<AverageReport> reports(4);
  std::vector<std::thread> threads;
  for (int r = 0; r < 4; ++r) {
    threads.emplace_back([&, r] {
      AverageOptions options;
      options.pattern = Pattern::kSra;
      Averager averager(*group[static_cast<size_t>(r)], kManifest, Codec::parse("eden:bits=2"), RunSecret::from_seed(3),
                        options);
      const Model x = model_of(0);
      Model mean = model_of(0);
      reports[static_cast<size_t>(r)] = averager.average(0, x.views(), mean.spans());
    });
  }
  for (std::thread& t : threads) t.join();
  // The first hop errs by 3/16 v of |x|^2 (the own part is exact), the mean is x and that error long.
  const double v = Codec::parse("eden:bits=2").limit_vnmse(), target = 3.0 / 16 * v / (1 + 3.0 / 16 * v);
  for (const AverageReport& r : reports) {
    EXPECT_LT(Codec::parse(str("eden:bits=", r.second_bits)).limit_vnmse(), 1.01 * target);
    EXPECT_GT(Codec::parse(str("eden:bits=", r.second_bits - .125)).limit_vnmse(), .99 * target);
  }
}

TEST(SecondHop, ErrsAsTheFirstWhateverTheMethod) {
  for (const char* spec : {"eden:bits=.1", "eden:bits=.3,code=entropy", "hadamard-sq:bits=1", "randk:bits=1", "sq:bits=2",
                           "eden:bits=1,scale=biased"}) {
    const Codec codec = Codec::parse(spec);
    for (const double factor : {.9, .3, .06}) {
      const double bits = second_hop_bits(codec, factor, 32);
      const double limit = with_bits(codec, bits).limit_vnmse() / codec.limit_vnmse();
      EXPECT_LE(limit, factor) << spec;
      // A step less would err more.
      const double step = std::min(1.0, codec.bits()) / 8;
      EXPECT_GT(with_bits(codec, bits - step).limit_vnmse() / codec.limit_vnmse(), factor * .99) << spec << " " << bits;
    }
    EXPECT_EQ(second_hop_bits(codec, 1.5, 32), codec.bits()) << spec;
    EXPECT_LE(second_hop_bits(codec, 1e-3, codec.bits() + .2), codec.bits() + .2) << spec;
  }
  EXPECT_EQ(second_hop_bits(Codec::parse("qsgd:bits=4"), .3, 32), 6);        // whole bits only
  EXPECT_EQ(second_hop_bits(Codec::parse("kashin-sq:bits=2"), .25, 32), 3);  // no limit: half a bit a factor of two
  EXPECT_EQ(second_hop_bits(Codec::parse("eden:bits=6"), 1e-9, 32), 8);      // the most it takes
  EXPECT_EQ(second_hop_bits(Codec::parse("drive"), .1, 32), 1);              // has none to choose
  EXPECT_LT(second_hop_bits(Codec::parse("eden:bits=1"), .5, .97), .9701);   // two ranks: no more than allgather
}

// With few ranks below one bit the rule of high rates sent 4 times what allgather sends; equal errors would send twice as much.
TEST(Averaging, ScatterReduceAllgatherNeverSendsMoreThanAllgather) {
  for (const int ranks : {2, 3, 4}) {
    for (const char* codec : {"eden:bits=.1", "eden:bits=.5", "hadamard-sq:bits=1"}) {
      uint64_t bytes[2];
      for (const Pattern pattern : {Pattern::kAllgather, Pattern::kSra}) {
        AverageOptions options;
        options.pattern = pattern;
        const std::vector<Outcome> out = average(ranks, codec, options);
        ASSERT_EQ(out[0].error, "");
        bytes[pattern == Pattern::kSra ? 1 : 0] = out[0].report.sent_bytes;
      }
      EXPECT_LE(bytes[1], bytes[0]) << ranks << " " << codec;
    }
  }
}

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
  EXPECT_THROW(encoder.encode_message(feedback.add({&view, 1}), {}, message), Error);
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

TEST(ShardsTest, NoTwoHaveOneManifest) {
  const Manifest even = {{"a", DType::kFloat32, {400}}};
  const Shards four(even, 4), two(even, 2);
  EXPECT_EQ(four.manifest(3)[0].name, "3/4:0[300:400]");
  EXPECT_NE(manifest_hash(four.manifest(0)), manifest_hash(four.manifest(1)));
  EXPECT_NE(manifest_hash(four.manifest(0)), manifest_hash(two.manifest(0)));
}

TEST(ShardsTest, CoverEveryElementOnce) {
  for (const uint64_t n : {1u, 2u, 3u, 7u, 100u}) {
    const Shards shards(kManifest, n);
    Model m = model_of(0);
    for (auto& t : m.tensors) std::fill(t.begin(), t.end(), 0.0f);
    uint64_t least = ~uint64_t{0}, most = 0;
    for (size_t s = 0; s < n; ++s) {
      for (const std::span<float> part : shards.spans(s, m.spans())) {
        for (float& v : part) v += 1;
      }
      least = std::min(least, shards.elements(s));
      most = std::max(most, shards.elements(s));
    }
    EXPECT_LE(most - least, 1u);
    for (const auto& t : m.tensors) {
      for (const float v : t) ASSERT_EQ(v, 1.0f);
    }
  }
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
  std::thread other(
      [&] { EXPECT_THROW(Averager(*group[1], kManifest, Codec::parse("drive"), RunSecret::from_seed(2)), Error); });
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
      EXPECT_THROW(averager.average(0, x.views(), mean.spans()), Error);
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
