// The table of weight formats.
#include "kpd/weight/format.h"

#include <gtest/gtest.h>

#include <array>
#include <set>

#include "base/expect_error.h"
#include "weight/formats.h"
#include "weight/linear.h"

namespace kpd::weight {
namespace {

MatrixSource source_of(BlockType type, size_t n_out, size_t n_in, const std::vector<uint8_t>& bytes) {
  return {n_out, n_in, {{std::string(MatrixSource::kWeight), {"w", type, n_out, n_in, bytes.data(), {}}}}, 0, 0};
}

std::vector<float> product(std::unique_ptr<Matrix> matrix, const std::vector<float>& x) {
  Linear group;
  const size_t n_out = matrix->n_out();
  group.add(std::move(matrix), {});
  std::vector<float> y(n_out);
  float* const outs[] = {y.data()};
  Workspace workspace;
  group.run(x.data(), 1, outs, workspace, 1);
  return y;
}

TEST(Formats, TheTableIsWhatSpecsName) {
  std::set<std::string_view> names;
  for (const Format& row : formats()) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_FALSE(row.summary.empty()) << row.name;
    EXPECT_EQ(Spec::parse(row.name).method(), row.name);
  }
  EXPECT_EQ(names, (std::set<std::string_view>{"integer", "float", "stored"}));
}

TEST(Formats, ArithmeticChooses) {
  const std::vector<uint8_t> bytes(1 << 16);
  for (const BlockType type : {BlockType::kF32, BlockType::kF16, BlockType::kBF16}) {
    EXPECT_EQ(usual_format(source_of(type, 16, 64, bytes), Arithmetic::kFast), "float");
    EXPECT_EQ(usual_format(source_of(type, 16, 64, bytes), Arithmetic::kExact), "stored");
  }
  for (const BlockType type : {BlockType::kQ4_0, BlockType::kQ8_0}) {
    EXPECT_EQ(usual_format(source_of(type, 16, 64, bytes), Arithmetic::kFast), "integer");
    EXPECT_EQ(usual_format(source_of(type, 16, 64, bytes), Arithmetic::kExact), "stored");
  }
}

TEST(Formats, EachMultiplies) {
  constexpr size_t kOut = 19, kIn = 64;
  std::vector<float> w(kOut * kIn), x(kIn);
  for (size_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(i * 37 % 101) - 50;
  for (size_t i = 0; i < kIn; ++i) x[i] = static_cast<float>(i % 7) - 3;
  std::vector<uint8_t> bytes(w.size() * sizeof(float));
  std::copy_n(reinterpret_cast<const uint8_t*>(w.data()), bytes.size(), bytes.begin());
  for (const std::string_view spec : {"float", "stored"}) {
    auto matrix = make_matrix(spec, source_of(BlockType::kF32, kOut, kIn, bytes), 2);
    EXPECT_EQ(matrix->format(), spec);
    const std::vector<float> y = product(std::move(matrix), x);
    for (size_t o = 0; o < kOut; ++o) {
      double expected = 0;
      for (size_t i = 0; i < kIn; ++i) expected += static_cast<double>(w[o * kIn + i]) * static_cast<double>(x[i]);
      EXPECT_EQ(y[o], expected) << spec << o;  // integers: exact
    }
  }
}

TEST(Formats, WhatIsUnknownIsNamed) {
  const std::vector<uint8_t> bytes(1 << 16);
  const MatrixSource source = source_of(BlockType::kF32, 16, 64, bytes);
  EXPECT_KPD_ERROR(kInvalidArgument, "unknown weight format 'flaot', did you mean 'float'?", make_matrix("flaot", source, 1));
  EXPECT_KPD_ERROR(kInvalidArgument, "unknown weight format 'zzz'", make_matrix("zzz", source, 1));
  EXPECT_KPD_ERROR(kInvalidArgument, "bits", make_matrix("float:bits=2", source, 1));
  EXPECT_KPD_ERROR(kUnsupported, "w: the weight format integer does not store rows of 64 values of the type F32",
                   make_matrix("integer", source, 1));
  EXPECT_KPD_ERROR(kCorruptData, "not whole blocks", make_matrix("stored", source_of(BlockType::kQ4_0, 16, 65, bytes), 1));
}

// Made of two named tensors: integers, and a scale for each row. Not a list of rows of one tensor.
class Scaled : public Matrix {
 public:
  explicit Scaled(const MatrixSource& source) : Matrix(source.n_out, source.n_in) {
    codes_.resize(n_out() * n_in());
    source.values(0, n_out(), codes_.data());
    const StoredTensor& scales = source.part("scales");
    for (size_t o = 0; o < n_out(); ++o) {
      const float scale = reinterpret_cast<const float*>(scales.bytes)[source.stored_row(o)];
      for (size_t i = 0; i < n_in(); ++i) codes_[o * n_in() + i] *= scale;
    }
  }
  std::string format() const override { return "scaled"; }
  uint64_t bytes() const override { return codes_.size() * sizeof(float); }
  std::span<const Transform> inputs() const override { return {}; }
  size_t tile() const override { return 1; }
  void product(const MatrixInput& x, size_t first, size_t last, float* out, size_t stride) const override {
    for (size_t r = 0; r < x.n_rows; ++r) {
      for (size_t o = first; o < last; ++o) {
        float sum = 0;
        for (size_t i = 0; i < n_in(); ++i) sum += codes_[o * n_in() + i] * x.floats[r * n_in() + i];
        out[r * stride + o] = sum;
      }
    }
  }

 private:
  std::vector<float> codes_;
};

TEST(Formats, AMatrixOfTwoTensors) {
  const std::array<float, 12> codes = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  const std::array<float, 6> scales = {1, 10, 100, 1000, 10000, 100000};
  MatrixSource source;
  source.n_out = 4;
  source.n_in = 2;
  source.first_row = 2;
  source.pair_width = 4;
  source.parts = {{std::string(MatrixSource::kWeight),
                   {"codes", BlockType::kF32, 6, 2, reinterpret_cast<const uint8_t*>(codes.data()), {}}},
                  {"scales", {"scales", BlockType::kF32, 6, 1, reinterpret_cast<const uint8_t*>(scales.data()), {}}}};
  EXPECT_KPD_ERROR(kInvalidArgument, "unknown weight format 'scaled'", make_matrix("scaled", source, 1));
  {
    const RegisteredFormat format(
        {"scaled",
         "integers and a scale a row",
         {},
         [](const MatrixSource&) { return true; },
         [](const Spec&, const MatrixSource& s, int) -> std::unique_ptr<Matrix> { return std::make_unique<Scaled>(s); }});
    EXPECT_EQ(product(make_matrix("scaled", source, 1), {1, 1}), (std::vector<float>{1100, 190000, 15000, 2300000}));
    for (const Format& row : formats()) EXPECT_NE(row.name, "scaled") << "what is registered is not listed";
  }
  EXPECT_KPD_ERROR(kInvalidArgument, "unknown weight format 'scaled'", make_matrix("scaled", source, 1));
}

}  // namespace
}  // namespace kpd::weight
