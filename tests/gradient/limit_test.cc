// tests: limit_vnmse for tensors of a given size, the rate that it asks for, and the fixed code in place of an entropy code
// whose codes are shorter than its flush.
#include <gtest/gtest.h>

#include "base/expect_error.h"
#include "gradient/round_trip.h"
#include "gradient/unbiased.h"

namespace kpd::gradient {
namespace {

using testing::round_trip;
using unbiased::lognormal_input;
using unbiased::normal_input;

// Error of single blocks, as the encoder reports it, over `clients`; the mean and its standard error.
std::pair<double, double> measured_error(const std::string& spec, size_t n, int clients) {
  const WireParams params = resolve_params(Codec::parse(spec).params(), n);
  const auto codec = method_by_id(params.method).make(params);
  const SegmentShape shape = segment_shape(n, 1u << params.log2_block, 0);
  Scratch scratch;
  std::vector<uint8_t> bytes(codec->segment_bytes(shape));
  const std::vector<float> x = lognormal_input(n);
  double sum = 0, squares = 0;
  for (int c = 1; c <= clients; ++c) {
    SegmentStats stats;
    const auto seed = static_cast<uint64_t>(c);
    codec->encode(x, shape, {seed * 0xD1B54A32D192ED03u, seed * 0x9E3779B97F4A7C15u}, bytes, scratch, stats);
    const double e = stats.error2 / stats.norm2;
    sum += e, squares += e * e;
  }
  const double mean = sum / clients;
  return {mean, std::sqrt((squares / clients - mean * mean) / clients)};
}

TEST(Limit, IsTheErrorOfItsSize) {
  for (const size_t n : {64, 128, 256, 700}) {
    for (const char* spec : {"eden:bits=0.05", "eden:bits=0.3", "eden:bits=1", "eden:bits=1.5", "eden:bits=4",
                             "eden:bits=1,scale=biased", "eden:bits=2,scale=norm", "eden:bits=0.45,code=entropy,block=64",
                             "eden:bits=1,code=entropy,block=64", "eden:bits=4,code=entropy", "drive", "drive:scale=biased"}) {
      const auto [error, spread] = measured_error(spec, n, 1000);
      const double limit = Codec::parse(spec).limit_vnmse(n);
      EXPECT_NEAR(error, limit, 5 * spread + .01 * limit) << spec << " " << n;
    }
  }
}

TEST(Limit, OfSmallAndLargeTensors) {
  EXPECT_EQ(Codec::parse("eden:bits=1").limit_vnmse(63), 0);  // float32
  EXPECT_EQ(Codec::parse("qsgd").limit_vnmse(1), 0);
  EXPECT_NEAR(Codec::parse("eden:bits=1").limit_vnmse(1 << 20) / Codec::parse("eden:bits=1").limit_vnmse(), 1, 1e-3);
  // Blocks of 64 however long the tensor: 1.243, 1.110 and 1.052 times the limit at 64, 128 and 256.
  for (const auto& [block, ratio] : {std::pair{64, 1.243}, {128, 1.110}, {256, 1.052}}) {
    const Codec codec = Codec::parse(str("eden:bits=0.05,code=entropy,block=", block));
    EXPECT_NEAR(codec.limit_vnmse(1 << 20) / codec.limit_vnmse(), ratio, 5e-4);
  }
  EXPECT_EQ(Codec::parse("eden:bits=2,code=entropy,dither=shared").limit_vnmse(64),
            Codec::parse("eden:bits=2,code=entropy,dither=shared").limit_vnmse());
  // The papers' bounds with the block that there is; the longest block of 4097 + 4000 elements has them all.
  EXPECT_NEAR(Codec::parse("hadamard-sq:bits=2").limit_vnmse(100), (2 * std::log(100.0) + 2) / 9, 1e-12);
  EXPECT_NEAR(Codec::parse("sq:bits=1").limit_vnmse(8097), 8097 / 2.0, 1e-9);
  EXPECT_NEAR(Codec::parse("randk:bits=1").limit_vnmse(80), 80 / 3.0 - 1, 1e-12);  // 2.5 elements are 3
  EXPECT_TRUE(std::isnan(Codec::parse("kashin-sq").limit_vnmse(100)));
}

TEST(Limit, FixedCodeWhereCodesAreShorterThanTheFlush) {
  for (const auto& [bits, first] : {std::pair{1.0, 288}, {4.0, 72}, {.05, 5760}}) {
    const std::string fixed = str("eden:bits=", bits), entropy = fixed + ",code=entropy";
    const WireParams below = resolve_params(Codec::parse(entropy).params(), static_cast<uint64_t>(first - 1));
    EXPECT_EQ(below, resolve_params(Codec::parse(fixed).params(), static_cast<uint64_t>(first - 1))) << bits;
    EXPECT_EQ(resolve_params(Codec::parse(entropy).params(), static_cast<uint64_t>(first)).flags & kFlagEntropy, kFlagEntropy);
    EXPECT_EQ(resolve_params(Codec::parse(entropy).params(), 1).method, 0);
    const std::vector<float> x = normal_input(static_cast<size_t>(first - 1));
    EXPECT_EQ(round_trip(x, entropy).decoded, round_trip(x, fixed).decoded) << bits;  // the records differ
    EXPECT_EQ(round_trip(x, entropy).bytes.size(), round_trip(x, fixed).bytes.size()) << bits;
  }
  for (const char* spec : {"eden:bits=1,code=entropy,dither=shared", "eden:bits=8,code=entropy"}) {
    EXPECT_EQ(resolve_params(Codec::parse(spec).params(), 64).param, Codec::parse(spec).params().param) << spec;
  }
}

TEST(Limit, BitsForAnError) {
  for (const char* spec : {"eden", "eden:code=entropy,bits=0.1", "eden:scale=biased", "eden:allocate=energy,bits=3",
                           "hadamard-sq:rounds=3", "sq:block=64", "qsgd:block=64,bits=2", "randk"}) {
    const Codec codec = Codec::parse(spec);
    for (const uint64_t n : {0, 5000}) {
      for (const double wanted : {.6, .02}) {
        const double bits = bits_for_vnmse(codec, wanted, n);
        ASSERT_FALSE(std::isnan(bits)) << spec << " " << wanted;
        EXPECT_LE(codec.with_bits(bits).limit_vnmse(n), wanted) << spec;
        const double coarser = bits - (std::string(spec).starts_with("qsgd") ? 1 : .05);
        if (coarser < .04) continue;
        EXPECT_GT(codec.with_bits(std::round(coarser * 20) / 20).limit_vnmse(n), wanted) << spec;
      }
    }
  }
  EXPECT_EQ(bits_for_vnmse(Codec::parse("eden:code=entropy,dither=shared,bits=2"), .6), 1);  // which takes no less
  EXPECT_EQ(bits_for_vnmse(Codec::parse("eden"), 1e6), .05);
  EXPECT_EQ(bits_for_vnmse(Codec::parse("eden:bits=4"), .6), 1);
  for (const char* spec : {"drive", "float32", "kashin-sq", "terngrad"}) {
    EXPECT_TRUE(std::isnan(bits_for_vnmse(Codec::parse(spec), .5))) << spec;
  }
  EXPECT_TRUE(std::isnan(bits_for_vnmse(Codec::parse("eden"), 1e-9)));
  EXPECT_TRUE(std::isnan(bits_for_vnmse(Codec::parse("eden"), std::nan(""))));
}

TEST(Limit, WithBitsKeepsTheOtherKeys) {
  EXPECT_EQ(Codec::parse("eden:code=entropy,bits=1,block=256").with_bits(.15).params(),
            Codec::parse("eden:code=entropy,bits=0.15,block=256").params());
  EXPECT_EQ(Codec::parse("eden").with_bits(8).text(), "eden:bits=8");
  EXPECT_KPD_ERROR(kInvalidArgument, "has no key bits", Codec::parse("drive").with_bits(1));
  EXPECT_KPD_ERROR(kInvalidArgument, "bits=9, expected", Codec::parse("eden").with_bits(9));
  EXPECT_KPD_ERROR(kInvalidArgument, "bits=1.5, expected", Codec::parse("qsgd").with_bits(1.5));
  EXPECT_KPD_ERROR(kInvalidArgument, "needs bits >= 1", Codec::parse("eden:code=entropy,dither=shared").with_bits(.5));
}

}  // namespace
}  // namespace kpd::gradient
