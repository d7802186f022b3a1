// tests: integer weight products. The scalar reference against the definition (dequantized weights in double), every
// instruction set against the scalar reference bit for bit, and equal bits for any number of rows and any split.
#include "kernels/int_product.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "base/expect_error.h"
#include "kernels/isa_fixture.h"
#include "kernels/weight_blocks.h"
#include "kpd/base/error.h"

namespace kpd::kernels {
namespace {

using kpd::testing::kIntTypes;
using kpd::testing::random_blocks;
using kpd::testing::random_floats;
using kpd::testing::WeightFill;

class IntProduct : public kpd::testing::IsaTest {};
KPD_ON_EVERY_ISA(IntProduct);

size_t min_cols(BlockType type) { return block_type_info(type).block_values; }

struct Problem {
  std::vector<uint8_t> blocks, packed;
  IntMatrix matrix;

  Problem(BlockType type, size_t n_out, size_t n_in, WeightFill fill, uint64_t seed) {
    blocks = random_blocks(type, n_out * n_in, fill, seed);
    matrix = {*int_layout(type), nullptr, n_out, n_in};
    packed.assign(packed_bytes(matrix.layout, n_out, n_in), 0xee);
    pack_tiles(type, blocks, n_out, n_in, 0, matrix.n_tiles(), packed);
    matrix.bytes = packed.data();
  }
};

std::vector<float> product(const IntMatrix& w, const Int8Rows& x) {
  std::vector<float> out(x.n_rows * w.n_out, -1.0f);
  int_product(w, x, 0, w.n_tiles(), out.data(), w.n_out);
  return out;
}

void expect_equal_bits(const std::vector<float>& a, const std::vector<float>& b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size());
  ASSERT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0) << what;
}

Int8Buffer quantized(const std::vector<float>& x, size_t n_rows, size_t n_cols) {
  Int8Buffer rows;
  rows.resize(n_rows, n_cols);
  quantize_rows(x.data(), n_cols, 0, n_rows, rows);
  return rows;
}

// Codes of +-127 everywhere: the largest sums there are.
Int8Buffer extreme(size_t n_rows, size_t n_cols, int sign) {
  return quantized(std::vector<float>(n_rows * n_cols, static_cast<float>(sign) * 127.0f), n_rows, n_cols);
}

// The scalar product differs from the sum over the dequantized weights and the same activation codes by float roundings only:
// per block of 32 at most 4 of the block's terms and one of the running sum, so (n / 32 + 4) half units of the sum of
// magnitudes.
TEST(IntProductReference, IsTheDefinition) {
  for (const BlockType type : kIntTypes) {
    for (const WeightFill fill : {WeightFill::kRandom, WeightFill::kAllOnes, WeightFill::kAllZeros}) {
      const size_t n_in = min_cols(type) * 3, n_out = 21, n_rows = 3;
      const Problem p(type, n_out, n_in, fill, 5);
      const std::vector<double> w = kpd::testing::dequantize(type, p.blocks, n_out * n_in);
      const Int8Buffer x = quantized(random_floats(n_rows * n_in, 9), n_rows, n_in);
      std::vector<float> out(n_rows * n_out);
      scalar::int_product(p.matrix, x.rows(), 0, p.matrix.n_tiles(), out.data(), n_out);
      for (size_t r = 0; r < n_rows; ++r) {
        for (size_t o = 0; o < n_out; ++o) {
          double sum = 0, magnitude = 0;
          for (size_t i = 0; i < n_in; ++i) {
            const double a = static_cast<double>(x.codes[r * n_in + i]) * x.scales[(r * n_in + i) / 32];
            sum += a * w[o * n_in + i];
            // A format with a minimum adds the two parts of a weight apart.
            magnitude += std::fabs(a) * kpd::testing::max_magnitude(type, p.blocks, o * n_in + i);
          }
          const double tolerance = magnitude * (static_cast<double>(n_in) / 32 + 4) * 0x1p-24;
          EXPECT_NEAR(out[r * n_out + o], sum, tolerance) << block_type_info(type).name << " " << r << " " << o;
        }
      }
    }
  }
}

