// gradient: the references. `float32` sends the elements as they are, `bf16` rounds each to bfloat16 (to nearest even; finite
// values stay finite), `exact` sends elements of other types than floats. A segment is its elements, little-endian, nothing
// else. NaN and Inf pass: whether they may is the stream's policy.
#include <algorithm>
#include <bit>
#include <cstring>

#include "gradient/baseline_tools.h"
#include "gradient/baselines.h"
#include "kernels/sums.h"
#include "kpd/base/dtype.h"

namespace kpd::gradient {
namespace {

using namespace baselines;

constexpr uint32_t kInfBits = 0x7f800000u;

class Float32Codec final : public SegmentCodec {
 public:
  bool fixed_size() const override { return true; }
  uint64_t segment_bytes(const SegmentShape& shape) const override { return shape.elements * 4; }

  uint64_t encode(std::span<const float> x, const SegmentShape& shape, const TensorKeys&, std::span<uint8_t> dst, Scratch&,
                  SegmentStats& stats) const override {
    if constexpr (std::endian::native == std::endian::little) {
      std::memcpy(dst.data(), x.data(), x.size_bytes());
    } else {
      for (size_t i = 0; i < x.size(); ++i) write_float(dst.data() + 4 * i, x[i]);
    }
    stats.norm2 += kernels::magnitude(x.data(), x.size()).sum_squares;
    return segment_bytes(shape);
  }

  uint64_t decode(std::span<const uint8_t> src, const SegmentShape& shape, const TensorKeys&, float weight, bool accumulate,
                  std::span<float> dst, Scratch&) const override {
    check_segment_size(src, segment_bytes(shape));
    const size_t n = shape.elements;
    if (accumulate) {
      for (size_t i = 0; i < n; ++i) dst[i] += weight * std::bit_cast<float>(load_u32(src.data() + 4 * i));
    } else if constexpr (std::endian::native == std::endian::little) {
      std::memcpy(dst.data(), src.data(), n * 4);
    } else {
      for (size_t i = 0; i < n; ++i) dst[i] = std::bit_cast<float>(load_u32(src.data() + 4 * i));
    }
    return 0;
  }
};

// To nearest even, but a finite value never becomes infinite.
uint16_t round_bf16(float v) {
  const uint32_t bits = std::bit_cast<uint32_t>(v);
  const uint32_t magnitude = bits & 0x7fffffffu;
  const uint32_t rounded = (magnitude + 0x7fffu + ((magnitude >> 16) & 1u)) >> 16;
  const uint32_t finite = rounded < 0x7f7fu ? rounded : 0x7f7fu;
  const uint32_t special = magnitude == kInfBits ? 0x7f80u : (magnitude >> 16) | 0x40u;
  return static_cast<uint16_t>((magnitude < kInfBits ? finite : special) | ((bits >> 16) & 0x8000u));
}

float from_bf16(uint16_t v) { return std::bit_cast<float>(static_cast<uint32_t>(v) << 16); }

class Bf16Codec final : public SegmentCodec {
 public:
  bool fixed_size() const override { return true; }
  uint64_t segment_bytes(const SegmentShape& shape) const override { return shape.elements * 2; }

  uint64_t encode(std::span<const float> x, const SegmentShape& shape, const TensorKeys&, std::span<uint8_t> dst, Scratch&,
                  SegmentStats& stats) const override {
    double error2[8] = {};
    for (size_t i = 0; i < x.size(); ++i) {
      const uint16_t v = round_bf16(x[i]);
      store_u16(dst.data() + 2 * i, v);
      const double e = static_cast<double>(from_bf16(v)) - static_cast<double>(x[i]);
      error2[i % 8] += e * e;
    }
    stats.norm2 += kernels::magnitude(x.data(), x.size()).sum_squares;
    for (const double e : error2) stats.error2 += e;
    return segment_bytes(shape);
  }

