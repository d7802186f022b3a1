// weight: rows of stored tensors (source.h).
#include "kpd/weight/source.h"

#include <algorithm>

#include "kpd/base/error.h"
#include "kpd/quant/blocks.h"

namespace kpd::weight {

size_t StoredTensor::row_bytes() const {
  const BlockTypeInfo& info = block_type_info(type);
  return n_cols / info.block_values * info.block_bytes;
}

const StoredTensor& MatrixSource::part(std::string_view role) const {
  for (const Part& p : parts) {
    if (p.role == role) return p.tensor;
  }
  fail(ErrorCode::kInvalidArgument, parts.empty() ? "a matrix" : parts.front().tensor.name, ": there is no part '", role,
       "' to make the matrix of");
}

// A rotation of neighbours has the two values of a pair side by side, one of halves has half a head between them.
size_t MatrixSource::stored_row(size_t row) const {
  if (pair_width == 0) return first_row + row;
  const size_t in_head = row % pair_width, half = pair_width / 2;
  return first_row + row - in_head + 2 * (in_head % half) + in_head / half;
}

void MatrixSource::check() const {
  const StoredTensor& tensor = weight();
  const size_t block = block_type_info(tensor.type).block_values;
  if (tensor.n_cols != n_in || first_row > tensor.n_rows || n_out > tensor.n_rows - first_row) {
    fail(ErrorCode::kCorruptData, tensor.name, ": ", tensor.n_rows, " rows of ", tensor.n_cols, " values, expected rows ",
         first_row, " to ", first_row + n_out, " of ", n_in);
  }
  if (n_in % block != 0) {
    fail(ErrorCode::kCorruptData, tensor.name, ": rows of ", n_in, " values are not whole blocks of ",
         block_type_info(tensor.type).name);
  }
  if (pair_width != 0 && (pair_width % 2 != 0 || n_out % pair_width != 0)) {
    fail(ErrorCode::kCorruptData, tensor.name, ": ", n_out, " rows are not whole heads of ", pair_width, ", an even number");
  }
}

void MatrixSource::gather(size_t first, size_t n, std::vector<uint8_t>& copies, const uint8_t** at) const {
  const StoredTensor& tensor = weight();
  const size_t bytes = tensor.row_bytes();
  for (size_t i = 0; i < n; ++i) at[i] = tensor.bytes + stored_row(first + i) * bytes;
  if (!tensor.read || n == 0) return;
  const auto [lowest, highest] = std::minmax_element(at, at + n);
  const uint8_t* const begin = *lowest;
  const auto span = static_cast<size_t>(*highest - begin) + bytes;
  // Rows that lie near each other are read at once, with what lies between them: a call costs more than some bytes.
  constexpr size_t kSparse = 4;
  const bool together = span <= kSparse * n * bytes;
  copies.resize(std::max(copies.size(), together ? span : n * bytes));
  if (together) tensor.read(begin, {copies.data(), span});
  for (size_t i = 0; i < n; ++i) {
    uint8_t* const to = copies.data() + (together ? static_cast<size_t>(at[i] - begin) : i * bytes);
    if (!together) tensor.read(at[i], {to, bytes});
    at[i] = to;
  }
}

void MatrixSource::values(size_t first, size_t n, float* values) const {
  const StoredTensor& tensor = weight();
  std::vector<uint8_t> copies;
  std::vector<const uint8_t*> at(n);
  gather(first, n, copies, at.data());
  for (size_t i = 0; i < n; ++i)
    quant::dequantize_blocks(tensor.type, {at[i], tensor.row_bytes()}, 0, {values + i * n_in, n_in});
}

}  // namespace kpd::weight
