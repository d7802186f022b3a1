// tests: the rotation of any length is orthogonal, invertible, equal on every instruction set, and different for every key.
#include "kpd/transform/rotation.h"

#include <algorithm>
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
    for (const int rounds : {1, 2, 3, kMaxRounds}) {
      const std::vector<float> x = random_floats(n, n);
      std::vector<float> y = x;
      const BlockKey key{42, n};
      rotate(y, rounds, key);
      EXPECT_NEAR(norm2(y) / norm2(x), 1.0, 2e-6) << n << " " << rounds;
      EXPECT_NE(std::memcmp(y.data(), x.data(), 4 * n), 0);
      rotate_inverse(y, rounds, key);
      for (size_t i = 0; i < n; ++i) ASSERT_NEAR(y[i], x[i], 4e-5f) << n << " " << rounds << " " << i;
    }
  }
}

TEST(Rotation, SpreadsASpikeOverEveryLength) {
  for (const size_t n : {1024, 1500, 2000, 4096, 6144, 7000}) {
    for (const size_t at : {size_t{0}, n / 3, n - 1}) {
      std::vector<float> y(n);
      y[at] = 1;
      rotate(y, 2, {7, at});
      float most = 0;
      for (const float v : y) most = std::max(most, std::fabs(v));
      // A Gaussian of variance 1/n hardly passes 6 sigma; overlapped lengths are a little uneven.
      EXPECT_LT(most, 8.0f / std::sqrt(static_cast<float>(n))) << n << " " << at;
    }
  }
}

// Where two overlapping transforms are all there is, energy at one end stays there: 8191 numbers whose energy is in the first
// quarter kept 3.6 times as much of it in their first half as in the second after two rounds.
TEST(Rotation, EnergyCrossesLengthsThatAreNoPowerOfTwo) {
  for (const size_t n : {65, 96, 127, 129, 1000, 1023, 1536, 4097, 6144, 7936, 8191}) {
    for (const bool at_end : {false, true}) {
      double first = 0, second = 0;
      for (uint64_t block = 0; block < 40000 / n + 1; ++block) {
        std::vector<float> y = random_floats(n, block);
        const size_t quarter = n / 4;
        std::fill(at_end ? y.begin() : y.begin() + static_cast<ptrdiff_t>(quarter),
                  at_end ? y.end() - static_cast<ptrdiff_t>(quarter) : y.end(), 0.0f);
        rotate(y, 2, {7, block});
        for (size_t i = 0; i < n / 2; ++i) {
          first += static_cast<double>(y[i]) * y[i];
          second += static_cast<double>(y[n - 1 - i]) * y[n - 1 - i];
        }
      }
      EXPECT_NEAR(first / second, 1.0, .06) << n << (at_end ? " end" : " start");
    }
  }
}

// Words of different purposes are different words: rounds 1 to 6 and both transforms of each.
TEST(Rotation, PurposesDoNotMeet) {
  std::vector<std::vector<uint32_t>> all;
  const auto add = [&](Purpose purpose, uint32_t round) {
    all.emplace_back(4);
    random_words({1, 2}, purpose, round, 0, all.back());
  };
  for (uint32_t r = 0; r < kMaxRounds; ++r) {
    add(Purpose::kSigns, r);
    add(Purpose::kSecondSigns, r);
  }
  for (const Purpose p : {Purpose::kTies, Purpose::kWindow, Purpose::kStochastic, Purpose::kDither}) add(p, 0);
  std::sort(all.begin(), all.end());
  EXPECT_EQ(std::unique(all.begin(), all.end()), all.end());
}

TEST(Rotation, EveryPartOfTheKeyMatters) {
  const std::vector<float> x = random_floats(256, 1);
  const auto rotated = [&](const BlockKey& key) {
    std::vector<float> y = x;
    rotate(y, 1, key);
    return y;
  };
  const std::vector<float> base = rotated({1, 2});
  EXPECT_EQ(base, rotated({1, 2}));
  EXPECT_NE(base, rotated({2, 2}));
  EXPECT_NE(base, rotated({1ull << 40 | 1, 2}));
  EXPECT_NE(base, rotated({1, 3}));
  EXPECT_NE(base, rotated({1, 1ull << 33 | 2}));
}

TEST(Rotation, RefusesWrongArguments) {
  std::vector<float> one(1), two(2);
  EXPECT_THROW(rotate(one, 1, {}), Error);
  EXPECT_THROW(rotate(two, 0, {}), Error);
  EXPECT_THROW(rotate(two, kMaxRounds + 1, {}), Error);
}

class RotationIsa : public kpd::testing::IsaTest {};
KPD_ON_EVERY_ISA(RotationIsa);

TEST_P(RotationIsa, EqualsTheScalarOne) {
  for (const size_t n : {2, 63, 64, 200, 512, 4096, 5000}) {
    std::vector<float> got = random_floats(n, n), want = got;
    rotate(got, 3, {9, 8});
    set_isa("scalar");
    rotate(want, 3, {9, 8});
    set_isa(GetParam());
    EXPECT_EQ(std::memcmp(got.data(), want.data(), 4 * n), 0) << n;
  }
}

}  // namespace
}  // namespace kpd::transform