  uint64_t decode(std::span<const uint8_t> src, const SegmentShape& shape, const TensorKeys&, float weight, bool accumulate,
                  std::span<float> dst, Scratch&) const override {
    check_segment_size(src, segment_bytes(shape));
    const size_t n = shape.elements;
    if (accumulate) {
      for (size_t i = 0; i < n; ++i) dst[i] += weight * from_bf16(load_u16(src.data() + 2 * i));
    } else {
      for (size_t i = 0; i < n; ++i) dst[i] = from_bf16(load_u16(src.data() + 2 * i));
    }
    return 0;
  }
};

// Elements of an exact type as they are, little-endian. The stream copies them (their encoder has no floats to give); decoding
// makes floats of them for who wants to add them.
class ExactCodec final : public SegmentCodec {
 public:
  explicit ExactCodec(DType dtype) : dtype_(dtype) {}
  bool fixed_size() const override { return true; }
  uint64_t segment_bytes(const SegmentShape& shape) const override { return shape.elements * dtype_bytes(dtype_); }

  uint64_t encode(std::span<const float>, const SegmentShape&, const TensorKeys&, std::span<uint8_t>, Scratch&,
                  SegmentStats&) const override {
    fail(ErrorCode::kInternal, "exact: elements of ", dtype_name(dtype_), " are not floats");
  }

  uint64_t decode(std::span<const uint8_t> src, const SegmentShape& shape, const TensorKeys&, float weight, bool accumulate,
                  std::span<float> dst, Scratch& scratch) const override {
    check_segment_size(src, segment_bytes(shape));
    const std::span<float> values = grown(scratch.values, shape.elements);
    load_floats({native(src, scratch), shape.elements, dtype_}, 0, values);
    for (size_t i = 0; i < values.size(); ++i) dst[i] = accumulate ? dst[i] + weight * values[i] : values[i];
    return 0;
  }

 private:
  // The elements in this machine's order of bytes.
  const uint8_t* native(std::span<const uint8_t> src, Scratch& scratch) const {
    if constexpr (std::endian::native == std::endian::little) return src.data();
    const std::span<uint8_t> bytes = grown(scratch.bytes, src.size());
    copy_exact(src, dtype_bytes(dtype_), bytes.data());
    return bytes.data();
  }
  DType dtype_;
};

template <uint8_t kId, uint32_t kBits>
WireParams parse(const Spec&) {
  return {.method = kId, .log2_block = kDefaultLog2Block, .rate = kBits * kOneBit};
}

template <class CodecType, uint32_t kBits>
std::unique_ptr<SegmentCodec> make(const WireParams& params) {
  check_fields(kBits == 32 ? "float32" : "bf16", params, {.min_rate = kBits * kOneBit, .max_rate = kBits * kOneBit});
  return std::make_unique<CodecType>();
}

std::unique_ptr<SegmentCodec> make_exact(const WireParams& params) {
  check_field("exact", "type", params.param, static_cast<uint64_t>(DType::kInt8), kDTypes - 1);
  return std::make_unique<ExactCodec>(static_cast<DType>(params.param));
}

}  // namespace

void copy_exact(std::span<const uint8_t> src, size_t element_bytes, uint8_t* dst) {
  if constexpr (std::endian::native == std::endian::little) {
    if (!src.empty()) std::memcpy(dst, src.data(), src.size());
    return;
  }
  for (size_t i = 0; i < src.size(); i += element_bytes) std::reverse_copy(&src[i], &src[i] + element_bytes, dst + i);
}

MethodEntry exact_entry() {
  return {{kExactId, "exact", "8..64", "exact", "0", "the elements of an exact type", {}},
          [](const Spec& spec) -> WireParams { spec.fail_at(1, "exact is chosen by a tensor's type"); },
          make_exact,
          [](const WireParams&, uint64_t) { return 0.0; }};
}

MethodEntry float32_entry() {
  return {{kFloat32Id, "float32", "32", "exact", "0", "IEEE 754 binary32", {}},
          parse<kFloat32Id, 32>,
          make<Float32Codec, 32>,
          [](const WireParams&, uint64_t) { return 0.0; }};
}

MethodEntry bf16_entry() {
  return {{kBf16Id, "bf16", "16", "no: rounds to nearest", "2^-16", "bfloat16", {}},
          parse<kBf16Id, 16>,
          make<Bf16Codec, 16>,
          [](const WireParams&, uint64_t) { return power_of_two(-16); }};
}

}  // namespace kpd::gradient
