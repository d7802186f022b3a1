// tests: quantization kernels of every instruction set against the scalar reference, bit for bit; the reference against the
// definition.
#include "kernels/quantize.h"

#include <cmath>
#include <cstring>

#include "kernels/isa_fixture.h"
#include "kernels/uniform.h"

namespace kpd::kernels {
namespace {

using kpd::testing::random_bits;
using kpd::testing::random_floats;

class Quantize : public kpd::testing::IsaTest {};
KPD_ON_EVERY_ISA(Quantize);

struct Table {
  std::vector<float> thresholds, levels;
  std::vector<uint8_t> starts;
  QuantizeTable view;
  explicit Table(int bits) {
    const size_t n = size_t{1} << (bits - 1);
    for (size_t m = 0; m < n; ++m) {
      levels.push_back((static_cast<float>(m) + .5f) * 4.0f / static_cast<float>(n));
      if (m + 1 < n) thresholds.push_back((static_cast<float>(m) + 1.0f) * 4.0f / static_cast<float>(n));
    }
    for (size_t b = 0; b < kBucketCount; ++b) {
      size_t m = 0;
      while (m < thresholds.size() && thresholds[m] < static_cast<float>(b) / 64.0f * .9999f) ++m;
      starts.push_back(static_cast<uint8_t>(m));
    }
    view = {bits, thresholds.data(), levels.data(), bits > 4 ? starts.data() : nullptr, 64.0f};
  }
};

const size_t kLengths[] = {1, 2, 7, 15, 16, 17, 33, 64, 100, 4095, 4096, 8191};

TEST(QuantizeReference, TakesTheNearestLevel) {
  for (int bits = 1; bits <= 8; ++bits) {
    const Table t(bits);
    const std::vector<float> y = random_floats(1000, 3);
    std::vector<uint8_t> planes(static_cast<size_t>(bits) * plane_bytes(y.size()));
    scalar::quantize_planes(y.data(), y.size(), t.view, planes.data());
    std::vector<float> back(y.size());
    scalar::dequantize_planes(planes.data(), y.size(), bits, t.levels.data(), back.data());
    for (size_t i = 0; i < y.size(); ++i) {
      EXPECT_EQ(std::signbit(back[i]), std::signbit(y[i]));
      for (const float level : t.levels) {
        EXPECT_LE(std::fabs(std::fabs(y[i]) - std::fabs(back[i])), std::fabs(std::fabs(y[i]) - level) + 1e-6f)
            << bits << " " << y[i];
      }
    }
  }
}

TEST_P(Quantize, EqualsTheReference) {
  for (int bits = 1; bits <= 8; ++bits) {
    const Table t(bits);
    for (const size_t n : kLengths) {
      std::vector<float> y = random_floats(n, n);
      if (n > 3 && bits > 1) y[3] = t.thresholds[0];
      if (n > 4) y[4] = -100.0f;
      y[n / 2] = n % 2 == 0 ? 0.0f : -0.0f;
      const size_t bytes = static_cast<size_t>(bits) * plane_bytes(n);
      std::vector<uint8_t> got(bytes, 0xaa), want(bytes, 0x55);
      const QuantizeSums a = quantize_planes(y.data(), n, t.view, got.data());
      const QuantizeSums b = scalar::quantize_planes(y.data(), n, t.view, want.data());
      ASSERT_EQ(got, want) << bits << " " << n;
      ASSERT_EQ(a.dot, b.dot) << bits << " " << n;
      ASSERT_EQ(a.q2, b.q2) << bits << " " << n;
      ASSERT_TRUE(a.has_zero && b.has_zero);
      std::vector<float> x(n), z(n);
      dequantize_planes(got.data(), n, bits, t.levels.data(), x.data());
      scalar::dequantize_planes(got.data(), n, bits, t.levels.data(), z.data());
      ASSERT_EQ(std::memcmp(x.data(), z.data(), 4 * n), 0) << bits << " " << n;
    }
  }
}

TEST_P(Quantize, UniformAndDotEqualTheReference) {
  for (const size_t n : kLengths) {
    std::vector<float> y = random_floats(n, n);
    if (n > 4) {
      y[1] = .25f;  // exactly half a step of .5
      y[2] = -.25f;
      y[3] = 1e9f;
      y[4] = -1e30f;
    }
    std::vector<float> offset = random_floats(n, n + 1);
    for (float& o : offset) o = std::fabs(o) - std::floor(std::fabs(o));
    std::vector<int16_t> a(n), b(n);
    quantize_uniform(y.data(), n, 2.0f, a.data());
    scalar::quantize_uniform(y.data(), n, 2.0f, b.data());
    ASSERT_EQ(a, b) << n;
    if (n > 4) {
      EXPECT_EQ(a[1], 1);
      EXPECT_EQ(a[2], -1);
      EXPECT_EQ(a[3], 32767);
      EXPECT_EQ(a[4], -32768);
    }
    quantize_dithered(y.data(), offset.data(), n, 2.0f, a.data());
    scalar::quantize_dithered(y.data(), offset.data(), n, 2.0f, b.data());
    ASSERT_EQ(a, b) << n;
  }
}

TEST_P(Quantize, UniformDecodingEqualsTheReference) {
  constexpr float kStep = 0.2590170f, kUnit = 1.0f / (65536.0f * 8);
  for (const size_t n : kLengths) {
    const std::vector<uint32_t> words = random_bits(n + 1, n);
    const auto* const symbols = reinterpret_cast<const uint8_t*>(words.data());
    std::vector<int16_t> index(n);
    for (size_t i = 0; i < n; ++i) index[i] = static_cast<int16_t>(words[i] % 80) - 40;
    const int16_t edges[] = {-32768, 32767, -32, -31, 31, 32, 32737};  // the sums of some wrap round in 16 bits
    for (size_t i = 0; i < std::min(n, std::size(edges)); ++i) index[i] = edges[i];
    std::vector<uint8_t> coded(n + 1, 77), wanted(n + 1, 77);
    uniform_symbols(index.data(), n, 31, 63, coded.data());
    scalar::uniform_symbols(index.data(), n, 31, 63, wanted.data());
    ASSERT_EQ(coded, wanted) << n;
    std::vector<float> a(n + 1, 7.0f), b(n + 1, 7.0f);
    uniform_values(symbols, n, 31, kStep, a.data());
    scalar::uniform_values(symbols, n, 31, kStep, b.data());
    ASSERT_EQ(std::memcmp(a.data(), b.data(), 4 * (n + 1)), 0) << n;
    std::vector<float> offsets(n + 1, 7.0f), other(n + 1, 7.0f);
    dither_offsets(words.data(), n, 0.375f, kUnit, offsets.data());
    scalar::dither_offsets(words.data(), n, 0.375f, kUnit, other.data());
    ASSERT_EQ(std::memcmp(offsets.data(), other.data(), 4 * (n + 1)), 0) << n;
    subtract_dither(offsets.data(), n, kStep, a.data());
    scalar::subtract_dither(offsets.data(), n, kStep, b.data());
    ASSERT_EQ(std::memcmp(a.data(), b.data(), 4 * (n + 1)), 0) << n;
  }
}

TEST_P(Quantize, ValuesOfSymbolsAreThoseOfTheTable) {
  for (const size_t n_entries : {1, 5, 16, 33, 63, 64, 65, 256}) {
    const std::vector<float> table = random_floats(n_entries, 3);
    for (const size_t n : kLengths) {
      const std::vector<uint32_t> words = random_bits(n, n);
      std::vector<uint8_t> symbols(n);
      for (size_t i = 0; i < n; ++i) symbols[i] = static_cast<uint8_t>(words[i] % n_entries);
      std::vector<float> y(n + 1, 7.0f), wanted(n + 1, 7.0f);
      symbol_values(symbols.data(), n, table.data(), n_entries, y.data());
      for (size_t i = 0; i < n; ++i) wanted[i] = table[symbols[i]];
      ASSERT_EQ(y, wanted) << n_entries << " entries, " << n;
    }
  }
}

}  // namespace
}  // namespace kpd::kernels
