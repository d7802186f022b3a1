// tests: the rotation of rows of any length is orthogonal, invertible, equal on every instruction set and for any grouping of
// rows, and what its definition says.
#include "kpd/transform/rotation.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "kernels/isa_fixture.h"
#include "kpd/base/error.h"
#include "kpd/transform/signs.h"

namespace kpd::transform {
namespace {

using kpd::testing::random_floats;

std::vector<uint32_t> signs_of(const Rotation& rotation, uint64_t seed = 42) {
  std::vector<uint32_t> signs(rotation.n_sign_words());
  fill_signs(rotation, {seed, 1, 2}, signs);
  return signs;
}

// One row, whole or in blocks.
void rotate(std::span<float> y, int rounds, uint64_t seed, Mixing mixing = Mixing::kWhole) {
  const Rotation rotation(y.size(), rounds, mixing);
  rotation.forward(y.data(), 1, y.size(), signs_of(rotation, seed));
}

double norm2(std::span<const float> x) {
  double sum = 0;
  for (const float v : x) sum += static_cast<double>(v) * v;
  return sum;
}

const size_t kLengths[] = {2,   3,   5,   7,   24,   63,   64,   65,   80,   100,  112,
                           127, 128, 192, 576, 1000, 1023, 4095, 4096, 4097, 6144, 8191};

TEST(Rotation, KeepsTheNormAndInverts) {
  for (const Mixing mixing : {Mixing::kWhole, Mixing::kBlocks}) {
    for (const size_t n : kLengths) {
      for (int rounds = 1; rounds <= kMaxRounds; ++rounds) {
        const Rotation rotation(n, rounds, mixing);
        const std::vector<uint32_t> signs = signs_of(rotation);
        const size_t n_rows = n < 200 ? 5 : 2;
        const std::vector<float> x = random_floats(n_rows * n, n);
        std::vector<float> y = x;
        rotation.forward(y.data(), n_rows, n, signs);
        for (size_t r = 0; r < n_rows; ++r) {
          const std::span<const float> row(y.data() + r * n, n);
          EXPECT_NEAR(norm2(row) / norm2(std::span(x).subspan(r * n, n)), 1.0, 2e-6) << n << " " << rounds;
        }
        EXPECT_NE(std::memcmp(y.data(), x.data(), 4 * x.size()), 0);
        rotation.inverse(y.data(), n_rows, n, signs);
        for (size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(y[i], x[i], 4e-5f) << n << " " << rounds << " " << i;
      }
    }
  }
}

bool negated(std::span<const uint32_t> words, size_t i) { return ((words[i / 32] >> (i % 32)) & 1) != 0; }

// H/sqrt(P) over y[first .. first + power), by the matrix.
void hadamard(std::span<double> y, size_t first, size_t power) {
  std::vector<double> out(power);
  for (size_t i = 0; i < power; ++i) {
    for (size_t j = 0; j < power; ++j) out[i] += std::popcount(i & j) % 2 == 0 ? y[first + j] : -y[first + j];
  }
  for (size_t i = 0; i < power; ++i) y[first + i] = out[i] / std::sqrt(static_cast<double>(power));
}

// The definition in the header, in double.
std::vector<double> by_definition(std::span<const float> x, const Rotation& rotation, std::span<const uint32_t> signs) {
  const size_t n = x.size(), power = std::bit_floor(n), set = rotation.words_per_set();
  std::vector<double> y(x.begin(), x.end());
  for (int round = 0; round < rotation.rounds(); ++round) {
    const auto words = signs.subspan(static_cast<size_t>(round) * rotation.sets_per_round() * set, set);
    for (size_t i = 0; i < n; ++i) y[i] = negated(words, i) ? -y[i] : y[i];
    if (rotation.mixing() == Mixing::kBlocks || power == n) {
      for (size_t first = 0; first < n; first += std::bit_floor(n - first)) hadamard(y, first, std::bit_floor(n - first));
      continue;
    }
    hadamard(y, 0, power);
    const auto second = signs.subspan((static_cast<size_t>(round) * 2 + 1) * set, set);
    for (size_t i = 0; i < power; ++i) y[n - power + i] *= negated(second, i) ? -1 : 1;
    hadamard(y, n - power, power);
    for (size_t i = 0; i < n / 2; ++i) {
      const double a = y[i], b = y[n - 1 - i];
      y[i] = (a + b) / std::sqrt(2.0);
      y[n - 1 - i] = (a - b) / std::sqrt(2.0);
    }
  }
  return y;
}

TEST(Rotation, IsWhatTheHeaderSays) {
  for (const Mixing mixing : {Mixing::kWhole, Mixing::kBlocks}) {
    for (const size_t n : {2, 3, 24, 31, 64, 80, 112, 127, 192, 200}) {
      for (int rounds = 1; rounds <= kMaxRounds; ++rounds) {
        const Rotation rotation(n, rounds, mixing);
        const std::vector<uint32_t> signs = signs_of(rotation);
        const std::vector<float> x = random_floats(n, n);
        std::vector<float> y = x;
        rotation.forward(y.data(), 1, n, signs);
        const std::vector<double> want = by_definition(x, rotation, signs);
        for (size_t i = 0; i < n; ++i) ASSERT_NEAR(y[i], want[i], 4e-6) << n << " " << rounds << " " << i;
      }
    }
  }
}

// forward_scaled and inverse_scaled are forward and inverse up to the factors that they state.
TEST(Rotation, ScaledFormsHaveTheStatedGain) {
  for (const Mixing mixing : {Mixing::kWhole, Mixing::kBlocks}) {
    for (const size_t n : {2, 64, 80, 100, 256, 4096, 5000}) {
      for (const int rounds : {1, 2, 3, kMaxRounds}) {
        const Rotation rotation(n, rounds, mixing);
        const std::vector<uint32_t> signs = signs_of(rotation);
        const std::vector<float> x = random_floats(n, n);
        std::vector<float> want = x, y(n);
        rotation.forward(want.data(), 1, n, signs);
        rotation.forward_scaled(x.data(), 0.5f, signs, y.data());
        const double gain = rotation.gain();
        for (size_t i = 0; i < n; ++i) ASSERT_NEAR(y[i] / (0.5 * gain), want[i], 1e-5) << n << " " << rounds;
        std::vector<float> sum(n, 1.0f);
        rotation.inverse_scaled(y.data(), signs, static_cast<float>(6 / (gain * gain)), sum.data(), true);
        for (size_t i = 0; i < n; ++i) ASSERT_NEAR(sum[i], 1 + 3 * x[i], 3e-4) << n << " " << rounds;
      }
    }
  }
}

TEST(Rotation, BlocksAreRotatedApart) {
  std::vector<float> y(80, 0.0f);
  y[70] = 1;
  rotate(y, 3, 1, Mixing::kBlocks);
  EXPECT_EQ(norm2(std::span(y).first(64)), 0);
  EXPECT_NEAR(norm2(std::span(y).subspan(64)), 1, 1e-6);
}

TEST(Rotation, PowersOfTwoAreOneBlock) {
  std::vector<float> whole = random_floats(256, 3), blocks = whole;
  rotate(whole, 2, 1, Mixing::kWhole);
  rotate(blocks, 2, 1, Mixing::kBlocks);
  EXPECT_EQ(whole, blocks);
}

TEST(Rotation, SpreadsASpikeOverEveryLength) {
  for (const size_t n : {1024, 1500, 2000, 4096, 6144, 7000}) {
    for (const size_t at : {size_t{0}, n / 3, n - 1}) {
      std::vector<float> y(n);
      y[at] = 1;
      rotate(y, 2, at);
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
      for (uint64_t seed = 0; seed < 40000 / n + 1; ++seed) {
        std::vector<float> y = random_floats(n, seed);
        const size_t quarter = n / 4;
        std::fill(at_end ? y.begin() : y.begin() + static_cast<ptrdiff_t>(quarter),
                  at_end ? y.end() - static_cast<ptrdiff_t>(quarter) : y.end(), 0.0f);
        rotate(y, 2, seed);
        for (size_t i = 0; i < n / 2; ++i) {
          first += static_cast<double>(y[i]) * y[i];
          second += static_cast<double>(y[n - 1 - i]) * y[n - 1 - i];
        }
      }
      EXPECT_NEAR(first / second, 1.0, .06) << n << (at_end ? " end" : " start");
    }
  }
}

TEST(Rotation, RefusesWrongArguments) {
  const auto code_of = [](auto&& fn) {
    try {
      fn();
    } catch (const Error& e) {
      return e.code();
    }
    return ErrorCode::kIo;
  };
  EXPECT_EQ(code_of([] { Rotation(1, 1); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([] { Rotation(kMaxRotation + 1, 1); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([] { Rotation(2, 0); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([] { Rotation(2, kMaxRounds + 1); }), ErrorCode::kInvalidArgument);
  const Rotation rotation(80, 2);
  std::vector<float> y(80);
  const std::vector<uint32_t> few(rotation.n_sign_words() - 1);
  EXPECT_EQ(code_of([&] { rotation.forward(y.data(), 1, 80, few); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([&] { rotation.inverse(y.data(), 1, 80, few); }), ErrorCode::kInvalidArgument);
}

class RotationIsa : public kpd::testing::IsaTest {};
KPD_ON_EVERY_ISA(RotationIsa);

TEST_P(RotationIsa, EqualsTheScalarOne) {
  for (const Mixing mixing : {Mixing::kWhole, Mixing::kBlocks}) {
    for (const size_t n : {2, 9, 63, 64, 80, 112, 200, 512, 576, 4096, 5000}) {
      const Rotation rotation(n, 3, mixing);
      const std::vector<uint32_t> signs = signs_of(rotation);
      std::vector<float> got = random_floats(3 * n, n), want = got;
      rotation.forward(got.data(), 3, n, signs);
      std::vector<float> back = got, want_back = got;
      rotation.inverse(back.data(), 3, n, signs);
      set_isa("scalar");
      rotation.forward(want.data(), 3, n, signs);
      rotation.inverse(want_back.data(), 3, n, signs);
      set_isa(GetParam());
      EXPECT_EQ(std::memcmp(got.data(), want.data(), 4 * got.size()), 0) << n;
      EXPECT_EQ(std::memcmp(back.data(), want_back.data(), 4 * back.size()), 0) << n;
    }
  }
}

// Rows together, one by one, and spread out in memory: the same bits, and nothing between them changes.
TEST_P(RotationIsa, AnyGroupingOfRowsGivesTheSameBits) {
  for (const Mixing mixing : {Mixing::kWhole, Mixing::kBlocks}) {
    for (const size_t n : {2, 12, 64, 80, 100, 128, 576, 1024}) {
      const Rotation rotation(n, 2, mixing);
      const std::vector<uint32_t> signs = signs_of(rotation);
      const size_t n_rows = 2 * 4096 / n + 3 < 101 ? 2 * 4096 / n + 3 : 101, stride = n + 5;
      const std::vector<float> x = random_floats(n_rows * n, n);
      for (const bool back : {false, true}) {
        const auto turn = [&](float* y, size_t rows, size_t apart) {
          back ? rotation.inverse(y, rows, apart, signs) : rotation.forward(y, rows, apart, signs);
        };
        std::vector<float> together = x, single = x, spread(n_rows * stride, 7.0f);
        turn(together.data(), n_rows, n);
        for (size_t r = 0; r < n_rows; ++r) {
          turn(single.data() + r * n, 1, n);
          std::copy_n(x.data() + r * n, n, spread.data() + r * stride);
        }
        turn(spread.data(), n_rows, stride);
        ASSERT_EQ(std::memcmp(together.data(), single.data(), 4 * single.size()), 0) << n;
        for (size_t r = 0; r < n_rows; ++r) {
          ASSERT_EQ(std::memcmp(spread.data() + r * stride, together.data() + r * n, 4 * n), 0) << n << " row " << r;
          for (size_t i = n; i < stride; ++i) ASSERT_EQ(spread[r * stride + i], 7.0f) << n << " row " << r;
        }
      }
    }
  }
}

}  // namespace
}  // namespace kpd::transform
