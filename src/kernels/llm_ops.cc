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

HWY_BEFORE_NAMESPACE();
namespace kpd::kernels {
namespace HWY_NAMESPACE {

#if !KPD_TARGET_IS_SCALAR

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

void rms_norm(const float* x, const float* w, size_t n, float eps, float* y) {
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

void silu_multiply(const float* gate, const float* up, size_t n, float* y) { GateLoop(gate, up, n, y, SiluOp()); }
void gelu_tanh_multiply(const float* gate, const float* up, size_t n, float* y) { GateLoop(gate, up, n, y, GeluOp()); }

void soft_cap(float* x, size_t n, float cap) {
  const D d;
  const V c = hn::Set(d, cap), inverse = hn::Set(d, 1.0f / cap);
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) hn::StoreU(hn::Mul(c, TanhOf(hn::Mul(hn::LoadU(d, x + i), inverse))), d, x + i);
  if (i < n) {
    Tail t(x + i, n - i, 0);
    t.put(hn::Mul(c, TanhOf(hn::Mul(t.get(), inverse))), x + i, n - i);
  }
}

void rotate_halves(float* x, const float* c, const float* s, size_t half) {
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

void add(float* x, const float* y, size_t n) {
  const D d;
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) hn::StoreU(hn::Add(hn::LoadU(d, x + i), hn::LoadU(d, y + i)), d, x + i);
  scalar::add(x + i, y + i, n - i);
}

void scale(float* x, size_t n, float factor) {
  const D d;
  const V f = hn::Set(d, factor);
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) hn::StoreU(hn::Mul(hn::LoadU(d, x + i), f), d, x + i);
  scalar::scale(x + i, n - i, factor);
}

float max_value(const float* x, size_t n) {
  const D d;
  if (n < kLanes) return scalar::max_value(x, n);
  V best = hn::LoadU(d, x);
  size_t i = kLanes;
  for (; i + kLanes <= n; i += kLanes) best = hn::Max(best, hn::LoadU(d, x + i));
  return std::max(hn::GetLane(hn::MaxOfLanes(d, best)), scalar::max_value(x + i, n - i));
}

float exp_shifted(float* x, size_t n, float shift) {
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

void widen_fp16(const uint16_t* src, size_t n, float* dst) { Widen(src, n, dst, widen_f16<D>); }
void widen_bf16(const uint16_t* src, size_t n, float* dst) { Widen(src, n, dst, widen_bf16<D>); }
#endif  // !KPD_TARGET_IS_SCALAR
}  // namespace HWY_NAMESPACE
}  // namespace kpd::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kpd::kernels {
KPD_DISPATCH(rms_norm);
KPD_DISPATCH(silu_multiply);
KPD_DISPATCH(gelu_tanh_multiply);
KPD_DISPATCH(soft_cap);
KPD_DISPATCH(rotate_halves);
KPD_DISPATCH(add);
KPD_DISPATCH(scale);
KPD_DISPATCH(max_value);
KPD_DISPATCH(exp_shifted);
KPD_DISPATCH(widen_fp16);
KPD_DISPATCH(widen_bf16);

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
