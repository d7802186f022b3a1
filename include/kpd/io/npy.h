// io: NumPy's .npy, format versions 1, 2 and 3 (NEP 1 and numpy.lib.format): floats, integers, bools, and bfloat16 as ml_dtypes
// writes it ('<V2', which says no more than "two bytes").
//
// Big-endian and Fortran order are read too, by load_tensors(): such an array is reordered into a copy and its reader is told.
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

// An array as it lies in a file.
struct NpyArray {
  TensorEntry entry;           // data points into the file's bytes and need not be aligned
  bool swapped = false;        // big-endian
  bool fortran_order = false;  // the first index runs fastest
  bool void_bfloat16 = false;  // '<V2', taken for bfloat16
};
// `bytes` must hold exactly one array. `name` is the file named in errors.
NpyArray read_npy(std::span<const uint8_t> bytes, std::string_view name, const Limits& limits = {});
// The array's elements in C order and little-endian into dst, all of them.
void copy_native(const NpyArray& array, std::span<uint8_t> dst);
// What a reader should be told of an array that was not little-endian in C order, one line without the file's name; or "".
std::string npy_note(const NpyArray& array);

// read_npy() of arrays that need no copy; big-endian or Fortran order is Error(kUnsupported).
TensorEntry parse_npy(std::span<const uint8_t> bytes, std::string_view name, const Limits& limits = {});

// The bytes before the data (version 1.0, data aligned to 64). Throws Error(kInvalidArgument) for bfloat16 and 8-bit floats,
// which .npy lacks.
std::vector<uint8_t> npy_header(DType dtype, std::span<const uint64_t> shape);

// Throws Error(kInvalidArgument) where count is not the product of the shape.
void save_npy(const std::string& path, const TensorEntry& tensor);

}  // namespace kpd::io
