// The operations between a model's matrix products, every instruction set against plain loops in double.
#include "kernels/llm_ops.h"

#include <cmath>
#include <limits>

#include "isa_fixture.h"
#include "kernels/matmul.h"
#include "kpd/base/dtype.h"

namespace kpd::kernels {
namespace {

class LlmOps : public testing::IsaTest {};
KPD_ON_EVERY_ISA(LlmOps);

constexpr size_t kLengths[] = {1, 3, 8, 16, 17, 63, 64, 576, 1537};

TEST_P(LlmOps, RmsNorm) {
  for (const size_t n : kLengths) {
    const auto x = testing::random_floats(n, 1), w = testing::random_floats(n, 2);
    std::vector<float> y(n);
    rms_norm(x.data(), w.data(), n, 1e-5f, y.data());
    double sum = 0;
    for (const float v : x) sum += static_cast<double>(v) * static_cast<double>(v);
    const double factor = 1 / std::sqrt(sum / static_cast<double>(n) + 1e-5);
    for (size_t i = 0; i < n; ++i)
      EXPECT_NEAR(y[i], static_cast<double>(w[i]) * static_cast<double>(x[i]) * factor,
                  3e-6 * (1 + std::fabs(static_cast<double>(w[i] * x[i]))));
  }
}

TEST_P(LlmOps, GatedActivations) {
  for (const size_t n : kLengths) {
    auto gate = testing::random_floats(n, 3);
    const auto up = testing::random_floats(n, 4);
    for (float& g : gate) g *= 6;
    if (n > 2) gate[0] = 120, gate[1] = -120, gate[2] = 0;
    std::vector<float> silu(n), gelu(n);
    silu_multiply(gate.data(), up.data(), n, silu.data());
    gelu_tanh_multiply(gate.data(), up.data(), n, gelu.data());
    for (size_t i = 0; i < n; ++i) {
      const double g = gate[i], u = up[i];
      EXPECT_NEAR(silu[i], g / (1 + std::exp(-g)) * u, 2e-6 * (1 + std::fabs(g * u)));
      EXPECT_NEAR(gelu[i], 0.5 * g * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (g + 0.044715 * g * g * g))) * u,
                  2e-6 * (1 + std::fabs(g * u)));
    }
  }
}

TEST_P(LlmOps, SoftCapAndRotation) {
  for (const size_t n : kLengths) {
    auto x = testing::random_floats(2 * n, 5);
    for (float& v : x) v *= 40;
    std::vector<float> capped = x;
    soft_cap(capped.data(), 2 * n, 30);
    for (size_t i = 0; i < 2 * n; ++i) EXPECT_NEAR(capped[i], 30 * std::tanh(static_cast<double>(x[i]) / 30), 2e-5);
    std::vector<float> c(n), s(n), turned = x;
    for (size_t i = 0; i < n; ++i) c[i] = std::cos(static_cast<float>(i)), s[i] = std::sin(static_cast<float>(i));
    rotate_halves(turned.data(), c.data(), s.data(), n);
    for (size_t i = 0; i < n; ++i) {
      EXPECT_NEAR(turned[i], x[i] * c[i] - x[i + n] * s[i], 2e-5);
      EXPECT_NEAR(turned[i + n], x[i + n] * c[i] + x[i] * s[i], 2e-5);
    }
  }
}

TEST_P(LlmOps, SoftmaxParts) {
  for (const size_t n : kLengths) {
    auto x = testing::random_floats(n, 6);
    for (float& v : x) v *= 10;
    double sum = 0;
    float top = -1e30f;
    for (const float v : x) top = std::max(top, v);
    for (const float v : x) sum += std::exp(static_cast<double>(v) - static_cast<double>(top));
    EXPECT_EQ(max_value(x.data(), n), top);
    EXPECT_NEAR(log_sum_exp(x.data(), n), static_cast<double>(top) + std::log(sum), 1e-5);
    std::vector<float> e = x;
    EXPECT_NEAR(exp_shifted(e.data(), n, top), sum, 1e-5 * sum);
    for (size_t i = 0; i < n; ++i) EXPECT_NEAR(e[i], std::exp(static_cast<double>(x[i]) - static_cast<double>(top)), 1e-6);
  }
  std::vector<float> masked(64, -std::numeric_limits<float>::infinity());
  masked[5] = 2;
  EXPECT_EQ(exp_shifted(masked.data(), 64, 2), 1.0f);
  EXPECT_EQ(masked[6], 0.0f);
}

