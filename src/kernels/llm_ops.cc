// kernels: the operations of llm_ops.h with Highway.
#include "base/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/llm_ops.cc"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>
#include <hwy/contrib/math/math-inl.h>

#include <algorithm>
#include <cmath>

#include "kernels/llm_ops.h"
#include "kernels/widen_f16-inl.h"
#include "kpd/base/cpu.h"

HWY_BEFORE_NAMESPACE();
namespace kpd::kernels {
namespace HWY_NAMESPACE {

#if KPD_TARGET_IS_SCALAR
void RmsNorm(const float* x, const float* w, size_t n, float eps, float* y) { scalar::rms_norm(x, w, n, eps, y); }
void SiluMultiply(const float* gate, const float* up, size_t n, float* y) { scalar::silu_multiply(gate, up, n, y); }
void GeluTanhMultiply(const float* gate, const float* up, size_t n, float* y) { scalar::gelu_tanh_multiply(gate, up, n, y); }
void SoftCap(float* x, size_t n, float cap) { scalar::soft_cap(x, n, cap); }
void RotateHalves(float* x, const float* c, const float* s, size_t half) { scalar::rotate_halves(x, c, s, half); }
void Add(float* x, const float* y, size_t n) { scalar::add(x, y, n); }
void Scale(float* x, size_t n, float factor) { scalar::scale(x, n, factor); }
float MaxValue(const float* x, size_t n) { return scalar::max_value(x, n); }
float ExpShifted(float* x, size_t n, float shift) { return scalar::exp_shifted(x, n, shift); }
void WidenFp16(const uint16_t* src, size_t n, float* dst) { scalar::widen_fp16(src, n, dst); }
void WidenBf16(const uint16_t* src, size_t n, float* dst) { scalar::widen_bf16(src, n, dst); }
#else

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::CappedTag<float, 16>;
using V = hn::Vec<D>;
inline constexpr size_t kLanes = hn::MaxLanes(D());

// The row's last values, fewer than a vector, through a buffer that is filled up with `rest`.
struct Tail {
  Tail(const float* x, size_t n, float rest) {
    for (size_t i = 0; i < kLanes; ++i) lanes[i] = i < n ? x[i] : rest;
  }
  V get() const { return hn::Load(D(), lanes); }
  void put(V v, float* dst, size_t n) {
    hn::Store(v, D(), lanes);
    for (size_t i = 0; i < n; ++i) dst[i] = lanes[i];
  }
  HWY_ALIGN float lanes[kLanes];
};

// Below -87 exp is not accurate to the last bit and does not matter; the clamp keeps infinities out of the polynomial. NaN, for
// which clamp and comparison would answer a number, stays NaN.
HWY_INLINE V ExpOf(V x) {
  const D d;
  const V low = hn::Set(d, -87.0f);
  const V e = hn::CallExp(d, hn::Max(hn::Min(x, hn::Set(d, 88.0f)), low));
  return hn::IfThenElse(hn::Eq(x, x), hn::IfThenElseZero(hn::Ge(x, low), e), x);
}

HWY_INLINE V Silu(V g) {
  const D d;
  return hn::Div(g, hn::Add(hn::Set(d, 1.0f), ExpOf(hn::Neg(g))));
}

// tanh by exp: 1 - 2 / (exp(2 x) + 1), to a few units in the last place of 1.
HWY_INLINE V TanhOf(V x) {
  const D d;
  const V one = hn::Set(d, 1.0f);
  return hn::Sub(one, hn::Div(hn::Set(d, 2.0f), hn::Add(ExpOf(hn::Add(x, x)), one)));
}

HWY_INLINE V GeluTanh(V g) {
  const D d;
  const V cube = hn::Mul(hn::Mul(g, g), g);
  const V inner = hn::Mul(hn::Set(d, 0.7978845608f), hn::MulAdd(hn::Set(d, 0.044715f), cube, g));
  return hn::Mul(hn::Mul(hn::Set(d, 0.5f), g), hn::Add(hn::Set(d, 1.0f), TanhOf(inner)));
}

void RmsNorm(const float* x, const float* w, size_t n, float eps, float* y) {
  const D d;
  V sum = hn::Zero(d), sum2 = hn::Zero(d);
  size_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    const V a = hn::LoadU(d, x + i), b = hn::LoadU(d, x + i + kLanes);
    sum = hn::MulAdd(a, a, sum);
    sum2 = hn::MulAdd(b, b, sum2);
  }
  float rest = 0;
  for (size_t j = i; j < n; ++j) rest += x[j] * x[j];
  const float total = hn::GetLane(hn::SumOfLanes(d, hn::Add(sum, sum2))) + rest;
  const float factor = 1.0f / std::sqrt(total / static_cast<float>(n) + eps);
  const V f = hn::Set(d, factor);
  i = 0;
  for (; i + kLanes <= n; i += kLanes) hn::StoreU(hn::Mul(hn::LoadU(d, w + i), hn::Mul(hn::LoadU(d, x + i), f)), d, y + i);
  for (; i < n; ++i) y[i] = w[i] * (x[i] * factor);
}

template <class Op>
HWY_INLINE void GateLoop(const float* gate, const float* up, size_t n, float* y, const Op& op) {
  const D d;
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) hn::StoreU(hn::Mul(op(hn::LoadU(d, gate + i)), hn::LoadU(d, up + i)), d, y + i);
  if (i < n) {
    Tail g(gate + i, n - i, 0);
    const Tail u(up + i, n - i, 0);
    g.put(hn::Mul(op(g.get()), u.get()), y + i, n - i);
  }
}

