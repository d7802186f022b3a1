// io: one tensor of a file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kpd/base/dtype.h"
#include "kpd/base/limits.h"

namespace kpd::io {

struct TensorEntry {
  std::string name;  // "" in formats that know no names
  DType dtype = DType::kFloat32;
  std::vector<uint64_t> shape;  // row-major; its product is count; empty = one element (a scalar)
  const void* data = nullptr;   // count contiguous elements; not owned; not always aligned to the element
  uint64_t count = 0;

  TensorView view() const { return {data, count, dtype}; }
};

// Product of the dimensions, 1 for none. Throws Error(kLimitExceeded), its text opening with `where`, beyond limits.max_dims or
// limits.max_elements.
uint64_t element_count(const std::vector<uint64_t>& shape, const Limits& limits, std::string_view where);

}  // namespace kpd::io
