// tests: scatter-reduce-allgather's bytes, its second hop, where its shards lie.
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "gradient/aggregate/second_hop.h"
#include "gradient/aggregate/shards.h"
#include "gradient/average_fixture.h"

namespace kpd::gradient {
namespace {

using namespace testing;

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
      const double limit = codec.with_bits(bits).limit_vnmse() / codec.limit_vnmse();
      EXPECT_LE(limit, factor) << spec;
      // A step less would err more.
      const double step = std::min(1.0, codec.bits()) / 8;
      EXPECT_GT(codec.with_bits(bits - step).limit_vnmse() / codec.limit_vnmse(), factor * .99) << spec << " " << bits;
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

}  // namespace
}  // namespace kpd::gradient
