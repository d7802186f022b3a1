// io: sizes of tensors as files declare them.
#include "kpd/io/tensor_entry.h"

#include "kpd/base/error.h"
#include "io/saving.h"
#include "io/text.h"

namespace kpd::io {

uint64_t element_count(const std::vector<uint64_t>& shape, const Limits& limits, std::string_view where) {
  if (shape.size() > limits.max_dims) {
    fail(ErrorCode::kLimitExceeded, where, ": ", shape.size(), " dimensions, the limit is ", limits.max_dims);
  }
  // The product without the zeros is bounded too: shapes such as [2^60, 2^60, 0] would overflow later arithmetic.
  uint64_t count = 1;
  bool empty = false;
  for (const uint64_t dim : shape) {
    if (dim == 0) {
      empty = true;
      continue;
    }
    if (dim > limits.max_elements / count) {
      fail(ErrorCode::kLimitExceeded, where, ": more elements in the shape than the limit of ", limits.max_elements);
    }
    count *= dim;
  }
  return empty ? 0 : count;
}

void check_for_saving(const std::string& path, const TensorEntry& tensor) {
  Limits limits;
  limits.max_elements = UINT64_MAX / 4;  // what we hold may be written; only its consistency is checked
  const std::string where = str(printable_path(path), ": tensor '", printable(tensor.name), "'");
  if (element_count(tensor.shape, limits, where) != tensor.count) {
    fail(ErrorCode::kInvalidArgument, where, " has ", tensor.count, " elements, expected the product of its shape");
  }
  if (tensor.data == nullptr && tensor.count > 0) fail(ErrorCode::kInvalidArgument, where, " has no data");
}

}  // namespace kpd::io
