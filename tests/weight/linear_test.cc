// Groups of matrices: chains of input transforms, products in tiles, output transforms behind all tiles, biases.
#include "weight/linear.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>

#include "base/expect_error.h"
#include "weight/rotated_format.h"

namespace kpd::weight {
namespace {

// W[o][i] as a function, in tiles of any size; it counts what is asked of it.
class Dense : public Matrix {
 public:
  Dense(size_t n_out, size_t n_in, std::vector<Transform> inputs = {}, std::optional<Transform> output = {}, size_t tile = 1)
      : Matrix(n_out, n_in), inputs_(std::move(inputs)), output_(output), tile_(tile) {}
  static float value(size_t o, size_t i) { return std::sin(static_cast<float>(o * 31 + i * 7)); }
  std::string format() const override { return "dense"; }
  uint64_t bytes() const override { return 0; }
  std::span<const Transform> inputs() const override { return inputs_; }
  std::optional<Transform> output() const override { return output_; }
  size_t tile() const override { return tile_; }
  void product(const MatrixInput& x, size_t first, size_t last, float* out, size_t stride) const override {
    n_outputs_ += last - first;
    saw_codes_ = x.codes != nullptr;
    for (size_t r = 0; r < x.n_rows; ++r) {
      for (size_t o = first; o < last; ++o) {
        float sum = 0;
        for (size_t i = 0; i < n_in(); ++i) sum += value(o, i) * x.floats[r * n_in() + i];
        out[r * stride + o] = sum;
      }
    }
  }
  mutable std::atomic<size_t> n_outputs_{0};
  mutable std::atomic<bool> saw_codes_{false};

