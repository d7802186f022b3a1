// A real model, SmolLM2-135M-Instruct as scripts/get_smollm2.sh gets it (KPD_SMOLLM2_GGUF names the file): what it says, and
// that fast arithmetic says the same. Skipped where the file is missing. Its figures are in docs/results/llm.md.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "kpd/io/gguf.h"
#include "kpd/text/chat.h"
#include "kpd/llm/evaluate.h"
#include "kpd/llm/generate.h"

namespace kpd::llm {
namespace {

class SmolLm2 : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* path = getenv("KPD_SMOLLM2_GGUF");
    if (path == nullptr || !std::filesystem::exists(path))
      GTEST_SKIP() << "KPD_SMOLLM2_GGUF names no file; scripts/get_smollm2.sh gets it";
    path_ = path;
  }
  Model load(Arithmetic arithmetic) const {
    return Model::load(path_, {.arithmetic = arithmetic, .n_threads = 2, .limits = {}});
  }
  text::Tokenizer tokenizer() const { return text::Tokenizer::from_gguf(io::load_gguf_metadata(path_)); }

  std::string path_;
};

std::string say(Model& model, const text::Tokenizer& tokenizer, const std::vector<text::TokenId>& prompt, size_t n) {
  const auto cache = model.make_cache("f32", 512);
  GenerateOptions options;
  options.max_tokens = n;
  return generate(model, tokenizer, *cache, 0, prompt, options, [](std::string_view) { return true; }).text;
}

// What transformers 5.24 gives in float32 on the dequantized weights.
TEST_F(SmolLm2, SaysWhatTransformersSays) {
  const text::Tokenizer t = tokenizer();
  Model exact = load(Arithmetic::kExact);
  EXPECT_EQ(say(exact, t, t.encode("The capital of France is"), 24), " Paris.\n\nThe answer is: 2018-01-22 12:1");
  EXPECT_EQ(say(exact, t, t.encode("def fibonacci(n):"), 24),
            "\n    if n == 0:\n        return 1\n    return n * fibonacci(n - 1)\n");
}

TEST_F(SmolLm2, AnswersInItsTemplate) {
  const text::Tokenizer t = tokenizer();
  Model fast = load(Arithmetic::kFast);
  const text::ChatMessage messages[] = {{"user", "What is gravity? One sentence."}};
  const text::ChatPrompt prompt = text::ChatTemplate::of_model(t).render(t, messages);
  const std::string answer = say(fast, t, t.encode(prompt.text, prompt.foreign), 16);
  EXPECT_TRUE(answer.starts_with("Gravity is a fundamental")) << answer;
}

// 127 tokens of plain English: the two arithmetics differ by the rounding of activations to 8 bits.
TEST_F(SmolLm2, FastArithmeticIsCloseToExact) {
  const text::Tokenizer t = tokenizer();
  std::string text =
      "It was the best of times, it was the worst of times, it was the age of wisdom, it was the age of foolishness. ";
  for (int i = 0; i < 2; ++i) text += text;
  Model exact = load(Arithmetic::kExact), fast = load(Arithmetic::kFast);
  EvaluationPlan plan;
  plan.context = 96;
  plan.max_windows = 1;
  const auto windows = make_windows(plan, t.encode(text), std::nullopt);
  const Evaluation e = evaluate(fast, &exact, plan, windows, nullptr);
  EXPECT_LT(std::fabs(e.ln_ppl_ratio), 0.02);
  EXPECT_LT(e.kld_mean, 0.01);
  EXPECT_GT(e.same_top1, 0.9);
}

}  // namespace
}  // namespace kpd::llm
