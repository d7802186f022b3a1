// tests: the format "rotated": any other format behind a rotation of its input and before one of its output, W' = S W R^T with
// y = S^T (W' (R x)). What it gives differs from W x by rounding alone. `output=0` leaves the output's rotation out.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "weight/formats.h"
#include "weight/prepared.h"

namespace kpd::testing {

class Rotated : public weight::Matrix {
 public:
  Rotated(const Spec& spec, const weight::MatrixSource& source, int n_threads)
      : Matrix(source.n_out, source.n_in), spec_(spec.text()) {
    constexpr std::string_view kSwitch[] = {"0", "1"};
    const auto seed = static_cast<uint64_t>(spec.integer("seed", 1, 0, 1 << 20));
    whole_ = spec.choice("output", 1, kSwitch) == 1;
    const weight::Transform input{weight::TransformKind::kRotate, n_in(), seed};
    output_ = {weight::TransformKind::kRotateBack, n_out(), seed + 1};
    rotate_values(source, input);
    weight::MatrixSource inner;
    inner.n_out = n_out();
    inner.n_in = n_in();
    inner.parts = {{std::string(weight::MatrixSource::kWeight),
                    {"rotated", BlockType::kF32, n_out(), n_in(), reinterpret_cast<const uint8_t*>(values_.data()), {}}}};
    const Spec::Item* of = spec.find("of");
    inner_ = weight::make_matrix(of == nullptr ? "stored" : of->value, inner, n_threads);
    inputs_ = {input};
    inputs_.insert(inputs_.end(), inner_->inputs().begin(), inner_->inputs().end());
  }

  std::string format() const override { return spec_; }
  uint64_t bytes() const override { return values_.size() * sizeof(float) + inner_->bytes(); }
  std::span<const weight::Transform> inputs() const override { return inputs_; }
  std::optional<weight::Transform> output() const override {
    return whole_ ? std::optional<weight::Transform>(output_) : std::nullopt;
  }
  size_t tile() const override { return inner_->tile(); }
  void product(const weight::MatrixInput& x, size_t first, size_t last, float* out, size_t stride) const override {
    inner_->product(x, first, last, out, stride);
  }

 private:
  void rotate_values(const weight::MatrixSource& source, const weight::Transform& input) {
    values_.resize(n_out() * n_in());
    source.values(0, n_out(), values_.data());
    for (size_t o = 0; o < n_out(); ++o) weight::transform_row(input, values_.data() + o * n_in());
    const weight::Transform columns{weight::TransformKind::kRotate, n_out(), output_.seed};
    std::vector<float> column(n_out());
    for (size_t i = 0; i < n_in(); ++i) {
      for (size_t o = 0; o < n_out(); ++o) column[o] = values_[o * n_in() + i];
      weight::transform_row(columns, column.data());
      for (size_t o = 0; o < n_out(); ++o) values_[o * n_in() + i] = column[o];
    }
  }

  std::string spec_;
  bool whole_ = true;
  weight::Transform output_;
  std::vector<weight::Transform> inputs_;
  std::vector<float> values_;  // the inner matrix may read them where they lie
  std::unique_ptr<weight::Matrix> inner_;
};

inline weight::Format rotated_format() {
  return {"rotated",
          "another format between two rotations",
          {"of", "seed", "output"},
          [](const weight::MatrixSource& s) { return s.n_out >= 2 && s.n_in >= 2; },
          [](const Spec& spec, const weight::MatrixSource& s, int n_threads) -> std::unique_ptr<weight::Matrix> {
            return std::make_unique<Rotated>(spec, s, n_threads);
          }};
}

}  // namespace kpd::testing
