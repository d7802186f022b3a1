// base: conversions between float32, bfloat16 and IEEE binary16, in integer arithmetic as far as rounding allows, so that they
// do not depend on the machine's conversion instructions.
#include "kpd/base/dtype.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "kpd/base/error.h"

namespace kpd {
namespace {

constexpr uint32_t kSignMask = 0x80000000u;
constexpr uint32_t kInfBits = 0x7f800000u;

inline uint16_t bf16_from_bits(uint32_t bits) {
  const uint32_t quiet = (bits >> 16) | 0x40u;
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  return static_cast<uint16_t>((bits & ~kSignMask) > kInfBits ? quiet : rounded);
}

inline uint16_t fp16_from_float(float v) {
  const uint32_t bits = std::bit_cast<uint32_t>(v);
  const uint32_t magnitude = bits & ~kSignMask;
  uint32_t result;
  if (magnitude > kInfBits) {
    result = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
  } else if (magnitude >= 0x47800000u) {  // 2^16 and above, infinity
    result = 0x7c00u;
  } else if (magnitude < 0x38800000u) {
    // Below 2^-14 the result is denormal: adding 0.5 puts its last place at 2^-24, the rounding is the adder's.
    result = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - std::bit_cast<uint32_t>(0.5f);
  } else {
    result = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  }
  return static_cast<uint16_t>(result | ((bits & kSignMask) >> 16));
}

inline float float_from_fp16(uint16_t v) {
  const uint32_t magnitude = (v & 0x7fffu) << 13;
  const uint32_t exponent = magnitude & (0x1fu << 23);
  const uint32_t normal = magnitude + (112u << 23);
  const uint32_t special = magnitude + (224u << 23);
  // A denormal is m * 2^-24: the float (2^-14 + m * 2^-24) minus 2^-14, both exact.
  const float denormal = std::bit_cast<float>(magnitude + (113u << 23)) - std::bit_cast<float>(113u << 23);
  uint32_t bits = exponent == (0x1fu << 23) ? special : normal;
  bits = exponent == 0 ? std::bit_cast<uint32_t>(denormal) : bits;
  return std::bit_cast<float>(bits | (static_cast<uint32_t>(v & 0x8000u) << 16));
}

// 1 sign, 4 bits of exponent with bias 7, 3 of mantissa; all ones is NaN.
inline float float_from_e4m3(uint8_t v) {
  const uint32_t magnitude = v & 0x7fu, sign = static_cast<uint32_t>(v & 0x80u) << 24;
  if (magnitude == 0x7f) return std::bit_cast<float>(sign | 0x7fc00000u);
  if (magnitude < 8) return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(static_cast<float>(magnitude) * 0x1p-9f));
  return std::bit_cast<float>(sign | ((magnitude << 20) + (120u << 23)));
}

inline float float_from_double(double v) {
  if (std::fabs(v) >= 0x1.ffffffp127) return std::copysign(HUGE_VALF, static_cast<float>(std::copysign(1.0, v)));
  return static_cast<float>(v);
}

template <class T>
T element(const uint8_t* p, size_t i) {
  T v;
  std::memcpy(&v, p + i * sizeof(T), sizeof(T));
  return v;
}

}  // namespace

size_t dtype_bytes(DType t) {
  switch (t) {
    case DType::kFloat64:
    case DType::kInt64:
    case DType::kUInt64:
      return 8;
    case DType::kFloat32:
    case DType::kInt32:
    case DType::kUInt32:
      return 4;
    case DType::kBFloat16:
    case DType::kFloat16:
    case DType::kInt16:
    case DType::kUInt16:
      return 2;
    default:
      return 1;
  }
}

const char* dtype_name(DType t) {
  static constexpr const char* kNames[kDTypes] = {"float32", "bfloat16", "float16", "float64",     "int8",
                                                  "int16",   "int32",    "int64",   "uint8",       "uint16",
                                                  "uint32",  "uint64",   "bool",    "float8_e4m3", "float8_e5m2"};
  return static_cast<uint8_t>(t) < kDTypes ? kNames[static_cast<uint8_t>(t)] : "unknown";
}

