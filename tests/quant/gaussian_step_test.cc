// The entropy-coded uniform quantizer: published limits, spent bits, an independent simulation, and the frozen digests of its
// tables.
#include "kpd/quant/gaussian_step.h"

#include <bit>
#include <cmath>
#include <numeric>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "base/expect_error.h"
#include "kpd/base/bytes.h"
#include "kpd/base/error.h"
#include "kpd/base/hash.h"
#include "kpd/base/rng.h"
#include "kpd/quant/lloyd_max.h"

namespace kpd::quant {
namespace {

struct Row {
  double bits, step, vnmse;
};
// bits, step and unbiased limit of the ideal (real-valued probabilities) entropy-coded uniform quantizer.
constexpr Row kTable[] = {{.05, 5.6203, 19.92}, {.1, 5.0715, 9.931},   {.25, 4.2323, 3.749},   {.5, 3.4562, 1.6133},
                          {.75, 2.8994, .8902}, {1, 2.4216, .53454},   {1.5, 1.6101, .21611},  {2, 1.0824, .097624},
                          {3, .52243, .022745}, {4, .25902, .0055908}, {8, .016144, 2.1718e-5}};

uint32_t to_q20(double step) { return static_cast<uint32_t>(step * (1 << 20) + 0.5); }

TEST(GaussianStep, LimitsOfTheTable) {
  for (const Row& row : kTable) {
    const GaussianStep q(to_q20(row.step), false);
    EXPECT_NEAR(unbiased_vnmse(q.cos2()) / row.vnmse, 1, 1e-3) << row.bits;
    EXPECT_NEAR(q.expected_zq, q.expected_q2, 5e-4 * q.expected_q2) << row.bits;  // centroids, but for escapes
    // What 12-bit frequencies, raw low bits and escapes cost beyond the entropy of the indices.
    EXPECT_LE(q.expected_bits, row.bits + (row.bits > 4 ? 0.0045 : 0.002)) << row.bits;
    EXPECT_GE(q.expected_bits, row.bits) << row.bits;
  }
}

TEST(GaussianStep, StepForBitsIsTheFinestWithin) {
  for (const bool dither : {false, true}) {
    for (double bits : {0.05, 0.1, 0.3, 0.9, 1.0, 1.37, 2.0, 3.3, 4.0, 6.0, 8.0}) {
      if (dither && (bits < 0.9 || bits == 1.37 || bits == 3.3)) continue;
      const uint32_t step = step_for_bits(bits, dither);
      EXPECT_LE(gaussian_step_bits(step, dither), bits);
      EXPECT_GT(gaussian_step_bits(step - 1, dither), bits);
      EXPECT_GT(gaussian_step_bits(step, dither), bits - 0.001);
    }
  }
  EXPECT_EQ(step_for_bits(20), kMinStepQ20);
  EXPECT_KPD_ERROR(kInvalidArgument, "as little as 0.001 bits", step_for_bits(0.001));
  EXPECT_KPD_ERROR(kInvalidArgument, "with shared dither", step_for_bits(0.001, true));
  EXPECT_KPD_ERROR(kInvalidArgument, "as little as nan", step_for_bits(std::nan("")));
}

TEST(GaussianStep, RefusesStepsOutsideItsRange) {
  for (uint32_t step : {0u, kMinStepQ20 - 1, kMaxStepQ20 + 1, 0xffffffffu}) {
    EXPECT_KPD_ERROR(kInvalidArgument, "between 4096 and 8388608", GaussianStep(step, false));
    EXPECT_KPD_ERROR(kInvalidArgument, "between 4096 and 8388608", gaussian_step(step, true));
  }
}

TEST(GaussianStep, TablesAreConsistentAtEveryScale) {
  for (const bool dither : {false, true}) {
    for (double step = 8.0; step >= 1.0 / 256; step *= 0.77) {
      const GaussianStep q(to_q20(step), dither);
      ASSERT_LE(q.n_symbols, 128);
      ASSERT_EQ(q.escape_symbol, q.n_symbols - 1);
      ASSERT_EQ(q.n_indices, static_cast<uint32_t>(q.n_symbols - 1) << q.raw_bits);
      ASSERT_EQ(q.values.size(), q.n_indices);
      ASSERT_EQ(q.frequencies.size(), static_cast<size_t>(q.n_classes * q.n_symbols));
      for (int c = 0; c < q.n_classes; ++c) {
        int sum = 0;
        for (uint16_t f : q.class_frequencies(c)) {
          ASSERT_GE(f, 1);
          sum += f;
        }
        ASSERT_EQ(sum, 4096) << step;
      }
      EXPECT_EQ(q.float_step, q.step);
      for (uint32_t u = 0; u < q.n_indices; ++u) {
        const int64_t i = static_cast<int64_t>(u) - q.index_bias;
        ASSERT_LE(std::fabs(q.values[u] - i * q.step), 0.5 * q.step * (1 + 1e-6)) << step << " " << i;
        if (u > 0) {
          ASSERT_GT(q.values[u], q.values[u - 1]);
        }
        const int64_t mirrored = q.index_bias - i;
        if (mirrored >= 0 && mirrored < static_cast<int64_t>(q.n_indices)) {
          ASSERT_EQ(q.values[u], -q.values[mirrored]);
        }
        if (dither) {
          ASSERT_EQ(q.values[u], q.midpoint(i));
        }
      }
    }
  }
}

// Quantizes normal numbers the way a codec does, counts what the tables spend, and compares with the tables' own reckoning.
TEST(GaussianStep, SimulationAgrees) {
  constexpr int kSamples = 1 << 16;
  for (const bool dither : {false, true}) {
    for (double step : {3.4562, 2.4216, 1.0824, 0.25902, 0.05}) {
      const GaussianStep q(to_q20(step), dither);
      CounterRng rng(17, dither);
      double bits = 0, zq = 0, q2 = 0, error2 = 0, z2 = 0, error_sum = 0;
      for (int n = 0; n < kSamples; ++n) {
        const double z = rng.next_normal();
        const int c = n % q.n_classes;
        const double u = dither ? q.step * ((c + rng.next_double()) / q.n_classes - 0.5) : 0;
        const int64_t i = static_cast<int64_t>(std::floor((z + u) / q.step + 0.5));
        const int64_t biased = i + q.index_bias;
        const bool inside = biased >= 0 && biased < static_cast<int64_t>(q.n_indices);
        const int symbol = inside ? static_cast<int>(biased >> q.raw_bits) : q.escape_symbol;
        bits += 12 - std::log2(q.class_frequencies(c)[symbol]) + (inside ? q.raw_bits : kEscapeBits);
        const double decoded = (inside ? q.values[biased] : q.midpoint(i)) - u;
        zq += z * decoded;
        q2 += decoded * decoded;
        z2 += z * z;
        error2 += (decoded - z) * (decoded - z);
        error_sum += decoded - z;
      }
      EXPECT_NEAR(bits / kSamples, q.expected_bits, 0.02) << dither << step;
      EXPECT_NEAR(zq / kSamples, q.expected_zq, 0.02) << dither << step;
      EXPECT_NEAR(q2 / kSamples, q.expected_q2, 0.04) << dither << step;
      EXPECT_LT(std::fabs(error_sum), 5 * std::sqrt(error2)) << dither << step;
      const double limit = dither ? q.dither_vnmse() : q.expected_q2 - 2 * q.expected_zq + 1;
      EXPECT_NEAR(error2 / z2 / limit, 1, 0.03) << dither << step;
    }
  }
}

TEST(GaussianStep, DitherCostsLittle) {
  // Error relative to the plain quantizer at the same rate.
  for (const auto& [bits, ratio] : {std::pair{1.0, 1.04}, {1.5, 1.005}, {2.0, 1.002}, {4.0, 1.002}, {8.0, 1.002}}) {
    const GaussianStep plain(step_for_bits(bits), false);
    const GaussianStep dithered(step_for_bits(bits, true), true);
    EXPECT_LE(dithered.dither_vnmse(), ratio * unbiased_vnmse(plain.cos2())) << bits;
  }
}

TEST(GaussianStep, CacheIsSharedAndThreadSafe) {
  EXPECT_EQ(gaussian_step(1 << 20), gaussian_step(1 << 20));
  EXPECT_NE(gaussian_step(1 << 20), gaussian_step(1 << 20, true));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      for (uint32_t n = 0; n < 150; ++n) {
        const uint32_t step = (1u << 20) + 4096 * ((n * 7 + t) % 100);
        EXPECT_EQ(gaussian_step(step)->step_q20, step);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

std::string table_digest(const GaussianStep& q) {
  std::vector<uint8_t> bytes(4 + 2 * q.frequencies.size() + 4 * q.values.size());
  uint8_t* p = bytes.data();
  store_u32(p, q.step_q20);
  p += 4;
  for (uint16_t f : q.frequencies) {
    store_u16(p, f);
    p += 2;
  }
  for (float v : q.values) {
    store_u32(p, std::bit_cast<uint32_t>(v));
    p += 4;
  }
  return hex(sha256(bytes));
}

// Step, frequencies (u16) and values (float32), little-endian. A change here is a change of the stream format.
TEST(GaussianStep, TablesAreFrozen) {
  struct Frozen {
    double bits;
    bool dither;
    const char* digest;
  };
  const Frozen rows[] = {{.05, false, "07673724471a6e5d0735b1ae1af670081b8ed59a320c1c3c0ec1909a67ae596d"},
                         {.1, false, "1a121469cf67c84131b1269ada6ff96de41e798d004c30dec51f5db2e6c2828d"},
                         {.25, false, "1ae5146231ba86abf143dd35bdc1b98da39868cc4c98b18c74001ce03e7e01a7"},
                         {.5, false, "405b41e58374c225c32ef80eedd2d1656d7068480ed838d185fd956a4ced60d6"},
                         {1, false, "15e79de5357b2b726eb195baab2e82ec61896dc989142e7e7574a16e158873bd"},
                         {1.5, false, "09c15942190b85fffed630e4477a650694ccac7916e27935390673fd7b262cc7"},
                         {2, false, "08f753205a6b0b9066df5cdf575e02e8ef6544b44a88d85876b5478b3b4e91cb"},
                         {3, false, "d058def2bf5469ab85bea5d33f219cef5dc753df4048269ca90c5a0314c4d73a"},
                         {4, false, "b4dced21ba545f7bbd448d8ca166c9a22db241d076425ea5d7fc4f0e3389a6d5"},
                         {8, false, "6ad0fe83545ff68b9fe35b65760e8b3a23ae505e78b23bb58e696e7c937eba8a"},
                         {1, true, "f4b633c0e1abdb7465ede5e3bc9deeec77ee28ca0365b216202f17f56ea50974"},
                         {2, true, "073b74dc2d3567676b4b686bb25f46bfecd0d186286ef41a90bc656a3488aa8e"},
                         {4, true, "71519acca2332dcf5e89a42be3c8cb5b24393e03457f257b1392a73b621af180"},
                         {8, true, "7261e6559beb20e95a0807e2236316d8a5ef59f5e47fd08492c07602982fc8ac"}};
  for (const Frozen& row : rows) {
    EXPECT_EQ(table_digest(GaussianStep(step_for_bits(row.bits, row.dither), row.dither)), row.digest)
        << row.bits << row.dither;
  }
}

}  // namespace
}  // namespace kpd::quant
