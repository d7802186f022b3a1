// tests: float weight products of every instruction set against sums in double, exact where all values are small integers, and
// equal bits for any number of rows and any split.
#include "kernels/float_product.h"

#include <cmath>
#include <cstring>

#include "base/expect_error.h"
#include "kernels/isa_fixture.h"
#include "kpd/base/error.h"

namespace kpd::kernels {
namespace {

using kpd::testing::random_floats;

class FloatProduct : public kpd::testing::IsaTest {};
KPD_ON_EVERY_ISA(FloatProduct);

const DType kDTypes[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16};

struct Problem {
  std::vector<uint8_t> packed;
  std::vector<float> values;  // what the stored weights are, [n_out, n_in]
  FloatMatrix matrix;

  Problem(DType dtype, size_t n_out, size_t n_in, const std::vector<float>& weights) : values(n_out * n_in) {
    std::vector<uint8_t> src(n_out * n_in * dtype_bytes(dtype));
    store_floats(weights, dtype, src.data());
    load_floats({src.data(), values.size(), dtype}, 0, values);
    packed.assign(float_packed_bytes(dtype, n_out, n_in), 0xee);
    matrix = {dtype, packed.data(), n_out, n_in};
    pack_float_tiles(dtype, src, n_out, n_in, 0, matrix.n_tiles(), packed);
  }
};

std::vector<float> product(const FloatMatrix& w, const std::vector<float>& x, size_t n_rows) {
  std::vector<float> out(n_rows * w.n_out, -1.0f);
  float_product(w, x.data(), w.n_in, n_rows, 0, w.n_tiles(), out.data(), w.n_out);
  return out;
}

TEST_P(FloatProduct, IsTheDefinition) {
  for (const DType dtype : kDTypes) {
    for (const size_t n_out : {1u, 16u, 35u}) {
      for (const size_t n_in : {1u, 33u, 300u}) {
        const Problem p(dtype, n_out, n_in, random_floats(n_out * n_in, n_out + n_in));
        for (const size_t n_rows : {1u, 5u, 14u}) {
          const std::vector<float> x = random_floats(n_rows * n_in, n_rows), out = product(p.matrix, x, n_rows);
          for (size_t r = 0; r < n_rows; ++r) {
            for (size_t o = 0; o < n_out; ++o) {
              double sum = 0, magnitude = 0;
              for (size_t i = 0; i < n_in; ++i) {
                const double term = static_cast<double>(p.values[o * n_in + i]) * x[r * n_in + i];
                sum += term;
                magnitude += std::fabs(term);
              }
              // A product's and a sum's rounding a column.
              ASSERT_NEAR(out[r * n_out + o], sum, magnitude * static_cast<double>(n_in + 1) * 0x1p-24) << dtype_name(dtype);
            }
          }
        }
      }
    }
  }
}

TEST_P(FloatProduct, IsExactOnSmallIntegers) {
  const size_t n_out = 33, n_in = 70, n_rows = 9;
  std::vector<float> weights(n_out * n_in), x(n_rows * n_in);
  CounterRng rng(1);
  for (float& v : weights) v = static_cast<float>(rng.next_u32() % 255) - 127.0f;
  for (float& v : x) v = static_cast<float>(rng.next_u32() % 255) - 127.0f;
  for (const DType dtype : kDTypes) {
    const Problem p(dtype, n_out, n_in, weights);
    std::vector<float> want(n_rows * n_out);
    scalar::float_product(p.matrix, x.data(), n_in, n_rows, 0, p.matrix.n_tiles(), want.data(), n_out);
    EXPECT_EQ(product(p.matrix, x, n_rows), want);
  }
}

TEST_P(FloatProduct, RowsAndSplitsDoNotChangeBits) {
  const size_t n_out = 150, n_in = 515, n_rows = 31;
  for (const DType dtype : kDTypes) {
    const Problem p(dtype, n_out, n_in, random_floats(n_out * n_in, 2));
    const std::vector<float> x = random_floats(n_rows * n_in, 3), all = product(p.matrix, x, n_rows);
    for (const size_t part : {1u, 2u, 3u, 4u, 7u, 16u}) {
      for (size_t first = 0; first + part <= n_rows; first += part) {
        std::vector<float> got(part * n_out);
        for (size_t t = 0; t < p.matrix.n_tiles(); t += 3) {
          const size_t end = std::min(t + 3, p.matrix.n_tiles());
          float_product(p.matrix, x.data() + first * n_in, n_in, part, t, end, got.data(), n_out);
        }
        ASSERT_EQ(std::memcmp(got.data(), all.data() + first * n_out, got.size() * sizeof(float)), 0) << part << " " << first;
      }
    }
  }
}

TEST_P(FloatProduct, WritesOnlyItsOutputs) {
  const Problem p(DType::kFloat32, 37, 300, random_floats(37 * 300, 3));
  const std::vector<float> x = random_floats(20 * 310, 4);
  std::vector<float> out(20 * 50, 7.0f);
  float_product(p.matrix, x.data(), 310, 20, 1, 3, out.data(), 50);
  for (size_t i = 0; i < out.size(); ++i) EXPECT_EQ(out[i] == 7.0f, i % 50 < 16 || i % 50 >= 37) << i;
}

TEST_P(FloatProduct, PackedTilesEqualTheReference) {
  for (const size_t outputs : {1u, 15u, 16u}) {
    for (const size_t n_in : {1u, 4u, 31u, 64u}) {
      const std::vector<float> rows = random_floats(16 * 70, 5);
      std::vector<float> got(n_in * 16, 1.0f), want(n_in * 16, 2.0f);
      pack_float_tile(rows.data(), 70, outputs, n_in, got.data());
      scalar::pack_float_tile(rows.data(), 70, outputs, n_in, want.data());
      ASSERT_EQ(got, want) << outputs << " " << n_in;
    }
  }
}

TEST(FloatProductPacking, SizesAreChecked) {
  std::vector<uint8_t> src(3 * 5 * 2), dst(16 * 5 * 2);
  pack_float_tiles(DType::kFloat16, src, 3, 5, 0, 1, dst);
  EXPECT_KPD_ERROR(kInvalidArgument, "packing 2 x 5 float16", pack_float_tiles(DType::kFloat16, src, 2, 5, 0, 1, dst));
  EXPECT_KPD_ERROR(kInvalidArgument, "packing 3 x 5 float16", pack_float_tiles(DType::kFloat16, src, 3, 5, 0, 2, dst));
}

TEST_P(FloatProduct, InfiniteWeightsAreInfinite) {
  for (const DType dtype : kDTypes) {
    std::vector<float> weights(16 * 8, 1.0f);
    weights[3 * 8 + 2] = -std::numeric_limits<float>::infinity();
    const std::vector<float> out = product(Problem(dtype, 16, 8, weights).matrix, std::vector<float>(8, 1.0f), 1);
    for (size_t o = 0; o < 16; ++o) EXPECT_EQ(out[o], o == 3 ? weights[3 * 8 + 2] : 8.0f) << dtype_name(dtype);
  }
}

}  // namespace
}  // namespace kpd::kernels
