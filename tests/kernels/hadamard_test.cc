// tests: every instruction set's butterflies and edges against the scalar reference, bit for bit; the reference
// against the definition.
#include "kernels/hadamard.h"

#include <bit>
#include <cstring>

#include "kernels/isa_fixture.h"

namespace kpd::kernels {
namespace {

using kpd::testing::random_bits;
using kpd::testing::random_floats;

class Hadamard : public kpd::testing::IsaTest {};
KPD_ON_EVERY_ISA(Hadamard);

TEST(HadamardReference, IsTheMatrix) {
  const size_t n = 32;
  for (size_t column = 0; column < n; ++column) {
    std::vector<float> x(n), y(n);
    x[column] = 1;
    scalar::fwht(y.data(), n, {x.data(), nullptr, 1.0f}, nullptr);
    for (size_t row = 0; row < n; ++row) EXPECT_EQ(y[row], std::popcount(row & column) % 2 == 0 ? 1.0f : -1.0f);
  }
}

TEST_P(Hadamard, EqualsTheReference) {
  for (size_t n = 2; n <= 65536; n *= 2) {
    const std::vector<float> x = random_floats(n, n);
    const std::vector<uint32_t> before = random_bits(n / 32 + 4, n + 1), after = random_bits(n / 32 + 4, n + 2);
    for (int mode = 0; mode < 8; ++mode) {
      const HadamardIn in{x.data(), (mode & 1) != 0 ? before.data() : nullptr, 0.3f};
      std::vector<float> y(n), want_y(n), got = random_floats(n, 5), want = got;
      fwht(y.data(), n, in, nullptr);
      scalar::fwht(want_y.data(), n, in, nullptr);
      ASSERT_EQ(std::memcmp(y.data(), want_y.data(), 4 * n), 0) << n << " mode " << mode;
      HadamardOut out{got.data(), (mode & 2) != 0 ? after.data() : nullptr, 1.7f, (mode & 4) != 0};
      fwht(y.data(), n, in, &out);
      out.dst = want.data();
      scalar::fwht(want_y.data(), n, in, &out);
      ASSERT_EQ(std::memcmp(got.data(), want.data(), 4 * n), 0) << n << " mode " << mode;
    }
  }
}

// Zeros of either sign and sums that cancel keep the reference's signs; numbers below the normal ones stay.
TEST_P(Hadamard, ZerosAndTinyNumbersEqualTheReference) {
  for (const size_t n : {512, 4096}) {
    std::vector<float> x(n, 0.0f), y(n), want(n);
    for (size_t i = 0; i < n; i += 3) x[i] = -0.0f;
    for (size_t i = 1; i < n; i += 64) x[i] = i % 128 == 1 ? 1e-42f : -1.0f;
    fwht(y.data(), n, {x.data(), nullptr, 1.0f}, nullptr);
    scalar::fwht(want.data(), n, {x.data(), nullptr, 1.0f}, nullptr);
    EXPECT_EQ(std::memcmp(y.data(), want.data(), 4 * n), 0) << n;
  }
}

TEST_P(Hadamard, MirrorPairsEqualTheReferenceAndUndoThemselves) {
  for (const size_t n : {2, 3, 31, 32, 33, 64, 65, 200, 1000, 6144, 8191}) {
    const std::vector<float> x = random_floats(n, n);
    std::vector<float> y = x, want = x;
    mirror_butterfly(y.data(), n);
    scalar::mirror_butterfly(want.data(), n);
    ASSERT_EQ(std::memcmp(y.data(), want.data(), 4 * n), 0) << n;
    EXPECT_FLOAT_EQ(y[0], (x[0] + x[n - 1]) * 0.70710678f);
    if (n % 2 == 1) {
      EXPECT_EQ(y[n / 2], x[n / 2]);
    }
    mirror_butterfly(y.data(), n);
    for (size_t i = 0; i < n; ++i) ASSERT_NEAR(y[i], x[i], 1e-6f) << n << " " << i;
  }
}

TEST_P(Hadamard, WorksInPlace) {
  std::vector<float> x = random_floats(4096, 1), y(4096), want(4096);
  const std::vector<uint32_t> signs = random_bits(128, 2);
  scalar::fwht(want.data(), 4096, {x.data(), signs.data(), 2.0f}, nullptr);
  fwht(x.data(), 4096, {x.data(), signs.data(), 2.0f}, nullptr);
  EXPECT_EQ(x, want);
}

TEST_P(Hadamard, FlipScaleEqualsTheReference) {
  for (const size_t n : {1, 3, 15, 16, 17, 31, 100, 1000, 4096, 8191}) {
    const std::vector<float> x = random_floats(n, n);
    const std::vector<uint32_t> signs = random_bits(n / 32 + 4, n);
    for (const bool accumulate : {false, true}) {
      std::vector<float> got = random_floats(n, 3), want = got;
      flip_scale({x.data(), signs.data(), 0.7f}, n, got.data(), accumulate);
      scalar::flip_scale({x.data(), signs.data(), 0.7f}, n, want.data(), accumulate);
      ASSERT_EQ(std::memcmp(got.data(), want.data(), 4 * n), 0) << n;
    }
  }
}

}  // namespace
}  // namespace kpd::kernels
