// weight: input and output transforms (kpd/weight/matrix.h).
#include "weight/prepared.h"

#include <algorithm>

#include "kpd/transform/signs.h"

namespace kpd::weight {

RowTransform::RowTransform(const Transform& transform) : value_(transform) {
  if (value_.kind == TransformKind::kRoundInt8) return;
  rotation_.emplace(value_.size, 1, transform::Mixing::kWhole);
  signs_.resize(rotation_->n_sign_words());
  transform::fill_signs(*rotation_, {value_.seed, 0, 0}, signs_);
}

void RowTransform::resize(size_t n_rows, PreparedRows& rows) const {
  if (value_.kind == TransformKind::kRoundInt8) {
    rows.codes.resize(n_rows, value_.size);
    rows.code_rows = rows.codes.rows();
  } else {
    rows.floats.resize(std::max(rows.floats.size(), n_rows * value_.size));
  }
}

void RowTransform::prepare(const float* x, size_t first, size_t last, PreparedRows& rows) const {
  if (value_.kind == TransformKind::kRoundInt8) {
    kernels::quantize_rows(x, value_.size, first, last, rows.codes);
    return;
  }
  float* to = rows.floats.data() + first * value_.size;
  std::copy_n(x + first * value_.size, (last - first) * value_.size, to);
  apply(to, last - first);
}

void RowTransform::apply(float* rows, size_t n_rows) const {
  if (value_.kind == TransformKind::kRotateBack) {
    rotation_->inverse(rows, n_rows, value_.size, signs_);
  } else {
    rotation_->forward(rows, n_rows, value_.size, signs_);
  }
}

}  // namespace kpd::weight
