// tests: transforms of many rows against the scalar reference, bit for bit, for every length, number of rows, distance between
// rows and kind of edge; the blocks that a length is cut in.
#include <algorithm>
#include <cstring>

#include "kernels/hadamard.h"
#include "kernels/isa_fixture.h"

namespace kpd::kernels {
namespace {

using kpd::testing::random_bits;
using kpd::testing::random_floats;

class HadamardRows : public kpd::testing::IsaTest {};
KPD_ON_EVERY_ISA(HadamardRows);

// The edges of mode bits: signs before, scale before, signs after, scale after.
struct Edges {
  HadamardEdge before, after;
  Edges(int mode, const std::vector<uint32_t>& a, const std::vector<uint32_t>& b, size_t first_bit) {
    if ((mode & 1) != 0) before = {a.data(), first_bit, 1.0f};
    if ((mode & 2) != 0) before.scale = 0.3f;
    if ((mode & 4) != 0) after = {b.data(), first_bit, 1.0f};
    if ((mode & 8) != 0) after.scale = 1.7f;
  }
};

TEST_P(HadamardRows, EqualTheReference) {
  for (size_t n = 1; n <= 1024; n *= 2) {
    const std::vector<uint32_t> a = random_bits(n / 32 + 3, n), b = random_bits(n / 32 + 3, n + 1);
    for (const size_t n_rows : {0, 1, 2, 3, 5, 17}) {
      for (const size_t stride : {n, n + 1, n + 3, 2 * n, 3 * n}) {
        // The last row ends with the memory.
        const size_t size = n_rows == 0 ? 0 : (n_rows - 1) * stride + n;
        const std::vector<float> x = random_floats(size, n + stride);
        for (int mode = 0; mode < 16; ++mode) {
          const Edges edges(mode, a, b, n < 32 ? n * 3 % 32 : 32);
          std::vector<float> got = x, want = x;
          fwht_rows(got.data(), n_rows, n, stride, edges.before, edges.after);
          scalar::fwht_rows(want.data(), n_rows, n, stride, edges.before, edges.after);
          // Between rows too: nothing was written there by either.
          if (size > 0) {
            ASSERT_EQ(std::memcmp(got.data(), want.data(), 4 * size), 0)
                << n << ", " << n_rows << " rows, stride " << stride << ", mode " << mode;
          }
        }
      }
    }
  }
}

TEST_P(HadamardRows, WriteNothingBetweenRows) {
  for (size_t n = 1; n <= 512; n *= 2) {
    const size_t n_rows = 4, stride = n + 7;
    const std::vector<float> x = random_floats(n_rows * stride, n);
    std::vector<float> y = x;
    fwht_rows(y.data(), n_rows, n, stride, {}, {nullptr, 0, 2.0f});
    for (size_t i = 0; i < y.size(); ++i) {
      if (i % stride >= n) {
        ASSERT_EQ(y[i], x[i]) << n << " " << i;
      }
    }
    EXPECT_NE(std::memcmp(y.data(), x.data(), 4 * y.size()), 0) << n;
  }
}

// Any grouping of rows gives the same bits, and those of the transform of one vector.
TEST_P(HadamardRows, OneByOneGiveTheSameBits) {
  for (size_t n = 2; n <= 512; n *= 2) {
    const size_t n_rows = 19;
    const std::vector<uint32_t> signs = random_bits(n / 32 + 1, n);
    const std::vector<float> x = random_floats(n_rows * n, n);
    const HadamardEdge before{signs.data(), 0, 1.0f}, after{nullptr, 0, 0.25f};
    std::vector<float> all = x;
    fwht_rows(all.data(), n_rows, n, n, before, after);
    for (const size_t group : {1, 2, 3, 7}) {
      std::vector<float> got = x;
      for (size_t r = 0; r < n_rows; r += group) {
        fwht_rows(got.data() + r * n, std::min(group, n_rows - r), n, n, before, after);
      }
      ASSERT_EQ(std::memcmp(got.data(), all.data(), 4 * all.size()), 0) << n << " groups of " << group;
    }
    for (size_t r = 0; r < n_rows; ++r) {
      std::vector<float> y(n), got(n);
      const HadamardOut out{got.data(), nullptr, 0.25f};
      fwht(y.data(), n, {x.data() + r * n, signs.data(), 1.0f}, &out);
      ASSERT_EQ(std::memcmp(got.data(), all.data() + r * n, 4 * n), 0) << n << " row " << r;
    }
  }
}

// Zeros of either sign and sums that cancel keep the reference's signs; numbers below the normal ones stay.
TEST_P(HadamardRows, ZerosAndTinyNumbersEqualTheReference) {
  for (size_t n = 2; n <= 512; n *= 2) {
    std::vector<float> x(3 * n, 0.0f);
    for (size_t i = 0; i < x.size(); i += 3) x[i] = -0.0f;
    for (size_t i = 1; i < x.size(); i += 64) x[i] = i % 128 == 1 ? 1e-42f : -1.0f;
    std::vector<float> want = x;
    fwht_rows(x.data(), 3, n, n, {}, {});
    scalar::fwht_rows(want.data(), 3, n, n, {}, {});
    EXPECT_EQ(std::memcmp(x.data(), want.data(), 4 * x.size()), 0) << n;
  }
}

TEST(PowerBlocks, AreTheBinaryDigitsLargestFirst) {
  const auto blocks = [](size_t n) {
    std::vector<size_t> list;
    for_each_power_block(n, [&](size_t, size_t power) { list.push_back(power); });
    return list;
  };
  EXPECT_EQ(blocks(80), (std::vector<size_t>{64, 16}));
  EXPECT_EQ(blocks(112), (std::vector<size_t>{64, 32, 16}));
  EXPECT_EQ(blocks(192), (std::vector<size_t>{128, 64}));
  EXPECT_EQ(blocks(576), (std::vector<size_t>{512, 64}));
  EXPECT_EQ(blocks(128), (std::vector<size_t>{128}));
  EXPECT_EQ(blocks(7), (std::vector<size_t>{4, 2, 1}));
  EXPECT_EQ(blocks(0), (std::vector<size_t>{}));
  for (size_t n = 1; n < 1100; ++n) {
    size_t next = 0;
    for_each_power_block(n, [&](size_t first, size_t power) {
      EXPECT_EQ(first, next) << n;
      EXPECT_EQ(first % (2 * power), 0u) << n;
      next += power;
    });
    EXPECT_EQ(next, n);
  }
}

}  // namespace
}  // namespace kpd::kernels
