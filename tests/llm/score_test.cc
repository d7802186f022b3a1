// Log-likelihoods of texts: the same whatever else is scored with them, in whatever order and chunks.
#include "kpd/llm/score.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/expect_error.h"

namespace kpd::llm {
namespace {

const std::string kModels = std::string(KPD_TESTS_DIR) + "/golden/models/";

Model load(const char* name) {
  return Model::load(kModels + name, {.arithmetic = Arithmetic::kExact, .n_threads = 1, .limits = {}});
}

std::vector<text::TokenId> tokens(size_t n, uint32_t seed) {
  std::vector<text::TokenId> out(n);
  for (size_t i = 0; i < n; ++i) out[i] = static_cast<text::TokenId>((seed = seed * 1664525 + 1013904223) >> 26);
  return out;
}

// Few-shot examples, questions behind them, endings behind those; texts that share nothing; the same text twice.
std::vector<ScoredText> texts() {
  std::vector<ScoredText> out;
  const auto shots = tokens(30, 1);
  for (uint32_t question = 0; question < 3; ++question) {
    for (uint32_t ending = 0; ending < 4; ++ending) {
      std::vector<text::TokenId> all = shots;
      for (const auto& part : {tokens(9 + question, 10 + question), tokens(1 + ending, 20 + ending)})
        all.insert(all.end(), part.begin(), part.end());
      out.push_back({all, 30 + 9 + question});
    }
  }
  for (uint32_t i = 0; i < 3; ++i) out.push_back({tokens(40, 30 + i), 1 + 13 * i});
  out.push_back(out[4]);
  return out;
}

std::vector<double> scores(Model& model, std::span<const ScoredText> texts, size_t chunk) {
  std::vector<double> out;
  for (const TextScore& s : score_texts(model, texts, {.chunk = chunk}, {})) out.push_back(s.log_likelihood);
  return out;
}

// phi3's rotations depend on the length that is planned, qwen2's window on positions.
TEST(Score, NeitherCompanyNorChunksChangeAScore) {
  for (const char* name : {"llama", "qwen2_window", "phi3"}) {
    Model model = load(name);
    const std::vector<ScoredText> all = texts();
    const std::vector<double> together = scores(model, all, 512);
    for (size_t i = 0; i < all.size(); ++i)
      EXPECT_EQ(scores(model, std::span(&all[i], 1), 512)[0], together[i]) << name << ' ' << i;
    EXPECT_EQ(scores(model, all, 7), together) << name;
    EXPECT_EQ(scores(model, all, 64), together) << name;
  }
}

TEST(Score, IsThatOfTheLogits) {
  Model model = load("llama");
  const std::vector<ScoredText> all = texts();
  const std::vector<TextScore> found = score_texts(model, all, {}, {});
  const size_t n = model.description().n_vocabulary;
  for (size_t i = 0; i < all.size(); ++i) {
    const auto cache = model.make_cache("f32", 256);
    const BatchPart part{0, all[i].tokens, {}, BatchPart::Want::kAll, {}};
    const std::span<const float> logits = model.forward({&part, 1}, *cache);
    double expected = 0;
    for (size_t t = all[i].n_context; t < all[i].tokens.size(); ++t) {
      const float* row = logits.data() + (t - 1) * n;
      double sum = 0;
      for (size_t v = 0; v < n; ++v) sum += std::exp(static_cast<double>(row[v]));
      expected += static_cast<double>(row[all[i].tokens[t]]) - std::log(sum);
    }
    EXPECT_NEAR(found[i].log_likelihood, expected, 1e-4) << i;
  }
}

TEST(Score, RefusesWhatCannotBeScoredBeforeAnyWork) {
  Model model = load("llama");
  const auto score = [&](ScoredText text) { score_texts(model, std::span(&text, 1), {}, {}); };
  EXPECT_KPD_ERROR(kInvalidArgument, "text 0", score({{1, 2}, 0}));
  EXPECT_KPD_ERROR(kInvalidArgument, "text 0", score({{1, 2}, 2}));
  EXPECT_KPD_ERROR(kInvalidArgument, "token 9999", score({{1, 9999}, 1}));
  EXPECT_KPD_ERROR(kInvalidArgument, "context", score({tokens(model.description().max_context + 2, 1), 1}));
}

TEST(Score, EndsWhereProgressSaysSo) {
  Model model = load("llama");
  const std::vector<ScoredText> all = texts();
  size_t calls = 0;
  EXPECT_KPD_ERROR(kCancelled, "cancelled", score_texts(model, all, {.chunk = 16}, [&](size_t) { return ++calls < 2; }));
  EXPECT_EQ(calls, 2u);
  EXPECT_TRUE(score_texts(model, {}, {}, {}).empty());
}

}  // namespace
}  // namespace kpd::llm
