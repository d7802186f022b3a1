// tests: element types: every pattern of the 16-bit floats, rounding to nearest even, the edges of the range.
#include "kpd/base/dtype.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/expect_error.h"
#include "kpd/base/rng.h"

namespace kpd {
namespace {

// The value of a binary16 pattern by its definition.
double fp16_value(uint16_t v) {
  const int exponent = (v >> 10) & 31;
  const int mantissa = v & 1023;
  const double magnitude = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
  return (v & 0x8000) ? -magnitude : magnitude;
}

bool is_fp16_nan(uint16_t v) { return (v & 0x7c00) == 0x7c00 && (v & 0x3ff) != 0; }

TEST(Fp16, Every65536PatternRoundTrips) {
  for (uint32_t i = 0; i < 65536; ++i) {
    const uint16_t v = static_cast<uint16_t>(i);
    const float f = fp16_to_float(v);
    if (is_fp16_nan(v)) {
      ASSERT_TRUE(std::isnan(f)) << i;
      ASSERT_TRUE(is_fp16_nan(float_to_fp16(f))) << i;
      ASSERT_EQ(float_to_fp16(f) & 0x8000, v & 0x8000) << i;
      continue;
    }
    if ((v & 0x7fff) == 0x7c00) {
      ASSERT_TRUE(std::isinf(f)) << i;
    } else {
      ASSERT_EQ(f, fp16_value(v)) << i;
    }
    ASSERT_EQ(std::signbit(f), (v & 0x8000) != 0) << i;
    ASSERT_EQ(float_to_fp16(f), v);
  }
}

TEST(Fp16, TiesGoToEvenAndNeighboursToTheNearer) {
  for (uint16_t v = 0; v < 0x7bff; ++v) {  // every gap between neighbours, denormals too
    const float tie = static_cast<float>((fp16_value(v) + fp16_value(v + 1)) / 2);
    const uint16_t even = (v & 1) ? v + 1 : v;
    ASSERT_EQ(float_to_fp16(tie), even) << v;
    ASSERT_EQ(float_to_fp16(-tie), even | 0x8000) << v;
    ASSERT_EQ(float_to_fp16(std::nextafter(tie, 0.0f)), v) << v;
    ASSERT_EQ(float_to_fp16(std::nextafter(tie, 1e9f)), v + 1) << v;
  }
}

TEST(Fp16, EdgesOfTheRange) {
  EXPECT_EQ(float_to_fp16(65504.0f), 0x7bff);
  EXPECT_EQ(float_to_fp16(65519.996f), 0x7bff);
  EXPECT_EQ(float_to_fp16(65520.0f), 0x7c00);
  EXPECT_EQ(float_to_fp16(1e30f), 0x7c00);
  EXPECT_EQ(float_to_fp16(-std::numeric_limits<float>::infinity()), 0xfc00);
  EXPECT_EQ(float_to_fp16(0x1p-25f), 0);  // half of the least denormal: a tie, to even
  EXPECT_EQ(float_to_fp16(std::nextafter(0x1p-25f, 1.0f)), 1);
  EXPECT_EQ(float_to_fp16(std::numeric_limits<float>::denorm_min()), 0);
  EXPECT_EQ(float_to_fp16(-0.0f), 0x8000);
}

TEST(Bf16, Every65536PatternRoundTrips) {
  for (uint32_t i = 0; i < 65536; ++i) {
    const uint16_t v = static_cast<uint16_t>(i);
    const float f = bf16_to_float(v);
    ASSERT_EQ(std::bit_cast<uint32_t>(f), i << 16);
    if (std::isnan(f)) {
      ASSERT_TRUE(std::isnan(bf16_to_float(float_to_bf16(f)))) << i;
    } else {
      ASSERT_EQ(float_to_bf16(f), v);
    }
  }
}

TEST(Bf16, RoundsToNearestEven) {
  for (uint32_t v = 0; v < 0x7f80; ++v) {  // every finite positive pattern, denormals too
    const float tie = std::bit_cast<float>((v << 16) | 0x8000u);
    ASSERT_EQ(float_to_bf16(tie), (v & 1) ? v + 1 : v);
    ASSERT_EQ(float_to_bf16(std::bit_cast<float>((v << 16) | 0x7fffu)), v);
    ASSERT_EQ(float_to_bf16(std::bit_cast<float>((v << 16) | 0x8001u)), v + 1);
  }
  EXPECT_EQ(float_to_bf16(std::numeric_limits<float>::max()), 0x7f80);  // nearer to 2^128 than to the largest bfloat16
}

TEST(Bf16, NanNeverTurnsIntoInfinity) {
  for (const uint32_t bits : {0x7f800001u, 0x7f80ffffu, 0x7fffffffu, 0xff800001u, 0xffffffffu}) {
    EXPECT_TRUE(std::isnan(bf16_to_float(float_to_bf16(std::bit_cast<float>(bits))))) << bits;
    EXPECT_TRUE(std::isnan(fp16_to_float(float_to_fp16(std::bit_cast<float>(bits))))) << bits;
  }
}

TEST(TensorView, LoadsAndStoresEqualTheSingleConversions) {
  CounterRng rng(7);
  std::vector<float> values(1003);
  for (auto& v : values) v = std::bit_cast<float>(rng.next_u32());
  for (const DType t : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    std::vector<uint8_t> raw(values.size() * dtype_bytes(t) + 2);
    store_floats(values, t, raw.data() + 2);
    const TensorView view(raw.data() + 2, values.size(), t);
    std::vector<float> back(500);
    load_floats(view, 503, back);
    for (size_t i = 0; i < back.size(); ++i) {
      const float v = values[503 + i];
      float want = v;
      if (t == DType::kBFloat16) want = bf16_to_float(float_to_bf16(v));
      if (t == DType::kFloat16) want = fp16_to_float(float_to_fp16(v));
      ASSERT_EQ(std::memcmp(&back[i], &want, 4), 0) << dtype_name(t) << " " << i << " " << v;
    }
    EXPECT_KPD_ERROR(kInvalidArgument, "asked of a tensor of 1003", load_floats(view, 504, back));
    EXPECT_KPD_ERROR(kInvalidArgument, "asked of a tensor of 1003", load_floats(view, uint64_t{0} - 1, back));
    EXPECT_NO_THROW(load_floats(view, 1003, {}));
  }
}

TEST(DType, NamesAndSizes) {
  EXPECT_STREQ(dtype_name(DType::kFloat32), "float32");
  EXPECT_STREQ(dtype_name(DType::kBFloat16), "bfloat16");
  EXPECT_STREQ(dtype_name(DType::kFloat16), "float16");
  EXPECT_EQ(dtype_bytes(DType::kFloat32), 4u);
  EXPECT_EQ(dtype_bytes(DType::kBFloat16), 2u);
  EXPECT_EQ(dtype_bytes(DType::kFloat16), 2u);
  const std::vector<float> v(3);
  EXPECT_EQ(TensorView(v).count, 3u);
}

}  // namespace
}  // namespace kpd
