// io: what is checked of a tensor before it is written, in every format. Private.
#pragma once

#include <string>

#include "kpd/io/tensor_entry.h"

namespace kpd::io {

// Throws Error(kInvalidArgument) unless count is the product of the shape and there is data.
void check_for_saving(const std::string& path, const TensorEntry& tensor);

}  // namespace kpd::io