struct SiluOp {
  HWY_INLINE V operator()(V g) const { return Silu(g); }
};
struct GeluOp {
  HWY_INLINE V operator()(V g) const { return GeluTanh(g); }
};

void SiluMultiply(const float* gate, const float* up, size_t n, float* y) { GateLoop(gate, up, n, y, SiluOp()); }
void GeluTanhMultiply(const float* gate, const float* up, size_t n, float* y) { GateLoop(gate, up, n, y, GeluOp()); }

void SoftCap(float* x, size_t n, float cap) {
  const D d;
  const V c = hn::Set(d, cap), inverse = hn::Set(d, 1.0f / cap);
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) hn::StoreU(hn::Mul(c, TanhOf(hn::Mul(hn::LoadU(d, x + i), inverse))), d, x + i);
  if (i < n) {
    Tail t(x + i, n - i, 0);
    t.put(hn::Mul(c, TanhOf(hn::Mul(t.get(), inverse))), x + i, n - i);
  }
}

void RotateHalves(float* x, const float* c, const float* s, size_t half) {
  const D d;
  size_t i = 0;
  for (; i + kLanes <= half; i += kLanes) {
    const V a = hn::LoadU(d, x + i), b = hn::LoadU(d, x + i + half), cos = hn::LoadU(d, c + i), sin = hn::LoadU(d, s + i);
    hn::StoreU(hn::Sub(hn::Mul(a, cos), hn::Mul(b, sin)), d, x + i);
    hn::StoreU(hn::Add(hn::Mul(b, cos), hn::Mul(a, sin)), d, x + i + half);
  }
  for (; i < half; ++i) {
    const float a = x[i], b = x[i + half];
    x[i] = a * c[i] - b * s[i];
    x[i + half] = b * c[i] + a * s[i];
  }
}

void Add(float* x, const float* y, size_t n) {
  const D d;
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) hn::StoreU(hn::Add(hn::LoadU(d, x + i), hn::LoadU(d, y + i)), d, x + i);
  scalar::add(x + i, y + i, n - i);
}

void Scale(float* x, size_t n, float factor) {
  const D d;
  const V f = hn::Set(d, factor);
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) hn::StoreU(hn::Mul(hn::LoadU(d, x + i), f), d, x + i);
  scalar::scale(x + i, n - i, factor);
}

float MaxValue(const float* x, size_t n) {
  const D d;
  if (n < kLanes) return scalar::max_value(x, n);
  V best = hn::LoadU(d, x);
  size_t i = kLanes;
  for (; i + kLanes <= n; i += kLanes) best = hn::Max(best, hn::LoadU(d, x + i));
  return std::max(hn::GetLane(hn::MaxOfLanes(d, best)), scalar::max_value(x + i, n - i));
}

float ExpShifted(float* x, size_t n, float shift) {
  const D d;
  const V s = hn::Set(d, shift);
  V sum = hn::Zero(d);
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const V e = ExpOf(hn::Sub(hn::LoadU(d, x + i), s));
    sum = hn::Add(sum, e);
    hn::StoreU(e, d, x + i);
  }
  if (i < n) {
    Tail t(x + i, n - i, -3e38f);
    const V e = ExpOf(hn::Sub(t.get(), s));
    sum = hn::Add(sum, e);
    t.put(e, x + i, n - i);
  }
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

