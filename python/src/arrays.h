// python: callers' arrays as memory of the library, and back. Arrays come through the buffer protocol (numpy, memoryview, ...)
// or DLPack (torch and others) and are not copied where they are contiguous.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nanobind/nanobind.h>

#include "kpd/gradient/gradient.h"

namespace kpd::python {

// An argument, or an element of one, as errors name it: array, tensors[3], out['conv.weight']. Costs nothing until then.
struct Place {
  const char* argument;
  Py_ssize_t index = -1;
  std::string_view key{};
  bool keyed = false;
  std::string text() const;
};

template <class... Args>
[[noreturn]] void refuse(const Place& place, const Args&... args) {
  fail(ErrorCode::kInvalidArgument, place.text(), ": ", args...);
}

// One array of a caller, held while this lives. Made, moved and destroyed with the GIL.
class Array {
 public:
  // To read. Errors: what is no array (TypeError), and as kpd.Error what cannot be read as it lies: tensors that require grad,
  // are sparse, conjugate or negative views, not on the CPU; big-endian elements, types that kpd does not have, negative
  // strides. uint16 elements are taken as bfloat16, uint8 ones as 8-bit floats, where `as` says so.
  static Array source(nanobind::handle object, const Place& place, std::optional<DType> as = {});
  // To write: contiguous and writable besides.
  static Array target(nanobind::handle object, const Place& place);

  Array() = default;
  Array(Array&& other) noexcept;
  Array& operator=(Array&& other) noexcept;
  ~Array();

  DType dtype() const { return dtype_; }
  const std::vector<uint64_t>& shape() const { return shape_; }
  uint64_t count() const { return count_; }
  uint64_t bytes() const { return count_ * dtype_bytes(dtype_); }
  bool contiguous() const { return contiguous_; }
  // Copies what is not contiguous; needs no GIL. Before view() and data() of such an array.
  void gather();
  TensorView view() const { return {data(), count_, dtype_}; }
  const void* data() const { return copy_ ? static_cast<const void*>(copy_.get()) : data_; }
  void* writable() const { return const_cast<void*>(data_); }

 private:
  friend struct ArrayReader;

  void release();

  const void* data_ = nullptr;
  DType dtype_ = DType::kFloat32;
  bool contiguous_ = true, read_only_ = true;
  uint64_t count_ = 0;
  std::vector<uint64_t> shape_;
  std::vector<int64_t> strides_;  // in bytes; only of what is not contiguous
  std::unique_ptr<uint8_t[]> copy_;
  // Who owns the memory: one of them.
  bool has_buffer_ = false;
  Py_buffer buffer_{};
  void* managed_ = nullptr;  // DLPack's
  void (*drop_)(void*) = nullptr;
};

// Contiguous bytes of a caller (bytes, bytearray, memoryview, uint8 arrays and tensors).
std::span<const uint8_t> message_bytes(const Array& array, const Place& place);

// "float32", "int64", ... of a dtype that numpy and torch name in their own ways; none for what kpd does not have.
std::optional<DType> parse_dtype(std::string_view name);
// Element type and shape of an array, whatever its memory: also of tensors that require grad or have no data.
gradient::TensorInfo describe(nanobind::handle object, std::string name, const Place& place);

// An uninitialised numpy array. numpy has no bfloat16 and no 8-bit floats: those are uint16 and uint8.
nanobind::object new_array(std::span<const uint64_t> shape, DType dtype);

// Throws unless all of `targets` are apart from each other and from `sources`.
void check_apart(std::span<const Array> targets, std::span<const Array> sources, const char* argument);

std::string shape_text(std::span<const uint64_t> shape);

}  // namespace kpd::python
