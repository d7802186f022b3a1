// io: NumPy's .npy, format versions 1, 2 and 3 (NEP 1 and numpy.lib.format): little-endian float32 and float16 in C order.
//
// Other element types, big-endian and Fortran order are Error(kUnsupported) saying how to convert: nothing is converted
// silently.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kpd/base/limits.h"
#include "kpd/io/tensor_entry.h"

namespace kpd::io {

bool looks_like_npy(std::span<const uint8_t> bytes);

// The entry's data points into `bytes`, which must hold exactly one array. `name` is the file named in errors.
TensorEntry parse_npy(std::span<const uint8_t> bytes, std::string_view name, const Limits& limits = {});

// The bytes before the data (version 1.0, data aligned to 64). Throws Error(kInvalidArgument) for bfloat16, which .npy lacks.
std::vector<uint8_t> npy_header(DType dtype, std::span<const uint64_t> shape);

// Throws Error(kInvalidArgument) where count is not the product of the shape.
void save_npy(const std::string& path, const TensorEntry& tensor);

}  // namespace kpd::io
