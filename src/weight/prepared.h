// weight: what transforms make of rows. Private.
#pragma once

#include <cstddef>
#include <vector>

#include "kernels/int_product.h"
#include "kpd/weight/matrix.h"

namespace kpd::weight {

// What a step of a chain made of a group's input; memory is kept from call to call.
struct PreparedRows {
  std::vector<float> floats;    // of rotations
  kernels::Int8Buffer codes;    // of kRoundInt8
  kernels::Int8Rows code_rows;  // what it shows
};

// Room for n_rows rows.
void resize(const Transform& transform, size_t n_rows, PreparedRows& rows);

// Rows [first, last) of x [n_rows, transform.size]; threads may prepare different rows.
void prepare(const Transform& transform, const float* x, size_t first, size_t last, PreparedRows& rows);

// One row of transform.size values in place; not kRoundInt8.
void transform_row(const Transform& transform, float* row);

}  // namespace kpd::weight
