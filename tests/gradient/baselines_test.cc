// gradient: properties of the baseline methods: sizes, round trips, honest statistics, unbiasedness, the papers' error bounds,
// frozen bytes.
#include <gtest/gtest.h>

#include <bit>
#include <cfloat>
#include <cstdio>
#include <limits>

#include "gradient/baseline_fixture.h"
#include "gradient/baseline_tools.h"
#include "gradient/qsgd_fixed.h"
#include "kpd/base/hash.h"
#include "kpd/base/crc32.h"

namespace kpd::gradient {
namespace {

constexpr size_t kLengths[] = {64, 65, 100, 127, 128, 1000, 4095, 4096, 4097, 8191, 3 * 4096 + 17};

// Mean of vNMSE over seeds, and of |mean of decoded - x|^2 * seeds / (sum of errors), which is 1 for an unbiased code.
struct Averages {
  double vnmse = 0, mean_ratio = 0;
};
Averages average(BaselineCodec& codec, const std::vector<float>& x, int seeds) {
  std::vector<double> sum(x.size());
  double error2 = 0;
  for (int s = 0; s < seeds; ++s) {
    const std::vector<float> decoded = codec.decode(codec.encode(x, 1000 + s), x.size(), 1000 + s);
    error2 += squared_distance(decoded, x);
    for (size_t i = 0; i < x.size(); ++i) sum[i] += decoded[i];
  }
  double mean_error2 = 0;
  for (size_t i = 0; i < x.size(); ++i) mean_error2 += (sum[i] / seeds - x[i]) * (sum[i] / seeds - x[i]);
  return {error2 / seeds / squared_norm(x), mean_error2 * seeds * seeds / error2};
}

TEST(Baselines, RoundTripStatisticsAndAccumulate) {
  for (const std::string& spec : baseline_specs()) {
    BaselineCodec codec(spec);
    for (const size_t n : kLengths) {
      if (codec.shape(n).elements != n) continue;
      SCOPED_TRACE(str(spec, ", ", n, " elements"));
      const std::vector<float> x = lognormal_vector(n, n);
      SegmentStats stats;
      const std::vector<uint8_t> bytes = codec.encode(x, 5, &stats);
      const uint64_t bound = codec.codec->segment_bytes(codec.shape(n));
      if (codec.codec->fixed_size()) {
        EXPECT_EQ(bytes.size(), bound);
      }
      EXPECT_LE(bytes.size(), bound);

      const std::vector<float> decoded = codec.decode(bytes, n, 5);
      const double norm2 = squared_norm(x), error2 = squared_distance(decoded, x);
      EXPECT_NEAR(stats.norm2, norm2, 1e-9 * norm2);
      EXPECT_NEAR(stats.error2, error2, 1e-4 * error2 + 1e-10 * norm2);
      EXPECT_EQ(codec.saturated, 0u);

      std::vector<float> sum = normal_vector(n, 3), expected = sum;
      for (size_t i = 0; i < n; ++i) expected[i] += 0.25f * decoded[i];
      codec.codec->decode(bytes, codec.shape(n), BaselineCodec::keys(5), 0.25f, true, sum, codec.scratch);
      EXPECT_EQ(sum, expected);
    }
  }
}

TEST(Baselines, BytesDependOnNothingButInputAndKeys) {
  for (const std::string& spec : baseline_specs()) {
    SCOPED_TRACE(spec);
    BaselineCodec used(spec), fresh(spec);
    const std::vector<float> x = normal_vector(1000, 1);
    (void)used.encode(normal_vector(3000, 2), 9);  // leaves values in the scratch memory
    const std::vector<uint8_t> bytes = used.encode(x, 4);
    EXPECT_EQ(bytes, fresh.encode(x, 4));
    EXPECT_EQ(used.decode(bytes, x.size(), 4), fresh.decode(bytes, x.size(), 4));
  }
}

// The same 64 blocks in the first and in the second segment of a tensor: the codes differ, both decode.
TEST(Baselines, EverySegmentHasItsOwnRandomWords) {
  for (const char* spec :
       {"drive", "drive+", "sq:bits=0.5", "sq", "hadamard-sq", "kashin-sq", "qsgd", "qsgd:norm=max,code=fixed", "terngrad"}) {
    BaselineCodec codec(str(spec, std::string_view(spec).find(':') == std::string_view::npos ? ":" : ",", "block=64"));
    const std::vector<float> x = normal_vector(4096, 5);
    std::vector<uint8_t> bytes[2];
    for (uint64_t i = 0; i < 2; ++i) {
      const SegmentShape shape = segment_shape(3 * 4096, 64, i);
      SegmentStats stats;
      bytes[i].resize(codec.codec->segment_bytes(shape));
      bytes[i].resize(codec.codec->encode(x, shape, BaselineCodec::keys(3), bytes[i], codec.scratch, stats));
      std::vector<float> decoded(4096);
      codec.codec->decode(bytes[i], shape, BaselineCodec::keys(3), 1, false, decoded, codec.scratch);
      EXPECT_NEAR(squared_distance(decoded, x), stats.error2, 1e-4 * stats.error2) << spec;
    }
    EXPECT_NE(bytes[0], bytes[1]) << spec;
  }
}

TEST(Baselines, SizesAreTheStatedBits) {
  const auto bits_of = [](const char* spec, size_t n) {
    BaselineCodec codec(spec);
    return 8 * codec.codec->segment_bytes(codec.shape(n));
  };
  // Two blocks, the second with the tail.
  const size_t n = 2 * 4096 + 100;
  EXPECT_EQ(bits_of("float32", n), 32 * n);
  EXPECT_EQ(bits_of("bf16", n), 16 * n);
  EXPECT_EQ(bits_of("drive", n), 2 * 32 + 4096 + 4200);  // 4196 bits padded
  EXPECT_EQ(bits_of("drive+", n), 4 * 32 + 4096 + 4200);
  EXPECT_EQ(bits_of("sq:bits=3", n), 4 * 32 + 3 * 4096 + 12592);
  EXPECT_EQ(bits_of("hadamard-sq:bits=0.5", n), 4 * 32 + 2048 + 2104);
  EXPECT_EQ(bits_of("kashin-sq:bits=1", n), 4 * 32 + 4096 + 4200);  // all 2n coefficients in n bits
  EXPECT_EQ(bits_of("kashin-sq:bits=2.5", n), 4 * 32 + 10240 + 10496);
  // 512 = 17 * 29 + 19 digits of radix 3, of 7 (21 a group) and of 15 (11 a group), each bucket's in whole bytes.
  EXPECT_EQ(bits_of("qsgd:bits=2,norm=max,code=fixed", 1024), 2 * (32 + 816));   // 17 * 46 + 31 = 813
  EXPECT_EQ(bits_of("qsgd:bits=3,norm=max,code=fixed", 1024), 2 * (32 + 1440));  // 24 * 59 + 23 = 1439
  EXPECT_EQ(bits_of("qsgd:bits=4,norm=max,code=fixed", 1024), 2 * (32 + 2008));  // 46 * 43 + 24 = 2002
  EXPECT_EQ(bits_of("qsgd:bits=7,norm=max,code=fixed", 1025), 2 * 32 + 512 * 7 + 3592);
  EXPECT_EQ(bits_of("terngrad", n), 2 * 32 + 8 * (820 + 840));
  EXPECT_EQ(bits_of("randk:bits=1", n), 32 * (128 + 131));
}

TEST(Baselines, ExactlyUnbiasedOnAnyInput) {
  constexpr int kSeeds = 400;
  constexpr size_t kN = 256;
  std::vector<float> sparse(kN, 0.0f);
  sparse[0] = 1, sparse[1] = 0.99f;
  std::vector<float> constant(kN, 3.5f);
  for (const char* spec : {"sq:bits=1", "sq:bits=0.3", "sq:bits=2.5", "hadamard-sq:bits=1", "hadamard-sq:bits=0.2",
                           "hadamard-sq:bits=3,rounds=1", "kashin-sq:bits=1", "kashin-sq:bits=2.4", "kashin-sq:bits=6",
                           "qsgd:bits=1", "qsgd:bits=3", "qsgd:bits=3,norm=max", "qsgd:bits=2,norm=max,code=fixed",
                           "qsgd:bits=5,norm=max,code=fixed", "qsgd:bits=3,code=fixed", "terngrad", "randk:bits=4"}) {
    BaselineCodec codec(spec);
    for (const std::vector<float>& x : {lognormal_vector(kN, 8), sparse, constant, normal_vector(kN, 2)}) {
      const Averages a = average(codec, x, kSeeds);
      if (a.vnmse < 1e-9) continue;  // nothing was random
      // Independent errors average to 1; a bias adds bias^2 * kSeeds / vnmse. Where the error sits in one or two coordinates
      // (plain methods, sparse input) the ratio spreads like a square of a normal.
      EXPECT_LT(a.mean_ratio, 12.0) << spec << " x[0]=" << x[0];
      if (std::string(spec).find("kashin") == 0 || std::string(spec).find("hadamard") == 0) {
        EXPECT_NEAR(a.mean_ratio, 1.0, 0.5) << spec << " x[0]=" << x[0];
      }
    }
  }
}

// The projection on x has little variance, so that it shows a wrong factor at once: |mean <x^, x> / |x|^2 - 1| within five
// standard errors.
TEST(Baselines, MeanProjectionIsOne) {
  constexpr int kSeeds = 300;
  const std::vector<float> x = lognormal_vector(1024, 8);
  const double norm2 = squared_norm(x);
  for (const std::string& spec : baseline_specs()) {
    if (spec.find("biased") != std::string::npos || spec.find("clip") != std::string::npos || spec == "bf16") continue;
    BaselineCodec codec(spec);
    double sum = 0, sum2 = 0;
    for (int s = 0; s < kSeeds; ++s) {
      const std::vector<float> decoded = codec.decode(codec.encode(x, s), x.size(), s);
      double dot = 0;
      for (size_t i = 0; i < x.size(); ++i) dot += static_cast<double>(decoded[i]) * x[i];
      sum += dot / norm2;
      sum2 += dot / norm2 * (dot / norm2);
    }
    const double mean = sum / kSeeds, variance = sum2 / kSeeds - mean * mean;
    EXPECT_NEAR(mean, 1.0, 5 * std::sqrt(std::max(variance, 0.0) / kSeeds) + 1e-5) << spec;
  }
}

TEST(Baselines, DriveReachesItsLimitAndAverages) {
  const std::vector<float> x = lognormal_vector(64 * 1024, 21);
  struct Case {
    const char* spec;
    double expected;
  };
  for (const Case c : {Case{"drive", 0.570796}, Case{"drive:scale=biased", 0.363380}, Case{"drive+", 0.570796},
                       Case{"drive+:scale=biased", 0.363380}}) {
    BaselineCodec codec(c.spec);
    EXPECT_NEAR(codec.limit(), c.expected, 1e-5);
    SegmentStats stats;
    (void)codec.encode(x, 3, &stats);
    EXPECT_NEAR(stats.error2 / stats.norm2, c.expected, 0.01 * c.expected) << c.spec;
  }
  BaselineCodec drive("drive:block=1024");
  EXPECT_NEAR(average(drive, lognormal_vector(1024, 4), 100).mean_ratio, 1.0, 0.3);
}

TEST(Baselines, DrivePlusIsNoWorseThanDrive) {
  // Two clusters of unequal size and no rotation to speak of: the second centroid pays.
  const std::vector<float> x = normal_vector(128, 5);
  double drive = 0, plus = 0;
  for (int s = 0; s < 50; ++s) {
    BaselineCodec a("drive:block=64,scale=biased"), b("drive+:block=64,scale=biased");
    SegmentStats sa, sb;
    (void)a.encode(x, s, &sa);
    (void)b.encode(x, s, &sb);
    drive += sa.error2;
    plus += sb.error2;
  }
  EXPECT_LT(plus, 0.999 * drive);
}

TEST(Baselines, ErrorsAreWithinThePapersBounds) {
  const std::vector<float> x = lognormal_vector(4096, 33);
  for (const char* spec : {"sq:bits=1",
                           "sq:bits=0.5",
                           "sq:bits=2",
                           "sq:bits=3.5",
                           "sq:bits=8",
                           "hadamard-sq:bits=1",
                           "hadamard-sq:bits=0.1",
                           "hadamard-sq:bits=2",
                           "hadamard-sq:bits=4.25",
                           "hadamard-sq:bits=8",
                           "qsgd:bits=1",
                           "qsgd:bits=4",
                           "qsgd:bits=8",
                           "qsgd:bits=3,code=fixed",
                           "qsgd:bits=4,norm=max",
                           "qsgd:bits=2,norm=max,code=fixed",
                           "qsgd:bits=4,norm=max,code=fixed",
                           "qsgd:bits=8,norm=max,code=fixed",
                           "randk:bits=1",
                           "randk:bits=8",
                           "bf16"}) {
    BaselineCodec codec(spec);
    const double vnmse = average(codec, x, 30).vnmse;
    EXPECT_LT(vnmse, codec.limit() * (std::string(spec).find("randk") == 0 ? 1.05 : 1.0)) << spec;
    EXPECT_GT(vnmse, codec.limit() * (std::string(spec).find("randk") == 0 ? 0.95 : 0.0)) << spec;
  }
  EXPECT_NEAR(BaselineCodec("randk:bits=1").limit(), 31, 1e-9);
  EXPECT_NEAR(BaselineCodec("qsgd:bits=4,block=512").limit(), std::sqrt(512.0) / 8, 1e-9);
  EXPECT_NEAR(BaselineCodec("qsgd:bits=4,norm=max,code=fixed").limit(), (std::sqrt(1 + 511.0 / 49) - 1) / 2, 1e-9);
  EXPECT_NEAR(BaselineCodec("hadamard-sq:bits=2").limit(), (2 * std::log(4096.0) + 2) / 9, 1e-9);
  EXPECT_NEAR(BaselineCodec("sq:bits=1").limit(), 2048, 1e-9);
}

// Kashin's coefficients are flatter than rotated coordinates: at one bit and below, all bits counted, the error is well below
// that of hadamard-sq.
TEST(Baselines, KashinBeatsHadamardAtLowRates) {
  const std::vector<float> x = lognormal_vector(4096, 12);
  for (const char* bits : {"0.1", "0.5", "1"}) {
    BaselineCodec kashin(str("kashin-sq:bits=", bits)), hadamard(str("hadamard-sq:bits=", bits));
    EXPECT_LT(average(kashin, x, 8).vnmse, 0.6 * average(hadamard, x, 8).vnmse) << bits;
  }
  BaselineCodec four("kashin-sq:bits=1,iterations=4"), eight("kashin-sq:bits=1");
  EXPECT_EQ(eight.params.param, 8u);
  const double vnmse = average(eight, x, 8).vnmse;
  EXPECT_LT(vnmse, 0.7 * average(four, x, 8).vnmse);
  EXPECT_NEAR(vnmse, 2.76, 0.1);  // +- .03; 3.56 with the clip levels that suit three iterations
}

// QSGD's theorem 3.2 and corollary 3.3: 2.8 n + 32 bits at s = sqrt(n); at s = 1 about sqrt(n) nonzeros, found by their gaps.
TEST(Baselines, QsgdCodesAreShort) {
  const size_t n = 64 * 512;
  const std::vector<float> x = normal_vector(n, 6);
  BaselineCodec dense("qsgd:bits=5"), sparse("qsgd:bits=1");
  EXPECT_LT(8.0 * static_cast<double>(dense.encode(x, 1).size()), 64 * (2.8 * 512 + 32));
  EXPECT_LT(8.0 * static_cast<double>(sparse.encode(x, 1).size()) / n, 0.5);
  EXPECT_EQ(dense.encode(std::vector<float>(n, 0.0f), 1).size(), 64u * 4);
  // One nonzero costs its gap, its sign and its level.
  std::vector<float> one(512, 0.0f);
  one[300] = -2.5f;
  const std::vector<uint8_t> bytes = sparse.encode(one, 1);
  EXPECT_LE(bytes.size(), 4u + 4);
  EXPECT_EQ(sparse.decode(bytes, 512, 1), one);
}

// The bucket that norm=max treats worst: its error is the limit, whichever the number of levels, and no other's is larger.
TEST(Baselines, QsgdMaxNormReachesItsLimitOnTheWorstBucket) {
  for (const int bits : {2, 3, 4, 6}) {
    BaselineCodec codec(str("qsgd:norm=max,code=fixed,block=256,bits=", bits));
    const double s = codec.params.param, a = s * s / 255, worst = std::sqrt(a * a + a) - a;
    for (const double t : {worst, 0.7 * worst, std::min(1.3 * worst, 0.9)}) {
      std::vector<float> x(256, static_cast<float>(t / s));
      x[100] = -1;
      const double vnmse = average(codec, x, 400).vnmse;
      EXPECT_LT(vnmse, 1.03 * codec.limit()) << bits << " bits, t = " << t;
      if (t == worst) {
        EXPECT_GT(vnmse, 0.97 * codec.limit()) << bits << " bits";
      }
    }
  }
}

// At four bits a coordinate the largest magnitude serves better than the norm, on the same bytes.
TEST(Baselines, QsgdMaxNormBeatsTheNorm) {
  for (const std::vector<float>& x : {lognormal_vector(8192, 5), normal_vector(8192, 6)}) {
    BaselineCodec max("qsgd:bits=4,norm=max,code=fixed"), l2("qsgd:bits=4,norm=l2,code=fixed");
    EXPECT_EQ(max.codec->segment_bytes(max.shape(8192)), l2.codec->segment_bytes(l2.shape(8192)));
    EXPECT_LT(average(max, x, 5).vnmse, 0.6 * average(l2, x, 5).vnmse);
  }
}

TEST(Baselines, DigitsOfEveryRadixReturn) {
  CounterRng rng(3);
  for (uint32_t b = 2; b <= 8; ++b) {
    const uint32_t radix = (1u << b) - 1;
    const baselines::DigitGroup group = baselines::digit_group(b);
    // No other group of at most 64 bits costs less a digit.
    unsigned __int128 power = 1;
    for (uint32_t k = 1, bits = 0; k <= 64; ++k) {
      power *= radix;
      for (unsigned __int128 v = power - 1; v >> bits != 0;) ++bits;
      if (bits > 64) break;
      EXPECT_GE(uint64_t{bits} * group.digits, uint64_t{group.bits} * k) << radix << " " << k;
      EXPECT_EQ(baselines::digit_bits(b, k), uint64_t{k / group.digits} * group.bits +
                                                 (k % group.digits == 0 ? 0 : baselines::digit_bits(b, k % group.digits)));
      if (k <= group.digits) {
        EXPECT_EQ(baselines::digit_bits(b, k), bits);
      }
    }
    for (const size_t n : {1, 2, 28, 29, 30, 63, 64, 500, 512, 1023}) {
      std::vector<uint8_t> digits(n), back(n, 255);
      for (uint8_t& d : digits) d = static_cast<uint8_t>(rng.next_below(3) == 0 ? radix - 1 : rng.next_below(radix));
      std::vector<uint8_t> bytes((baselines::digit_bits(b, static_cast<uint32_t>(n)) + 7) / 8);
      baselines::pack_digits(b, digits, bytes.data());
      baselines::unpack_digits(b, bytes, 0, back);
      EXPECT_EQ(digits, back) << radix << " " << n;
    }
  }
}

// More bits never promise more error: whoever looks for the bits of an error by bisection relies on it.
TEST(Baselines, LimitsFallWithTheBits) {
  for (const char* spec :
       {"sq", "sq:block=64", "hadamard-sq", "randk", "qsgd", "qsgd:norm=max", "qsgd:code=fixed", "qsgd:norm=max,code=fixed"}) {
    double before = std::numeric_limits<double>::infinity();
    const bool whole = std::string_view(spec).find("qsgd") == 0;
    const int least = std::string_view(spec).find("fixed") == std::string_view::npos ? 1 : 2;
    for (int i = whole ? 20 * least : 1; i <= 160; i += whole ? 20 : 1) {
      const std::string bits = whole ? str(i / 20) : str(0.05 * i);
      BaselineCodec codec(str(spec, std::string_view(spec).find(':') == std::string_view::npos ? ":" : ",", "bits=", bits));
      EXPECT_LT(codec.limit(), before) << spec << " bits=" << bits;
      before = codec.limit();
    }
  }
}

TEST(Baselines, ZeroConstantSparseAndExtremeBlocks) {
  for (const std::string& spec : baseline_specs()) {
    SCOPED_TRACE(spec);
    BaselineCodec codec(spec);
    for (const size_t n : {size_t{64}, size_t{127}, size_t{1000}}) {
      const std::vector<float> zeros(n, 0.0f);
      SegmentStats stats;
      EXPECT_EQ(codec.decode(codec.encode(zeros, 2, &stats), n, 2), zeros);
      EXPECT_EQ(stats.error2, 0.0);

      for (const float v : {1.0f, -3.0f, FLT_MIN, 1e-45f, 3e-42f, 1e38f, FLT_MAX}) {
        std::vector<float> one(n, 0.0f), alternating(n, v);
        one[n / 2] = v;
        for (size_t i = 1; i < n; i += 2) alternating[i] = -0.5f * v;
        for (const std::vector<float>& x : {std::vector<float>(n, v), one, alternating}) {
          SegmentStats s;
          const std::vector<float> decoded = codec.decode(codec.encode(x, 2, &s), n, 2);
          for (const float d : decoded) ASSERT_TRUE(std::isfinite(d)) << v;
          EXPECT_TRUE(std::isfinite(s.error2) && std::isfinite(s.norm2)) << v;
          const bool exact = spec.find("sq") == 0 ? codec.params.rate >= kOneBit : spec == "terngrad";
          if (exact && x[0] == x[1]) {
            EXPECT_EQ(decoded, x) << "a constant block is exact";
          }
        }
      }
    }
  }
}

TEST(Baselines, SaturatedValuesAreCounted) {
  const std::vector<float> x(4096, FLT_MAX);
  for (const char* spec : {"drive", "randk:bits=8", "hadamard-sq:bits=0.5", "kashin-sq:bits=0.5"}) {
    BaselineCodec codec(spec);
    (void)codec.decode(codec.encode(x, 1), x.size(), 1);
    EXPECT_GT(codec.saturated, 0u) << spec;
  }
}

TEST(Baselines, ScalingByPowersOfTwoScalesTheResult) {
  for (const std::string& spec : baseline_specs()) {
    BaselineCodec codec(spec);
    const std::vector<float> x = normal_vector(500, 3);
    std::vector<float> small = x;
    for (float& v : small) v *= 0x1p-60f;
    std::vector<float> a = codec.decode(codec.encode(x, 7), 500, 7), b = codec.decode(codec.encode(small, 7), 500, 7);
    for (float& v : a) v *= 0x1p-60f;
    EXPECT_EQ(a, b) << spec;
  }
}

TEST(Baselines, Bf16RoundsToNearestEvenAndStaysFinite) {
  const float inf = std::numeric_limits<float>::infinity();
  BaselineCodec codec("bf16");
  std::vector<float> x(64, 0.0f);
  x[0] = std::bit_cast<float>(0x3f808000u);  // a tie, down to even
  x[1] = std::bit_cast<float>(0x3f818000u);  // a tie, up to even
  x[2] = FLT_MAX, x[3] = -FLT_MAX, x[4] = inf, x[5] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> decoded = codec.decode(codec.encode(x, 1), 64, 1);
  EXPECT_EQ(std::bit_cast<uint32_t>(decoded[0]), 0x3f800000u);
  EXPECT_EQ(std::bit_cast<uint32_t>(decoded[1]), 0x3f820000u);
  EXPECT_EQ(std::bit_cast<uint32_t>(decoded[2]), 0x7f7f0000u);
  EXPECT_EQ(std::bit_cast<uint32_t>(decoded[3]), 0xff7f0000u);
  EXPECT_EQ(decoded[4], inf);
  EXPECT_TRUE(std::isnan(decoded[5]));
}

TEST(Baselines, SubsetsAreExactDistinctAndUniform) {
  constexpr uint32_t kN = 100, kKept = 30;
  AlignedBuffer<uint16_t> indices;
  std::vector<int> hits(kN);
  constexpr int kSeeds = 2000;
  for (uint64_t s = 0; s < kSeeds; ++s) {
    baselines::choose_subset({s, 1}, kN, kKept, indices);
    for (uint32_t i = 0; i < kKept; ++i) {
      ASSERT_LT(indices[i], kN);
      ASSERT_TRUE(i == 0 || indices[i] > indices[i - 1]);
      hits[indices[i]]++;
    }
  }
  const double expected = kSeeds * 0.3, deviation = std::sqrt(kSeeds * 0.3 * 0.7);
  for (const int h : hits) EXPECT_NEAR(h, expected, 5 * deviation);
}

// Frozen bytes: a change here is a change of the stream format. The input is made of integers, so that it is the same
// everywhere.
TEST(Baselines, GoldenBytes) {
  CounterRng rng(2026);
  std::vector<float> x(4096 + 300);
  for (float& v : x) {
    const int64_t a = static_cast<int64_t>(rng.next_u32() >> 12) - (1 << 19);
    v = static_cast<float>(a) * static_cast<float>(rng.next_u32() >> 20) * 0x1p-30f;
  }
  static constexpr uint32_t kGolden[] = {
#include "gradient/baselines_golden.inc"
  };
  EXPECT_EQ(std::size(kGolden), 2 * baseline_specs().size());
  for (size_t i = 0; i < baseline_specs().size(); ++i) {
    BaselineCodec codec(baseline_specs()[i]);
    const std::vector<uint8_t> bytes = codec.encode(x, 11);
    const std::vector<float> decoded = codec.decode(bytes, x.size(), 11);
    const uint32_t encoded_crc = crc32(bytes);
    const uint32_t decoded_crc = crc32({reinterpret_cast<const uint8_t*>(decoded.data()), decoded.size() * 4});
    EXPECT_TRUE(2 * i + 1 < std::size(kGolden) && encoded_crc == kGolden[2 * i] && decoded_crc == kGolden[2 * i + 1])
        << std::hex << "0x" << encoded_crc << ", 0x" << decoded_crc << ",  // " << baseline_specs()[i];
  }
}

}  // namespace
}  // namespace kpd::gradient
