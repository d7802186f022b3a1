// kernels: activations to 8-bit codes with Highway (quantize_rows of int_product.h).
#include "base/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/int_product_rows.cc"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include <cstring>
#include <limits>

#include "kernels/int_product.h"

HWY_BEFORE_NAMESPACE();
namespace kpd::kernels {
namespace HWY_NAMESPACE {

#if !KPD_TARGET_IS_SCALAR

namespace hn = hwy::HWY_NAMESPACE;

using D = hn::CappedTag<float, 16>;
using DI = hn::RebindToSigned<D>;
using DI8 = hn::Rebind<int8_t, D>;
inline constexpr size_t kLanes = hn::MaxLanes(D());
inline constexpr size_t kHalfVecs = 16 / kLanes;

// 16 codes and their sum.
HWY_INLINE int32_t quantize_half(const float* x, hn::Vec<D> inverse, int8_t* codes) {
  const D d;
  const DI di;
  auto sum = hn::Zero(di);
  for (size_t v = 0; v < kHalfVecs; ++v) {
    const auto code = hn::NearestInt(hn::Mul(hn::LoadU(d, x + v * kLanes), inverse));
    sum = hn::Add(sum, code);
    hn::StoreU(hn::DemoteTo(DI8(), code), DI8(), codes + v * kLanes);
  }
  return hn::GetLane(hn::SumOfLanes(di, sum));
}

void quantize_rows(const float* x, size_t x_stride, size_t row_begin, size_t row_end, Int8Buffer& dst) {
  const D d;
  const DI di;
  const size_t n_blocks = dst.n_cols / kBlockCols;
  const auto no_sign = hn::Set(di, 0x7fffffff);
  for (size_t r = row_begin; r < row_end; ++r) {
    for (size_t b = 0; b < n_blocks; ++b) {
      const float* src = x + r * x_stride + b * kBlockCols;
      const size_t index = r * n_blocks + b;
      int8_t* codes = dst.codes.data() + index * kBlockCols;
      auto max_bits = hn::Zero(di);
      for (size_t i = 0; i < kBlockCols; i += kLanes) {
        max_bits = hn::Max(max_bits, hn::And(hn::BitCast(di, hn::LoadU(d, src + i)), no_sign));
      }
      const int32_t bits = hn::GetLane(hn::MaxOfLanes(di, max_bits));
      float max;
      std::memcpy(&max, &bits, 4);
      int32_t low = 0, high = 0;
      float scale = 0;
      if (bits >= 0x7f800000 || max < kMinInt8Max) {
        std::memset(codes, 0, kBlockCols);
        if (bits >= 0x7f800000) scale = std::numeric_limits<float>::quiet_NaN();
      } else {
        scale = max / 127.0f;
        const auto inverse = hn::Set(d, 127.0f / max);
        low = quantize_half(src, inverse, codes);
        high = quantize_half(src + 16, inverse, codes + 16);
      }
      dst.scales[index] = scale;
      dst.sums[2 * index] = static_cast<int16_t>(low);
      dst.sums[2 * index + 1] = static_cast<int16_t>(high);
      dst.scaled_sums[index] = scale * static_cast<float>(low + high);
    }
  }
}
#endif  // !KPD_TARGET_IS_SCALAR
}  // namespace HWY_NAMESPACE
}  // namespace kpd::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kpd::kernels {
KPD_DISPATCH(quantize_rows);
}  // namespace kpd::kernels
#endif
