// Quantizers on the sphere: closed forms against integrals and simulations, the frozen bits of the closed-form scale.
#include "kpd/quant/sphere.h"

#include <bit>
#include <cmath>

#include <gtest/gtest.h>

#include "base/expect_error.h"
#include "kpd/base/error.h"
#include "kpd/base/rng.h"
#include "kpd/quant/gaussian_step.h"
#include "kpd/quant/lloyd_max.h"

namespace kpd::quant {
namespace {

// E[Z; a < Z < b] by Simpson's rule on the density, with libm.
double integral(uint32_t n, double a, double b) {
  const double top = std::sqrt(static_cast<double>(n));
  a = std::min(a, top), b = std::min(b, top);
  const double c = std::exp(std::lgamma(n / 2.0) - std::lgamma((n - 1) / 2.0)) / std::sqrt(M_PI * n);
  const auto f = [&](double z) { return z * c * std::pow(std::max(0.0, 1 - z * z / n), (n - 3) / 2.0); };
  constexpr int kSteps = 20000;
  const double h = (b - a) / kSteps;
  double sum = f(a) + f(b);
  for (int i = 1; i < kSteps; ++i) sum += f(a + i * h) * (i % 2 == 1 ? 4 : 2);
  return sum * h / 3;
}

TEST(Sphere, PartialMeansAreTheIntegrals) {
  for (const uint32_t n : {5u, 64u, 65u, 96u, 100u, 4096u, 8191u, 8192u, 8193u, 32767u}) {
    for (const auto& [a, b] : {std::pair{0.0, 1.0}, {.3, 2.5}, {2.8, 7.9}, {1.0, 1e6}, {0.0, 1e6}}) {
      EXPECT_NEAR(sphere_partial_mean(n, a, b), integral(n, a, b), 1e-9) << n << " " << a << " " << b;
    }
    EXPECT_EQ(sphere_partial_mean(n, 1e6, 2e6), 0) << n;
  }
  // Two dimensions: Z = sqrt(2) cos(angle), E|Z| = 2 sqrt(2) / pi.
  EXPECT_NEAR(2 * sphere_partial_mean(2, 0, 9), 2 * std::sqrt(2.0) / M_PI, 1e-15);
  EXPECT_KPD_ERROR(kInvalidArgument, "expected at least 2", sphere_partial_mean(1, 0, 1));
  EXPECT_KPD_ERROR(kInvalidArgument, "expected at least 3", sphere_moments({{0}, {1}}, 2));
}

TEST(Sphere, LargeSpheresAreNormal) {
  for (const double bits : {.05, .3, 1.0, 4.0}) {
    const GaussianStep q(step_for_bits(bits), false);
    EXPECT_NEAR(q.sphere_zq(30000) / q.expected_zq, 1, 1e-3) << bits;
    const SphereMoments m = sphere_moments(q.half(), 30000);
    EXPECT_NEAR(m.zq, q.sphere_zq(30000), 1e-12) << bits;
    EXPECT_NEAR(m.q2 / q.expected_q2, 1, 1e-3) << bits;
    EXPECT_NEAR(sphere_unbiased_vnmse(m, 30000) / unbiased_vnmse(q.cos2()), 1, .01) << bits;  // 190 / n at .05 bit
    EXPECT_NEAR(sphere_biased_vnmse(m, 30000) / biased_vnmse(q.cos2()), 1, 1e-3) << bits;
    EXPECT_NEAR(sphere_norm_vnmse(m, 30000) / norm_vnmse(q.cos2()), 1, 1e-3) << bits;
  }
}

// All three errors of real blocks on the sphere, and E[ZQ], within five standard errors of the simulation.
TEST(Sphere, SimulationAgrees) {
  constexpr uint32_t kLength = 96;
  constexpr int kBlocks = 10000;
  for (const double bits : {.05, .3, .75, 2.0}) {
    const GaussianStep q(step_for_bits(bits), false);
    const SphereMoments m = sphere_moments(q.half(), kLength);
    CounterRng rng(11, 3);
    struct Sum {
      double expected, sum = 0, squares = 0;
      void add(double v) { sum += v, squares += v * v; }
    } zq{m.zq}, constant{sphere_constant_scale_vnmse(m)}, own{sphere_unbiased_vnmse(m, kLength)},
        biased{sphere_biased_vnmse(m, kLength)}, norm{sphere_norm_vnmse(m, kLength)};
    for (int t = 0; t < kBlocks; ++t) {
      double z[kLength], z2 = 0, dot = 0, q2 = 0;
      for (double& v : z) v = rng.next_normal(), z2 += v * v;
      for (double& v : z) {
        v = std::fabs(v) * std::sqrt(kLength / z2);
        const auto level = static_cast<double>(q.value_of(static_cast<int64_t>(v / q.step + 0.5)));
        dot += v * level / kLength;
        q2 += level * level / kLength;
      }
      zq.add(dot);
      constant.add(q2 / (m.zq * m.zq) - 2 * dot / m.zq + 1);
      if (bits < .5) continue;
      own.add(q2 / (dot * dot) - 1);
      biased.add(1 - dot * dot / q2);
      norm.add(2 - 2 * dot / std::sqrt(q2));
    }
    for (const Sum* s : {&zq, &constant, &own, &biased, &norm}) {
      if (s->sum == 0) continue;
      const double mean = s->sum / kBlocks, error = std::sqrt((s->squares / kBlocks - mean * mean) / kBlocks);
      EXPECT_NEAR(mean, s->expected, 5 * error) << bits;
    }
  }
}

TEST(Sphere, OneBit) {
  // k = 1: the sign of one coordinate and its magnitude; the error is only what the others were.
  EXPECT_NEAR(sphere_one_bit_unbiased_vnmse(1, 20), 19, 1e-12);
  EXPECT_NEAR(sphere_one_bit_biased_vnmse(1, 20), 1 - 1 / 20.0, 1e-12);
  EXPECT_NEAR(sphere_one_bit_unbiased_vnmse(2, 2), 4 / M_PI - 1, 1e-12);
  EXPECT_NEAR(sphere_one_bit_unbiased_vnmse(100000, 100000), M_PI / 2 - 1, 1e-5);
  EXPECT_NEAR(sphere_one_bit_norm_vnmse(100000, 100000), 2 - 2 * std::sqrt(2 / M_PI), 1e-5);
  // E[3 |g|^2 / |g|_1^2], 200,000 draws: a standard error of about .0006.
  CounterRng rng(4, 3);
  double sum = 0;
  for (int t = 0; t < 200000; ++t) {
    const double a = std::fabs(rng.next_normal()), b = std::fabs(rng.next_normal()), c = std::fabs(rng.next_normal());
    sum += 3 * (a * a + b * b + c * c) / ((a + b + c) * (a + b + c));
  }
  EXPECT_NEAR(sphere_one_bit_unbiased_vnmse(3, 3) + 1, sum / 200000, .003);
}

// E[ZQ] decides bytes: a change here is a change of the stream format.
TEST(Sphere, TheClosedFormIsFrozen) {
  struct Frozen {
    double bits;
    uint32_t n;
    uint64_t zq;
  };
  const Frozen rows[] = {
      {0.05, 64, 0x3fa3f89b45c0305du},   {0.05, 65, 0x3fa409a9f18ef17eu},   {0.05, 96, 0x3fa56acdde93c34bu},
      {0.05, 4096, 0x3fa83f94f737a2c0u}, {0.05, 8191, 0x3fa84846db993340u}, {0.1, 64, 0x3fb4c55e819dc992u},
      {0.1, 65, 0x3fb4cfb74ea2d80fu},    {0.1, 96, 0x3fb5a40bbf358074u},    {0.1, 4096, 0x3fb74d9c31cb9055u},
      {0.1, 8191, 0x3fb752a3b5698087u},  {0.49, 64, 0x3fd7dae54baa9547u},   {0.49, 65, 0x3fd7dbca4879706au},
      {0.49, 96, 0x3fd7ede517b33e0bu},   {0.49, 4096, 0x3fd810cdbc485a24u}, {0.49, 8191, 0x3fd81134afaf684au}};
  for (const Frozen& row : rows) {
    EXPECT_EQ(std::bit_cast<uint64_t>(gaussian_step(step_for_bits(row.bits))->sphere_zq(row.n)), row.zq)
        << row.bits << " " << row.n;
  }
}

}  // namespace
}  // namespace kpd::quant