uint16_t float_to_bf16(float v) { return bf16_from_bits(std::bit_cast<uint32_t>(v)); }
float bf16_to_float(uint16_t v) { return std::bit_cast<float>(static_cast<uint32_t>(v) << 16); }
uint16_t float_to_fp16(float v) { return fp16_from_float(v); }
float fp16_to_float(uint16_t v) { return float_from_fp16(v); }

void load_floats(const TensorView& src, uint64_t first, std::span<float> dst) {
  const size_t n = dst.size();
  if (first > src.count || n > src.count - first) {
    fail(ErrorCode::kInvalidArgument, "elements ", first, " to ", first + n, " asked of a tensor of ", src.count);
  }
  if (n == 0) return;
  const uint8_t* p = static_cast<const uint8_t*>(src.data) + first * dtype_bytes(src.dtype);
  const auto convert = [&](auto value_at) {
    for (size_t i = 0; i < n; ++i) dst[i] = value_at(i);
  };
  switch (src.dtype) {
    case DType::kFloat32:
      std::memcpy(dst.data(), p, n * sizeof(float));
      return;
    case DType::kBFloat16:
      return convert([p](size_t i) { return bf16_to_float(element<uint16_t>(p, i)); });
    case DType::kFloat16:
      return convert([p](size_t i) { return float_from_fp16(element<uint16_t>(p, i)); });
    case DType::kFloat64:
      return convert([p](size_t i) { return float_from_double(element<double>(p, i)); });
    case DType::kInt8:
      return convert([p](size_t i) { return static_cast<float>(element<int8_t>(p, i)); });
    case DType::kInt16:
      return convert([p](size_t i) { return static_cast<float>(element<int16_t>(p, i)); });
    case DType::kInt32:
      return convert([p](size_t i) { return static_cast<float>(element<int32_t>(p, i)); });
    case DType::kInt64:
      return convert([p](size_t i) { return static_cast<float>(element<int64_t>(p, i)); });
    case DType::kUInt8:
      return convert([p](size_t i) { return static_cast<float>(p[i]); });
    case DType::kUInt16:
      return convert([p](size_t i) { return static_cast<float>(element<uint16_t>(p, i)); });
    case DType::kUInt32:
      return convert([p](size_t i) { return static_cast<float>(element<uint32_t>(p, i)); });
    case DType::kUInt64:
      return convert([p](size_t i) { return static_cast<float>(element<uint64_t>(p, i)); });
    case DType::kBool:
      return convert([p](size_t i) { return p[i] != 0 ? 1.0f : 0.0f; });
    case DType::kFloat8E4M3:
      return convert([p](size_t i) { return float_from_e4m3(p[i]); });
    case DType::kFloat8E5M2:
      return convert([p](size_t i) { return float_from_fp16(static_cast<uint16_t>(p[i] << 8)); });
  }
  fail(ErrorCode::kInvalidArgument, "unknown element type ", static_cast<int>(src.dtype));
}

void store_floats(std::span<const float> src, DType t, void* dst) {
  const size_t n = src.size();
  if (n == 0) return;
  uint8_t* p = static_cast<uint8_t*>(dst);
  switch (t) {
    case DType::kFloat32:
      std::memcpy(p, src.data(), n * sizeof(float));
      return;
    case DType::kBFloat16:
      for (size_t i = 0; i < n; ++i) {
        const uint16_t v = bf16_from_bits(std::bit_cast<uint32_t>(src[i]));
        std::memcpy(p + 2 * i, &v, 2);
      }
      return;
    case DType::kFloat16:
      for (size_t i = 0; i < n; ++i) {
        const uint16_t v = fp16_from_float(src[i]);
        std::memcpy(p + 2 * i, &v, 2);
      }
      return;
    case DType::kFloat64:
      for (size_t i = 0; i < n; ++i) {
        const double v = static_cast<double>(src[i]);
        std::memcpy(p + 8 * i, &v, 8);
      }
      return;
    default:
      fail(ErrorCode::kInvalidArgument, "floats cannot be stored as ", dtype_name(t));
  }
}

}  // namespace kpd