 private:
  std::vector<Transform> inputs_;
  std::optional<Transform> output_;
  size_t tile_;
};

constexpr Transform rotate(size_t n, uint64_t seed) { return {TransformKind::kRotate, n, seed}; }
constexpr Transform back(size_t n, uint64_t seed) { return {TransformKind::kRotateBack, n, seed}; }
constexpr Transform round8(size_t n) { return {TransformKind::kRoundInt8, n, 0}; }

std::vector<float> input(size_t n_rows, size_t n_in) {
  std::vector<float> x(n_rows * n_in);
  for (size_t i = 0; i < x.size(); ++i) x[i] = std::cos(static_cast<float>(i * 3));
  return x;
}

std::vector<std::vector<float>> run(const Linear& group, const std::vector<float>& x, size_t n_rows, int n_threads) {
  std::vector<std::vector<float>> ys;
  std::vector<float*> outs;
  for (size_t i = 0; i < group.size(); ++i) ys.emplace_back(n_rows * group.matrix(i).n_out());
  for (auto& y : ys) outs.push_back(y.data());
  Workspace workspace;
  group.run(x.data(), n_rows, outs, workspace, n_threads);
  return ys;
}

TEST(Transforms, ARotationAndItsInverse) {
  for (const size_t n : {2, 3, 16, 48, 80, 576}) {
    std::vector<float> x = input(1, n);
    const std::vector<float> before = x;
    transform_row(rotate(n, 5), x.data());
    double squares = 0, squares_before = 0;
    for (size_t i = 0; i < n; ++i) {
      squares += static_cast<double>(x[i]) * static_cast<double>(x[i]);
      squares_before += static_cast<double>(before[i]) * static_cast<double>(before[i]);
    }
    EXPECT_NEAR(squares, squares_before, 1e-5 * squares_before) << n;
    std::vector<float> other = before;
    transform_row(rotate(n, 6), other.data());
    EXPECT_TRUE(n <= 3 || other != x) << n;
    transform_row(back(n, 5), x.data());
    for (size_t i = 0; i < n; ++i) EXPECT_NEAR(x[i], before[i], 1e-5) << n;
  }
}

// The output stage sees whole rows, whatever the tiles and threads are.
TEST(Linear, TransformsAndBiases) {
  constexpr size_t kIn = 48, kOut = 37;
  for (const size_t n_rows : {1, 3, 40}) {
    const std::vector<float> x = input(n_rows, kIn);
    std::vector<float> bias(kOut);
    for (size_t o = 0; o < kOut; ++o) bias[o] = static_cast<float>(o) - 18;
    // What it is to be: the transforms of rows by themselves.
    std::vector<float> expected(n_rows * kOut);
    for (size_t r = 0; r < n_rows; ++r) {
      std::vector<float> row(x.begin() + static_cast<std::ptrdiff_t>(r * kIn),
                             x.begin() + static_cast<std::ptrdiff_t>((r + 1) * kIn));
      transform_row(rotate(kIn, 7), row.data());
      transform_row(rotate(kIn, 8), row.data());
      float* y = expected.data() + r * kOut;
      for (size_t o = 0; o < kOut; ++o) {
        for (size_t i = 0; i < kIn; ++i) y[o] += Dense::value(o, i) * row[i];
      }
      transform_row(back(kOut, 9), y);
      for (size_t o = 0; o < kOut; ++o) y[o] += bias[o];
    }
    for (const int n_threads : {1, 3}) {
      for (const size_t tile : {1, 16}) {
        Linear group;
        group.add(std::make_unique<Dense>(kOut, kIn), {});
        group.add(std::make_unique<Dense>(kOut, kIn, std::vector{rotate(kIn, 7), rotate(kIn, 8)}, back(kOut, 9), tile), bias);
        group.add(std::make_unique<Dense>(kOut, kIn, std::vector{rotate(kIn, 7), rotate(kIn, 8)}), bias);
        const auto ys = run(group, x, n_rows, n_threads);
        EXPECT_EQ(ys[1], expected) << n_rows << ' ' << n_threads << ' ' << tile;
        EXPECT_NE(ys[2], expected) << "without the output stage";
        EXPECT_NE(ys[0], ys[2]);
        EXPECT_EQ(static_cast<const Dense&>(group.matrix(1)).n_outputs_, kOut);
      }
    }
  }
}

TEST(Linear, ChainsThatBeginAlikeShareTheirSteps) {
  constexpr size_t kIn = 64;
  Linear group;
  group.add(std::make_unique<Dense>(8, kIn, std::vector{rotate(kIn, 1), round8(kIn)}), {});
  EXPECT_EQ(group.n_steps(), 2u);
  group.add(std::make_unique<Dense>(8, kIn, std::vector{rotate(kIn, 1), round8(kIn)}), {});
  group.add(std::make_unique<Dense>(8, kIn, std::vector{rotate(kIn, 1)}), {});
  group.add(std::make_unique<Dense>(8, kIn), {});
  EXPECT_EQ(group.n_steps(), 2u);
  group.add(std::make_unique<Dense>(8, kIn, std::vector{round8(kIn)}), {});
  EXPECT_EQ(group.n_steps(), 3u) << "of other values: not the rounding behind the rotation";
  group.add(std::make_unique<Dense>(8, kIn, std::vector{rotate(kIn, 2)}), {});
  EXPECT_EQ(group.n_steps(), 4u);
  run(group, input(2, kIn), 2, 2);
  for (size_t m = 0; m < group.size(); ++m)
    EXPECT_EQ(static_cast<const Dense&>(group.matrix(m)).saw_codes_, m == 0 || m == 1 || m == 4) << m;
  group.replace(5, std::make_unique<Dense>(8, kIn));
  EXPECT_EQ(group.n_steps(), 3u);
}

TEST(Linear, WhatDoesNotFitIsRefusedAndChangesNothing) {
  Linear group;
  group.add(std::make_unique<Dense>(8, 32), std::vector<float>(8, 1.0f));
  const auto before = run(group, input(1, 32), 1, 1);
  const auto add = [&](std::unique_ptr<Matrix> m, size_t n_bias = 0) { group.add(std::move(m), std::vector<float>(n_bias)); };
  EXPECT_KPD_ERROR(kInvalidArgument, "a matrix of 64 inputs beside one of 32", add(std::make_unique<Dense>(8, 64)));
  EXPECT_KPD_ERROR(kInvalidArgument, "a bias of 7 values", add(std::make_unique<Dense>(8, 32), 7));
  EXPECT_KPD_ERROR(kInvalidArgument, "step 0 of its input, rotate of 16 values, does not fit 32",
                   add(std::make_unique<Dense>(8, 32, std::vector{rotate(16, 1)})));
  EXPECT_KPD_ERROR(kInvalidArgument, "step 0 of its input, round to 8 bits",
                   add(std::make_unique<Dense>(8, 32, std::vector{round8(32), rotate(32, 1)})));
  EXPECT_KPD_ERROR(kInvalidArgument, "its output, rotate back of 32 values, does not fit 8",
                   add(std::make_unique<Dense>(8, 32, std::vector<Transform>(), back(32, 1))));
  EXPECT_KPD_ERROR(kInvalidArgument, "its output, round to 8 bits",
                   add(std::make_unique<Dense>(8, 32, std::vector<Transform>(), round8(8))));
  EXPECT_KPD_ERROR(kInvalidArgument, "[9, 32], expected [8, 32]", group.replace(0, std::make_unique<Dense>(9, 32)));
  EXPECT_KPD_ERROR(kInvalidArgument, "no matrix 1 in a group of 1", group.replace(1, std::make_unique<Dense>(8, 32)));
  EXPECT_EQ(group.size(), 1u);
  EXPECT_EQ(run(group, input(1, 32), 1, 1), before);
}

// The proof of the seam on one matrix: a rotated format is the plain one but for rounding, and is not without its output stage.
TEST(Linear, ARotatedFormatIsThePlainOne) {
  const RegisteredFormat format(testing::rotated_format());
  constexpr size_t kIn = 96, kOut = 40, kRows = 5;
  std::vector<float> w(kOut * kIn);
  for (size_t i = 0; i < w.size(); ++i) w[i] = std::sin(static_cast<float>(i * i % 997));
  const MatrixSource source{
      kOut,
      kIn,
      {{std::string(MatrixSource::kWeight), {"w", BlockType::kF32, kOut, kIn, reinterpret_cast<const uint8_t*>(w.data()), {}}}},
      0,
      0};
  const auto result = [&](std::string_view spec) {
    Linear group;
    group.add(make_matrix(spec, source, 1), std::vector<float>(kOut, 0.5f));
    return run(group, input(kRows, kIn), kRows, 2)[0];
  };
  const std::vector<float> plain = result("stored");
  float largest = 0;
  for (const float y : plain) largest = std::max(largest, std::fabs(y));
  const auto worst = [&](std::string_view spec) {
    const std::vector<float> y = result(spec);
    float most = 0;
    for (size_t i = 0; i < y.size(); ++i) most = std::max(most, std::fabs(y[i] - plain[i]));
    return most / largest;
  };
  EXPECT_LT(worst("rotated:of=stored,seed=3"), 1e-5f);
  EXPECT_LT(worst("rotated:of=float,seed=4"), 1e-5f);
  EXPECT_GT(worst("rotated:of=stored,seed=3,output=0"), 0.1f);
}

}  // namespace
}  // namespace kpd::weight
