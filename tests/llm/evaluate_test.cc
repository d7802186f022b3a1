// Perplexity from first principles, on a tiny model: the same numbers from whole-window logits.
#include "kpd/llm/evaluate.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/expect_error.h"
#include "kpd/base/error.h"

namespace kpd::llm {
namespace {

const std::string kModels = std::string(KPD_TESTS_DIR) + "/golden/models/";

Model load(const std::string& name, int n_threads = 2) {
  return Model::load(kModels + name, {.arithmetic = Arithmetic::kExact, .n_threads = n_threads, .limits = {}});
}

std::vector<text::TokenId> some_text(size_t n) {
  std::vector<text::TokenId> text(n);
  for (size_t i = 0; i < n; ++i) text[i] = static_cast<text::TokenId>(3 + (i * i * 7 + i) % 90);
  return text;
}

// Losses of tokens [first, ...) of one window.
std::vector<double> losses(Model& model, const std::vector<text::TokenId>& window, size_t first) {
  const auto cache = model.make_cache("f32", 256);
  const BatchPart batch[] = {{0, window, {}, BatchPart::Want::kAll, {}}};
  const auto logits = model.forward(batch, *cache);
  const size_t v = model.description().n_vocabulary;
  std::vector<double> result;
  for (size_t t = first; t < window.size(); ++t) {
    double sum = 0;
    for (size_t i = 0; i < v; ++i) sum += std::exp(static_cast<double>(logits[(t - 1) * v + i]));
    result.push_back(std::log(sum) - static_cast<double>(logits[(t - 1) * v + static_cast<size_t>(window[t])]));
  }
  return result;
}

double perplexity(Model& model, const std::vector<std::vector<text::TokenId>>& windows, size_t first) {
  double sum = 0;
  size_t n = 0;
  for (const auto& window : windows) {
    for (const double loss : losses(model, window, first)) {
      sum += loss;
      ++n;
    }
  }
  return std::exp(sum / static_cast<double>(n));
}

TEST(Evaluate, BothProtocols) {
  Model model = load("llama");
  EvaluationPlan plan;
  plan.context = 40;
  plan.chunk = 16;
  const auto text = some_text(130);
  const auto windows = make_windows(plan, text, text::TokenId{1});
  ASSERT_EQ(windows.size(), 3u);
  EXPECT_EQ(windows[1][0], text[40]);
  const Evaluation paper = evaluate(model, nullptr, plan, windows, nullptr);
  EXPECT_EQ(paper.tokens, 3u * 39);
  EXPECT_NEAR(paper.perplexity, perplexity(model, windows, 1), 1e-4 * paper.perplexity);
  plan.protocol = Protocol::kLlamaCpp;
  plan.max_windows = 2;
  const auto with_bos = make_windows(plan, text, text::TokenId{1});
  ASSERT_EQ(with_bos.size(), 2u);
  EXPECT_EQ(with_bos[1][0], 1);
  const Evaluation llama = evaluate(model, nullptr, plan, with_bos, nullptr);
  EXPECT_EQ(llama.tokens, 2u * 19);
  EXPECT_NEAR(llama.perplexity, perplexity(model, with_bos, 21), 1e-4 * llama.perplexity);
  EXPECT_GT(llama.perplexity_stderr, 0);
}

TEST(Evaluate, AgainstAReference) {
  Model model = load("llama"), same = load("llama"), other = load("qwen2");
  EvaluationPlan plan;
  plan.context = 40;
  const auto windows = make_windows(plan, some_text(80), std::nullopt);
  const Evaluation zero = evaluate(model, &same, plan, windows, nullptr);
  EXPECT_LT(zero.kld_max, 1e-9);
  EXPECT_EQ(zero.same_top1, 1);
  EXPECT_NEAR(zero.ln_ppl_ratio, 0, 1e-9);
  const Evaluation e = evaluate(model, &other, plan, windows, nullptr);
  EXPECT_GT(e.kld_mean, 0.1);
  EXPECT_LE(e.kld_median, e.kld_p90);
  EXPECT_LE(e.kld_p999, e.kld_max);
  EXPECT_LT(e.same_top1, 1);
  size_t tokens = 0;
  for (const Bucket& b : e.buckets) tokens += b.tokens;
  EXPECT_EQ(tokens, e.tokens);
}

TEST(Evaluate, TheSameNumberForAnyThreadsAndChunks) {
  Model one = load("gemma3", 1), three = load("gemma3", 3);
  EvaluationPlan plan;
  plan.context = 50;
  const auto windows = make_windows(plan, some_text(100), std::nullopt);
  const double expected = evaluate(one, nullptr, plan, windows, nullptr).perplexity;
  plan.chunk = 7;
  EXPECT_EQ(evaluate(three, nullptr, plan, windows, nullptr).perplexity, expected);
}

// Windows of 64 tokens, original contexts of 32: the window decides how all of it is rotated, its first chunk too.
TEST(Evaluate, ChunksDoNotChangeRotationsThatDependOnTheContext) {
  for (const char* name : {"phi3", "llama_dynamic"}) {
    Model model = load(name), reference = load(name), whole = load(name);
    EvaluationPlan plan;
    plan.context = 64;
    const auto windows = make_windows(plan, some_text(128), std::nullopt);
    const double expected = perplexity(whole, windows, 1);
    for (const size_t chunk : {64, 16}) {
      plan.chunk = chunk;
      const Evaluation e = evaluate(model, &reference, plan, windows, nullptr);
      EXPECT_NEAR(e.perplexity, expected, 1e-4 * expected) << name << ' ' << chunk;
      EXPECT_NEAR(e.reference_perplexity, expected, 1e-4 * expected) << name << ' ' << chunk;
    }
  }
}

TEST(Evaluate, EndsEarlyWithWhatItHas) {
  Model model = load("llama");
  EvaluationPlan plan;
  plan.context = 20;
  const auto windows = make_windows(plan, some_text(100), std::nullopt);
  const Evaluation e = evaluate(model, nullptr, plan, windows, [](size_t done) { return done < 2; });
  EXPECT_EQ(e.windows, 2u);
  EXPECT_KPD_ERROR(kInvalidArgument, "less than one window of 20", make_windows(plan, some_text(19), std::nullopt));
}

}  // namespace
}  // namespace kpd::llm