TEST_P(IntProduct, EqualsTheReference) {
  for (const BlockType type : kIntTypes) {
    for (const size_t n_out : {1u, 15u, 16u, 33u}) {
      for (const size_t blocks : {1u, 2u, 5u}) {
        const size_t n_in = blocks * min_cols(type);
        const Problem p(type, n_out, n_in, WeightFill::kRandom, n_out + blocks);
        for (const size_t n_rows : {1u, 2u, 3u, 4u, 7u}) {
          const Int8Buffer x = quantized(random_floats(n_rows * n_in, n_rows), n_rows, n_in);
          std::vector<float> want(n_rows * n_out);
          scalar::int_product(p.matrix, x.rows(), 0, p.matrix.n_tiles(), want.data(), n_out);
          expect_equal_bits(product(p.matrix, x.rows()), want, block_type_info(type).name);
        }
      }
    }
  }
}

TEST_P(IntProduct, ExtremeCodesDoNotSaturate) {
  for (const BlockType type : kIntTypes) {
    for (const WeightFill fill : {WeightFill::kAllOnes, WeightFill::kAllZeros, WeightFill::kLowest}) {
      const size_t n_in = 2 * min_cols(type), n_out = 17;
      const Problem p(type, n_out, n_in, fill, 1);
      for (const int sign : {1, -1}) {
        for (const size_t n_rows : {1u, 4u}) {
          const Int8Buffer x = extreme(n_rows, n_in, sign);
          ASSERT_EQ(x.codes[0], 127 * sign);
          std::vector<float> want(n_rows * n_out);
          scalar::int_product(p.matrix, x.rows(), 0, p.matrix.n_tiles(), want.data(), n_out);
          expect_equal_bits(product(p.matrix, x.rows()), want, block_type_info(type).name);
        }
      }
    }
  }
}

// A row's result is the same alone, among 2, 7, 16 and 512 rows, and tile by tile.
TEST_P(IntProduct, RowsAndSplitsDoNotChangeBits) {
  const size_t n_out = 40, n_rows = GetParam() == "scalar" ? 16 : 512;
  for (const BlockType type : kIntTypes) {
    const size_t n_in = min_cols(type);
    const Problem p(type, n_out, n_in, WeightFill::kRandom, 3);
    const std::vector<float> x = random_floats(n_rows * n_in, 4);
    const std::vector<float> all = product(p.matrix, quantized(x, n_rows, n_in).rows());
    for (const size_t part : {1u, 2u, 7u, 16u}) {
      for (size_t first = 0; first + part <= n_rows; first += part * (n_rows / 16)) {
        const auto* rows = x.data() + first * n_in;
        const Int8Buffer some = quantized(std::vector<float>(rows, rows + part * n_in), part, n_in);
        std::vector<float> got(part * n_out);
        for (size_t t = 0; t < p.matrix.n_tiles(); ++t) int_product(p.matrix, some.rows(), t, t + 1, got.data(), n_out);
        expect_equal_bits(got, std::vector<float>(all.begin() + first * n_out, all.begin() + (first + part) * n_out),
                          block_type_info(type).name);
      }
    }
  }
}

TEST_P(IntProduct, WritesOnlyItsOutputs) {
  const Problem p(BlockType::kQ4_1, 37, 64, WeightFill::kRandom, 3);
  const Int8Buffer x = quantized(random_floats(2 * 64, 4), 2, 64);
  std::vector<float> out(2 * 50, 7.0f);
  int_product(p.matrix, x.rows(), 1, 3, out.data(), 50);
  for (size_t r = 0; r < 2; ++r) {
    for (size_t o = 0; o < 50; ++o) EXPECT_EQ(out[r * 50 + o] == 7.0f, o < 16 || o >= 37) << o;
  }
}

