// weight: where a matrix comes from: tensors as a file stores them, and which of their rows are the matrix's outputs. What a
// format makes of it (format.h) has these questions behind it: a slice of a fused tensor and permuted rows are resolved once,
// when the matrix is made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kpd/base/block_type.h"

namespace kpd::weight {

// A tensor as stored: n_rows rows of whole blocks, one behind the other. Not owned: the bytes must outlive what reads them.
struct StoredTensor {
  std::string name;  // for errors: that of the file
  BlockType type = BlockType::kF32;
  size_t n_rows = 0, n_cols = 0;
  const uint8_t* bytes = nullptr;  // n_rows * row_bytes()
  // Where they lie in a file that others may cut: how bytes of them are copied without a signal. Throws; thread-safe. Empty:
  // they are plain memory.
  std::function<void(const uint8_t* from, std::span<uint8_t> to)> read;
  size_t row_bytes() const;
};

// A matrix of n_out rows of n_in values, from one tensor or several.
struct MatrixSource {
  static constexpr std::string_view kWeight = "weight";

  struct Part {
    std::string role;  // kWeight, or what else a format needs: codes, scales ...
    StoredTensor tensor;
  };

  size_t n_out = 0, n_in = 0;
  std::vector<Part> parts;
  // Rows of the part kWeight. Row o of the matrix is row stored_row(o) of the tensor.
  size_t first_row = 0;  // of a slice of a fused tensor
  size_t pair_width =
      0;  // of a head whose rows are stored for a rotation of neighbours, while the model's turns halves; 0: none

  // Throws Error(kInvalidArgument) if there is none.
  const StoredTensor& part(std::string_view role) const;
  const StoredTensor& weight() const { return part(kWeight); }
  size_t stored_row(size_t row) const;
  // Throws Error(kCorruptData), naming the tensor, unless the part kWeight has these rows in whole blocks.
  void check() const;

  // The stored bytes of rows [first, first + n) of the matrix, a pointer each in `at`, which has room for n: into memory where
  // they are that, else into `copies`, which keeps its memory.
  void gather(size_t first, size_t n, std::vector<uint8_t>& copies, const uint8_t** at) const;
  // values [n, n_in] of rows [first, first + n), for formats that lay them out anew.
  void values(size_t first, size_t n, float* values) const;
};

}  // namespace kpd::weight
