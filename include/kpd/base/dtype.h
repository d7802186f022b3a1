// base: element types and a non-owning view of a contiguous tensor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kpd {

// Values are part of the stream format.
enum class DType : uint8_t { kFloat32 = 0, kBFloat16 = 1, kFloat16 = 2 };

size_t dtype_bytes(DType t);
const char* dtype_name(DType t);  // "float32", "bfloat16", "float16"

// Round to nearest even; NaN stays NaN.
uint16_t float_to_bf16(float v);
float bf16_to_float(uint16_t v);
uint16_t float_to_fp16(float v);
float fp16_to_float(uint16_t v);

// Contiguous elements, not owned. `data` needs the alignment of the element type only.
struct TensorView {
  const void* data = nullptr;
  uint64_t count = 0;
  DType dtype = DType::kFloat32;

  TensorView() = default;
  TensorView(const void* d, uint64_t n, DType t) : data(d), count(n), dtype(t) {}
  TensorView(std::span<const float> v) : data(v.data()), count(v.size()) {}  // NOLINT: implicit by design
};

// dst[i] = float(src[first + i]) for i < dst.size(); first + dst.size() <= src.count.
void load_floats(const TensorView& src, uint64_t first, std::span<float> dst);
// Writes src into raw elements of type t (round to nearest even).
void store_floats(std::span<const float> src, DType t, void* dst);

}  // namespace kpd