TEST_P(IntProduct, QuantizedRowsEqualTheReference) {
  const size_t n_cols = 96, n_rows = 40;
  std::vector<float> x = random_floats(n_rows * n_cols, 1);
  for (size_t i = 0; i < n_cols; ++i) {
    x[i] = 0.0f;
    x[n_cols + i] *= 1e-35f;
    x[2 * n_cols + i] *= 1e37f;
    x[3 * n_cols + i] = (static_cast<float>(i % 32) - 16.5f) * (127.0f / 16.5f) * .5f;  // halves among the scaled values
  }
  x[4 * n_cols] = 1e-30f;
  Int8Buffer got, want;
  got.resize(n_rows, n_cols);
  want.resize(n_rows, n_cols);
  quantize_rows(x.data(), n_cols, 0, 13, got);
  quantize_rows(x.data(), n_cols, 13, n_rows, got);
  scalar::quantize_rows(x.data(), n_cols, 0, n_rows, want);
  EXPECT_EQ(got.codes, want.codes);
  EXPECT_EQ(got.scales, want.scales);
  EXPECT_EQ(got.sums, want.sums);
  EXPECT_EQ(got.scaled_sums, want.scaled_sums);
  for (size_t i = 0; i < x.size(); ++i) {
    const float scale = got.scales[i / 32];
    if (std::fabs(x[i]) > 1e-29f) {
      EXPECT_NEAR(scale * static_cast<float>(got.codes[i]), x[i], .5001f * scale) << i;
    }
  }
}

TEST_P(IntProduct, WhatIsNotFiniteMakesItsRowNan) {
  const Problem p(BlockType::kQ4_0, 16, 64, WeightFill::kRandom, 3);
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::quiet_NaN(),
                          std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()}) {
    std::vector<float> x = random_floats(2 * 64, 4);
    x[40] = bad;
    const Int8Buffer rows = quantized(x, 2, 64);
    EXPECT_EQ(rows.codes[41], 0);
    const std::vector<float> out = product(p.matrix, rows.rows());
    for (size_t o = 0; o < 16; ++o) {
      EXPECT_TRUE(std::isnan(out[o]));
      EXPECT_TRUE(std::isfinite(out[16 + o]));
    }
  }
}

// A block's scale is stored as 16 bits.
TEST_P(IntProduct, InfiniteScalesAreInfinite) {
  std::vector<uint8_t> blocks = random_blocks(BlockType::kQ8_0, 16 * 64, WeightFill::kRandom, 3);
  blocks[0] = 0x00;
  blocks[1] = 0x7c;
  IntMatrix w = {*int_layout(BlockType::kQ8_0), nullptr, 16, 64};
  std::vector<uint8_t> packed(packed_bytes(w.layout, 16, 64));
  pack_tiles(BlockType::kQ8_0, blocks, 16, 64, 0, w.n_tiles(), packed);
  w.bytes = packed.data();
  const std::vector<float> out = product(w, quantized(random_floats(64, 4), 1, 64).rows());
  EXPECT_FALSE(std::isfinite(out[0]));
  for (size_t o = 1; o < 16; ++o) EXPECT_TRUE(std::isfinite(out[o])) << o;
}

// What a file gains by few bits is not lost in memory.
TEST(IntProductPacking, LayoutsAreNotMuchLargerThanTheFile) {
  for (const BlockType type : kIntTypes) {
    const BlockTypeInfo& info = block_type_info(type);
    const size_t in_file = 64 * 512 / info.block_values * info.block_bytes;
    EXPECT_LE(static_cast<double>(packed_bytes(*int_layout(type), 64, 512)), 1.08 * static_cast<double>(in_file)) << info.name;
  }
}

TEST(IntProductPacking, SizesAreChecked) {
  EXPECT_EQ(packed_bytes(IntLayout::kQ4Min, 17, 64), 2u * 2 * 320);
  EXPECT_EQ(packed_bytes(IntLayout::kQ6K, 16, 256), 16u * 210);
  EXPECT_KPD_ERROR(kInvalidArgument, "expected a multiple of 256", tile_bytes(IntLayout::kQ4K, 128));
  EXPECT_FALSE(int_layout(BlockType::kBF16).has_value());
  std::vector<uint8_t> src(20 * 2), dst(packed_bytes(IntLayout::kQ4Min, 2, 32));
  pack_tiles(BlockType::kQ4_1, src, 2, 32, 0, 1, dst);
  EXPECT_KPD_ERROR(kInvalidArgument, "packing 3 x 32 Q4_1", pack_tiles(BlockType::kQ4_1, src, 3, 32, 0, 1, dst));
  EXPECT_KPD_ERROR(kInvalidArgument, "packing 2 x 32 Q4_1", pack_tiles(BlockType::kQ4_1, src, 2, 32, 0, 2, dst));
  EXPECT_KPD_ERROR(kUnsupported, "no integer product", pack_tiles(BlockType::kBF16, src, 2, 32, 0, 1, dst));
}

}  // namespace
}  // namespace kpd::kernels
