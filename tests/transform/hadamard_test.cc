// tests: the rotation of any length is orthogonal, invertible, equal on every instruction set, and different for every key.
#include "kpd/transform/hadamard.h"

#include <cmath>
#include <cstring>

#include "kernels/isa_fixture.h"
#include "kpd/base/error.h"

namespace kpd::transform {
namespace {

using kpd::testing::random_floats;

double norm2(const std::vector<float>& x) {
  double sum = 0;
  for (const float v : x) sum += static_cast<double>(v) * v;
  return sum;
}

TEST(Rotation, KeepsTheNormAndInverts) {
  for (const size_t n : {2, 3, 5, 64, 65, 100, 127, 128, 1000, 1023, 4095, 4096, 4097, 6144, 8191, 8192}) {
    for (const int rounds : {1, 2, 3}) {
      const std::vector<float> x = random_floats(n, n);
      std::vector<float> y = x;
      const BlockKey key{42, n, static_cast<uint32_t>(rounds)};
      rotate(y, rounds, key);
      EXPECT_NEAR(norm2(y) / norm2(x), 1.0, 2e-6) << n << " " << rounds;
      EXPECT_NE(std::memcmp(y.data(), x.data(), 4 * n), 0);
      rotate_inverse(y, rounds, key);
      for (size_t i = 0; i < n; ++i) ASSERT_NEAR(y[i], x[i], 2e-5f) << n << " " << rounds << " " << i;
    }
  }
}

TEST(Rotation, SpreadsASpikeOverEveryLength) {
  for (const size_t n : {1024, 1500, 2000, 4096, 6144, 7000}) {
    for (const size_t at : {size_t{0}, n / 3, n - 1}) {
      std::vector<float> y(n);
      y[at] = 1;
      rotate(y, 2, {7, at, 0});
      float most = 0;
      for (const float v : y) most = std::max(most, std::fabs(v));
      // A Gaussian of variance 1/n hardly passes 6 sigma; overlapped lengths are a little uneven.
      EXPECT_LT(most, 8.0f / std::sqrt(static_cast<float>(n))) << n << " " << at;
    }
  }
}

TEST(Rotation, EveryPartOfTheKeyMatters) {
  const std::vector<float> x = random_floats(256, 1);
  const auto rotated = [&](const BlockKey& key) {
    std::vector<float> y = x;
    rotate(y, 1, key);
    return y;
  };
  const std::vector<float> base = rotated({1, 2, 0});
  EXPECT_EQ(base, rotated({1, 2, 0}));
  EXPECT_NE(base, rotated({2, 2, 0}));
  EXPECT_NE(base, rotated({1ull << 40 | 1, 2, 0}));
  EXPECT_NE(base, rotated({1, 3, 0}));
  EXPECT_NE(base, rotated({1, 1ull << 33 | 2, 0}));
  EXPECT_NE(base, rotated({1, 2, 1}));
}

TEST(Rotation, RefusesWrongArguments) {
  std::vector<float> one(1), two(2);
  EXPECT_THROW(rotate(one, 1, {}), Error);
  EXPECT_THROW(rotate(two, 0, {}), Error);
  EXPECT_THROW(rotate(two, 4, {}), Error);
}

class RotationIsa : public kpd::testing::IsaTest {};
KPD_ON_EVERY_ISA(RotationIsa);

TEST_P(RotationIsa, EqualsTheScalarOne) {
  for (const size_t n : {2, 63, 64, 200, 512, 4096, 5000}) {
    std::vector<float> got = random_floats(n, n), want = got;
    rotate(got, 3, {9, 8, 1});
    set_isa("scalar");
    rotate(want, 3, {9, 8, 1});
    set_isa(GetParam());
    EXPECT_EQ(std::memcmp(got.data(), want.data(), 4 * n), 0) << n;
  }
}

}  // namespace
}  // namespace kpd::transform