// A broken model shows; its probabilities are not made up.
TEST_P(LlmOps, NanStaysNan) {
  for (const size_t n : kLengths) {
    auto x = testing::random_floats(n, 6);
    x[n / 2] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_TRUE(std::isnan(log_sum_exp(x.data(), n))) << n;
    std::vector<float> capped = x, e = x;
    soft_cap(capped.data(), n, 30);
    EXPECT_TRUE(std::isnan(capped[n / 2])) << n;
    EXPECT_TRUE(std::isnan(exp_shifted(e.data(), n, 1))) << n;
    EXPECT_TRUE(std::isnan(e[n / 2])) << n;
  }
}

TEST_P(LlmOps, WideningIsExact) {
  std::vector<uint16_t> all(65536);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  std::vector<float> wide(all.size());
  for (const bool half : {true, false}) {
    half ? widen_fp16(all.data(), all.size(), wide.data()) : widen_bf16(all.data(), all.size(), wide.data());
    for (size_t i = 0; i < all.size(); ++i) {
      const float expected = half ? fp16_to_float(all[i]) : bf16_to_float(all[i]);
      EXPECT_TRUE(std::isnan(expected) ? std::isnan(wide[i]) : wide[i] == expected) << i;
    }
  }
}

TEST_P(LlmOps, MatmulIsTheSameForAnyRows) {
  for (const size_t depth : {1u, 16u, 64u}) {
    for (const size_t n : {5u, 16u, 64u, 80u, 100u}) {
      const size_t rows = 13;
      const auto a = testing::random_floats(rows * depth, 7), b = testing::random_floats(depth * n, 8),
                 start = testing::random_floats(rows * n, 9);
      std::vector<float> c = start;
      matmul(a.data(), b.data(), c.data(),
             {.n_rows = rows, .depth = depth, .n = n, .lda = depth, .ldb = n, .ldc = n, .accumulate = true});
      for (size_t r = 0; r < rows; ++r) {
        std::vector<float> alone(start.begin() + static_cast<std::ptrdiff_t>(r * n),
                                 start.begin() + static_cast<std::ptrdiff_t>((r + 1) * n));
        matmul(a.data() + r * depth, b.data(), alone.data(),
               {.n_rows = 1, .depth = depth, .n = n, .lda = depth, .ldb = n, .ldc = n, .accumulate = true});
        for (size_t j = 0; j < n; ++j) {
          double sum = start[r * n + j];
          for (size_t k = 0; k < depth; ++k) sum += static_cast<double>(a[r * depth + k]) * static_cast<double>(b[k * n + j]);
          EXPECT_NEAR(c[r * n + j], sum, 1e-4);
          EXPECT_EQ(c[r * n + j], alone[j]);
        }
      }
    }
  }
}

TEST_P(LlmOps, MatmulOfHalvesIsThatOfWidenedOnes) {
  for (const bool half : {true, false}) {
    for (const size_t depth : {1u, 16u, 64u}) {
      for (const size_t n : {5u, 16u, 64u, 80u, 100u}) {
        const size_t ldb = n + 3;
        std::vector<uint16_t> b(depth * ldb);
        store_floats(testing::random_floats(b.size(), 8), half ? DType::kFloat16 : DType::kBFloat16, b.data());
        b[0] = 1;  // the smallest positive number
        std::vector<float> wide(b.size());
        half ? widen_fp16(b.data(), b.size(), wide.data()) : widen_bf16(b.data(), b.size(), wide.data());
        for (const size_t rows : {1u, 3u, 5u, 6u, 13u}) {
          const auto a = testing::random_floats(rows * depth, 7), start = testing::random_floats(rows * n, 9);
          for (const bool accumulate : {true, false}) {
            const MatmulShape shape{rows, depth, n, depth, ldb, n, accumulate};
            const uint16_t* const next = accumulate ? b.data() : nullptr;
            std::vector<float> c = start, expected = start;
            matmul(a.data(), wide.data(), expected.data(), shape);
            half ? matmul_fp16(a.data(), b.data(), c.data(), shape, next)
                 : matmul_bf16(a.data(), b.data(), c.data(), shape, next);
            EXPECT_EQ(c, expected) << "half " << half << " depth " << depth << " n " << n << " rows " << rows;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace kpd::kernels
