// Lloyd-Max codebooks: stationarity, published distortions, limits, and the frozen digests of the float tables.
#include "kpd/quant/lloyd_max.h"

#include <bit>
#include <cmath>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "base/expect_error.h"
#include "kpd/base/bytes.h"
#include "kpd/base/error.h"
#include "kpd/base/hash.h"

namespace kpd::quant {
namespace {

std::string table_digest(const LloydMax& table) {
  std::vector<uint8_t> bytes;
  for (const std::vector<float>* values : {&table.float_levels, &table.float_thresholds}) {
    for (float v : *values) {
      bytes.resize(bytes.size() + 4);
      store_u32(bytes.data() + bytes.size() - 4, std::bit_cast<uint32_t>(v));
    }
  }
  return hex(sha256(bytes));
}

TEST(LloydMax, DistortionsAndLimitsOfTheTable) {
  // b, D_b, D/(1-D), 2 - 2 sqrt(1-D); see docs/methods/eden.md.
  const double rows[8][3] = {{0.363380, 0.570796, 0.404231},          {0.117482, 0.133121, 0.121151},
                             {0.0345478, 0.0357840, 0.0348514},       {0.00950101, 0.00959214, 0.00952368},
                             {0.00250467, 0.00251096, 0.00250624},    {0.000644240, 0.000644655, 0.000644343},
                             {0.000163478, 0.000163505, 0.000163485}, {4.11851e-05, 4.11868e-05, 4.11855e-05}};
  for (int b = 1; b <= 8; ++b) {
    const double cos2 = fixed_rate_expected_q2(b);
    EXPECT_NEAR(lloyd_max(b).distortion / rows[b - 1][0], 1, 5e-6) << b;
    EXPECT_NEAR(biased_vnmse(cos2) / rows[b - 1][0], 1, 5e-6) << b;
    EXPECT_NEAR(unbiased_vnmse(cos2) / rows[b - 1][1], 1, 5e-6) << b;
    EXPECT_NEAR(norm_vnmse(cos2) / rows[b - 1][2], 1, 5e-6) << b;
  }
}

TEST(LloydMax, LevelsOfTheTable) {
  const std::vector<double> expected[4] = {
      {0.7978845608},
      {0.4527800399, 1.5104176087},
      {0.2450941631, 0.7560052490, 1.3439092614, 2.1519456699},
      {0.1283950167, 0.3880482345, 0.6567589958, 0.9423402689, 1.2562309480, 1.6180460517, 2.0690167302, 2.7325888041}};
  for (int b = 1; b <= 4; ++b) {
    ASSERT_EQ(lloyd_max(b).levels.size(), expected[b - 1].size());
    // The published digits stop short of the fixed point by up to 1e-6.
    for (size_t i = 0; i < expected[b - 1].size(); ++i) EXPECT_NEAR(lloyd_max(b).levels[i], expected[b - 1][i], 1e-6);
  }
  EXPECT_NEAR(lloyd_max(8).levels.back(), 4.60351, 5e-5);
}

TEST(LloydMax, EveryCodebookIsStationary) {
  for (int b = 1; b <= 8; ++b) {
    const LloydMax& table = lloyd_max(b);
    EXPECT_EQ(table.bits, b);
    EXPECT_LT(table.residual, 1e-14) << b;
    ASSERT_EQ(table.levels.size(), size_t{1} << (b - 1));
    ASSERT_EQ(table.thresholds.size(), table.levels.size() - 1);
    for (size_t i = 0; i + 1 < table.levels.size(); ++i) {
      EXPECT_LT(table.levels[i], table.thresholds[i]);
      EXPECT_LT(table.thresholds[i], table.levels[i + 1]);
      EXPECT_EQ(table.thresholds[i], 0.5 * (table.levels[i] + table.levels[i + 1]));
      EXPECT_EQ(table.float_thresholds[i], static_cast<float>(table.thresholds[i]));
      EXPECT_EQ(table.float_levels[i], static_cast<float>(table.levels[i]));
    }
  }
}

TEST(LloydMax, FractionalAndSubBitLimits) {
  const double above[6][2] = {{1.25, .4325}, {1.5, .3165}, {1.75, .2180}, {2.5, .08227}, {3.5, .02252}, {4.5, .006039}};
  for (const auto& row : above) EXPECT_NEAR(unbiased_vnmse(fixed_rate_expected_q2(row[0])) / row[1], 1, 3e-4) << row[0];
  const double below[6][2] = {{.75, 1.094}, {.5, 2.142}, {.25, 5.283}, {.1, 14.71}, {.05, 30.4}, {1, 0.570796}};
  for (const auto& row : below) EXPECT_NEAR(unbiased_vnmse(fixed_rate_expected_q2(row[0])) / row[1], 1, 1e-3) << row[0];
  EXPECT_NEAR(unbiased_vnmse(fixed_rate_expected_q2(.5)), 3.14159265358979 - 1, 1e-12);
}

TEST(LloydMax, RefusesRatesOutsideItsRange) {
  for (int b : {-1, 0, 9, 64}) EXPECT_KPD_ERROR(kInvalidArgument, "1 to 8 bits", lloyd_max(b));
  for (double b : {0.0, -1.0, 8.0001, std::nan("")})
    EXPECT_KPD_ERROR(kInvalidArgument, "at most 8 bits", fixed_rate_expected_q2(b));
  EXPECT_NO_THROW(fixed_rate_expected_q2(8));
}

TEST(LloydMax, FloatTablesAreFrozen) {
  const char* expected[8] = {"98af61c2c491a44f933b8033bcda447df60cb86c512ee182a77116f2e6eb13be",
                             "733933fd3db805821a8af109ab9f73b890581d7e39a3cf3736be293d02ddaae0",
                             "674f5599987179f4b74459bad793dec59a67bb2e1d337fe4f18ced92df1581fe",
                             "a465d9b49aa2c9a51f4c5bca45ec252cf068d299e7555d5ea908b48a2da91f49",
                             "64bc6a38bd319e2aa1b409f7987bb21fd846ac5e0f481135b7bad2cafbd48d7a",
                             "96dc2abfbc6d5fcad886b77bba8590cbae9200d5338aa596a9e57c826f98d150",
                             "8cbd03cbee9ec1c86cd98c3caf00b208cb812449ba6918dffe9dbde9c57f176c",
                             "5b9737d36722050ff6148a689bdcf84dfb2f83de7e84590aff4de4c1be6b2d51"};
  for (int b = 1; b <= 8; ++b) EXPECT_EQ(table_digest(lloyd_max(b)), expected[b - 1]) << b;
}

}  // namespace
}  // namespace kpd::quant
