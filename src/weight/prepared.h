// weight: what transforms make of rows. Private.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/int_product.h"
#include "kpd/transform/rotation.h"
#include "kpd/weight/matrix.h"

namespace kpd::weight {

// What a step of a chain made of a group's input; memory is kept from call to call.
struct PreparedRows {
  std::vector<float> floats;    // of rotations
  kernels::Int8Buffer codes;    // of kRoundInt8
  kernels::Int8Rows code_rows;  // what it shows
};

// A transform ready to run: a rotation has its signs. Immutable; thread-safe.
class RowTransform {
 public:
  // Throws Error(kInvalidArgument) for a rotation of a length that there is not.
  explicit RowTransform(const Transform& transform);
  const Transform& value() const { return value_; }

  // Room for n_rows rows.
  void resize(size_t n_rows, PreparedRows& rows) const;
  // Rows [first, last) of x [n_rows, size]; threads may prepare different rows.
  void prepare(const float* x, size_t first, size_t last, PreparedRows& rows) const;
  // Rows [n_rows, size] in place; not kRoundInt8.
  void apply(float* rows, size_t n_rows) const;

 private:
  Transform value_;
  std::optional<transform::Rotation> rotation_;
  std::vector<uint32_t> signs_;
};

// One row by itself.
inline void transform_row(const Transform& transform, float* row) { RowTransform(transform).apply(row, 1); }

}  // namespace kpd::weight
