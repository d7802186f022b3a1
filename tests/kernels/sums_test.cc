// tests: sums by a fixed tree: every instruction set against the scalar reference, bit for bit; the reference against sums in
// long double, and against the order that sums.h states.
#include "kernels/sums.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "kernels/isa_fixture.h"

namespace kpd::kernels {
namespace {

using kpd::testing::random_floats;

class Sums : public kpd::testing::IsaTest {};
KPD_ON_EVERY_ISA(Sums);

constexpr size_t kLengths[] = {0, 1, 3, 15, 16, 17, 31, 32, 33, 100, 1000, 4096, 8191};

TEST_P(Sums, MagnitudeEqualsTheReference) {
  for (const size_t n : kLengths) {
    const std::vector<float> x = random_floats(n, n);
    const Magnitude got = magnitude(x.data(), n), want = scalar::magnitude(x.data(), n);
    EXPECT_EQ(got.max_abs_bits, want.max_abs_bits) << n;
    EXPECT_EQ(got.sum_squares, want.sum_squares) << n;
  }
}

TEST_P(Sums, DotsEqualTheReference) {
  for (const size_t n : kLengths) {
    const std::vector<float> a = random_floats(n, n + 2), b = random_floats(n, n + 3);
    ASSERT_EQ(dot(a.data(), b.data(), n), scalar::dot(a.data(), b.data(), n)) << n;
    const Dots both = dots(a.data(), b.data(), n);
    ASSERT_EQ(both.ab, dot(a.data(), b.data(), n)) << n;
    ASSERT_EQ(both.bb, dot(b.data(), b.data(), n)) << n;
  }
}

TEST_P(Sums, MagnitudeSeesNonFiniteEverywhere) {
  for (size_t at = 0; at < 100; ++at) {
    std::vector<float> x(100, 1.0f);
    x[at] = at % 2 == 0 ? __builtin_nanf("") : -__builtin_inff();
    EXPECT_GE(magnitude(x.data(), x.size()).max_abs_bits, 0x7f800000u) << at;
  }
}

TEST(SumsReference, IsTheSum) {
  for (const size_t n : kLengths) {
    const std::vector<float> a = random_floats(n, 5), b = random_floats(n, 6);
    long double sum = 0, most = 0;
    float largest = 0;
    for (size_t i = 0; i < n; ++i) {
      sum += static_cast<long double>(a[i]) * b[i];
      most += std::fabs(static_cast<long double>(a[i]) * b[i]);
      largest = std::max(largest, std::fabs(a[i]));
    }
    EXPECT_NEAR(scalar::dot(a.data(), b.data(), n), static_cast<double>(sum),
                static_cast<double>(most) * static_cast<double>(n / 16 + 5) * 0x1p-53);
    EXPECT_EQ(scalar::magnitude(a.data(), n).sum_squares, scalar::dot(a.data(), a.data(), n));
    EXPECT_EQ(scalar::magnitude(a.data(), n).max_abs_bits, std::bit_cast<uint32_t>(largest));
  }
}

// 2^53 + 1 is 2^53 in double: which ones are lost tells who was added to whom.
TEST(SumsReference, TheTreeIsAsStated) {
  double lanes[kSumLanes] = {};
  lanes[0] = 0x1p53;
  lanes[8] = 1;  // lost at once
  lanes[4] = 1;  // with lane 12 it is two, which is kept
  lanes[12] = 1;
  lanes[2] = 1;  // with lanes 6, 10, 14 it is four
  lanes[6] = 1;
  lanes[10] = 1;
  lanes[14] = 1;
  EXPECT_EQ(sum_lanes(lanes), 0x1p53 + 6);
  // Element i goes to lane i % 16: the ones at 16 and 32 are lost one by one beside the 2^53 at 0, those at 1 and 17 are two.
  std::vector<float> a(48, 0.0f), b(48, 1.0f);
  a[0] = 0x1p53f;
  a[16] = a[32] = a[1] = a[17] = 1;
  EXPECT_EQ(scalar::dot(a.data(), b.data(), a.size()), 0x1p53 + 2);
}

}  // namespace
}  // namespace kpd::kernels
