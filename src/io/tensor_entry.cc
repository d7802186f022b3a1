// io: sizes of tensors as files declare them.
#include "kpd/io/tensor_entry.h"

#include "kpd/base/error.h"

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

}  // namespace kpd::io
