// weight: input and output transforms (kpd/weight/matrix.h). rotate() is the one place that knows how kRotate is computed.
#include "weight/prepared.h"

#include <algorithm>
#include <span>

#include "kpd/transform/hadamard.h"

namespace kpd::weight {
namespace {

constexpr int kRounds = 1;

void rotate(float* row, size_t n, uint64_t seed, bool back) {
  const transform::BlockKey key{seed, 0};
  if (back) {
    transform::rotate_inverse({row, n}, kRounds, key);
  } else {
    transform::rotate({row, n}, kRounds, key);
  }
}

}  // namespace

void resize(const Transform& transform, size_t n_rows, PreparedRows& rows) {
  if (transform.kind == TransformKind::kRoundInt8) {
    rows.codes.resize(n_rows, transform.size);
    rows.code_rows = rows.codes.rows();
  } else {
    rows.floats.resize(std::max(rows.floats.size(), n_rows * transform.size));
  }
}

void prepare(const Transform& transform, const float* x, size_t first, size_t last, PreparedRows& rows) {
  if (transform.kind == TransformKind::kRoundInt8) {
    kernels::quantize_rows(x, transform.size, first, last, rows.codes);
    return;
  }
  for (size_t r = first; r < last; ++r) {
    float* row = rows.floats.data() + r * transform.size;
    std::copy_n(x + r * transform.size, transform.size, row);
    transform_row(transform, row);
  }
}

void transform_row(const Transform& transform, float* row) {
  rotate(row, transform.size, transform.seed, transform.kind == TransformKind::kRotateBack);
}

}  // namespace kpd::weight