template <class Load>
HWY_INLINE void Widen(const uint16_t* src, size_t n, float* dst, Load load) {
  const D d;
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) hn::StoreU(load(d, src + i), d, dst + i);
  if (i < n) {
    HWY_ALIGN uint16_t lanes[kLanes] = {};
    HWY_ALIGN float wide[kLanes];
    for (size_t j = 0; j < n - i; ++j) lanes[j] = src[i + j];
    hn::Store(load(d, lanes), d, wide);
    for (size_t j = 0; j < n - i; ++j) dst[i + j] = wide[j];
  }
}

void WidenFp16(const uint16_t* src, size_t n, float* dst) { Widen(src, n, dst, widen_f16<D>); }
void WidenBf16(const uint16_t* src, size_t n, float* dst) { Widen(src, n, dst, widen_bf16<D>); }
#endif  // KPD_TARGET_IS_SCALAR
}  // namespace HWY_NAMESPACE
}  // namespace kpd::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kpd::kernels {
HWY_EXPORT(RmsNorm);
HWY_EXPORT(SiluMultiply);
HWY_EXPORT(GeluTanhMultiply);
HWY_EXPORT(SoftCap);
HWY_EXPORT(RotateHalves);
HWY_EXPORT(Add);
HWY_EXPORT(Scale);
HWY_EXPORT(MaxValue);
HWY_EXPORT(ExpShifted);
HWY_EXPORT(WidenFp16);
HWY_EXPORT(WidenBf16);

void rms_norm(const float* x, const float* w, size_t n, float eps, float* y) {
  if (use_scalar_kernels()) return scalar::rms_norm(x, w, n, eps, y);
  HWY_DYNAMIC_DISPATCH(RmsNorm)(x, w, n, eps, y);
}
void silu_multiply(const float* gate, const float* up, size_t n, float* y) {
  if (use_scalar_kernels()) return scalar::silu_multiply(gate, up, n, y);
  HWY_DYNAMIC_DISPATCH(SiluMultiply)(gate, up, n, y);
}
void gelu_tanh_multiply(const float* gate, const float* up, size_t n, float* y) {
  if (use_scalar_kernels()) return scalar::gelu_tanh_multiply(gate, up, n, y);
  HWY_DYNAMIC_DISPATCH(GeluTanhMultiply)(gate, up, n, y);
}
void soft_cap(float* x, size_t n, float cap) {
  if (use_scalar_kernels()) return scalar::soft_cap(x, n, cap);
  HWY_DYNAMIC_DISPATCH(SoftCap)(x, n, cap);
}
void rotate_halves(float* x, const float* c, const float* s, size_t half) {
  if (use_scalar_kernels()) return scalar::rotate_halves(x, c, s, half);
  HWY_DYNAMIC_DISPATCH(RotateHalves)(x, c, s, half);
}
void add(float* x, const float* y, size_t n) {
  if (use_scalar_kernels()) return scalar::add(x, y, n);
  HWY_DYNAMIC_DISPATCH(Add)(x, y, n);
}
void scale(float* x, size_t n, float factor) {
  if (use_scalar_kernels()) return scalar::scale(x, n, factor);
  HWY_DYNAMIC_DISPATCH(Scale)(x, n, factor);
}
float max_value(const float* x, size_t n) {
  if (use_scalar_kernels()) return scalar::max_value(x, n);
  return HWY_DYNAMIC_DISPATCH(MaxValue)(x, n);
}
float exp_shifted(float* x, size_t n, float shift) {
  if (use_scalar_kernels()) return scalar::exp_shifted(x, n, shift);
  return HWY_DYNAMIC_DISPATCH(ExpShifted)(x, n, shift);
}

void widen_fp16(const uint16_t* src, size_t n, float* dst) {
  if (use_scalar_kernels()) return scalar::widen_fp16(src, n, dst);
  HWY_DYNAMIC_DISPATCH(WidenFp16)(src, n, dst);
}
void widen_bf16(const uint16_t* src, size_t n, float* dst) {
  if (use_scalar_kernels()) return scalar::widen_bf16(src, n, dst);
  HWY_DYNAMIC_DISPATCH(WidenBf16)(src, n, dst);
}

double log_sum_exp(const float* x, size_t n) {
  constexpr size_t kBlock = 256;
  const float top = max_value(x, n);
  if (!std::isfinite(top)) {  // max_value passes over NaN
    const float* const nan = std::find_if(x, x + n, [](float v) { return std::isnan(v); });
    return nan == x + n ? top : *nan;
  }
  double sum = 0;
  float block[kBlock];
  for (size_t i = 0; i < n; i += kBlock) {
    const size_t m = std::min(kBlock, n - i);
    std::copy_n(x + i, m, block);
    sum += exp_shifted(block, m, top);
  }
  return static_cast<double>(top) + std::log(sum);
}
}  // namespace kpd::kernels
#endif
