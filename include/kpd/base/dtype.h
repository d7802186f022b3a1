// base: element types and a non-owning view of a contiguous tensor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kpd {

// Values are part of the stream format. The first four hold values that codecs may round; elements of the others, the *exact*
// types, are never changed by compression.
enum class DType : uint8_t {
  kFloat32 = 0,
  kBFloat16 = 1,
  kFloat16 = 2,
  kFloat64 = 3,
  kInt8 = 4,
  kInt16 = 5,
  kInt32 = 6,
  kInt64 = 7,
  kUInt8 = 8,
  kUInt16 = 9,
  kUInt32 = 10,
  kUInt64 = 11,
  kBool = 12,        // a byte an element
  kFloat8E4M3 = 13,  // 4 bits of exponent, no infinity (OCP "E4M3", torch's float8_e4m3fn)
  kFloat8E5M2 = 14,  // the upper half of a float16
};
inline constexpr uint8_t kDTypes = 15;  // their number

size_t dtype_bytes(DType t);
const char* dtype_name(DType t);  // "float32", "bfloat16", "int64", "float8_e4m3", ...
inline bool dtype_is_exact(DType t) { return t > DType::kFloat64; }

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

// dst[i] = float(src[first + i]) for i < dst.size(); first + dst.size() <= src.count. Of any type, rounded to nearest even; a
// float64 beyond the float range becomes infinite.
void load_floats(const TensorView& src, uint64_t first, std::span<float> dst);
// Writes src into raw elements of type t (round to nearest even); t is no exact type, else Error(kInvalidArgument).
void store_floats(std::span<const float> src, DType t, void* dst);

}  // namespace kpd
