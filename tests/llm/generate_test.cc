// Sampling, stop texts, and answers that do not depend on how the prompt is cut.
#include "kpd/llm/generate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/expect_error.h"
#include "text/tokenizer_fixture.h"

namespace kpd::llm {
namespace {

TEST(Sampler, TemperatureZeroTakesTheLargest) {
  Sampler sampler({});
  EXPECT_EQ(sampler.pick(std::vector<float>{1, 3, 2, 3}), 1);
}

TEST(Sampler, DrawsFollowTheProbabilities) {
  SamplingOptions o;
  o.temperature = 0.5;
  o.seed = 3;
  Sampler sampler(o);
  const std::vector<float> logits = {0, 0.5f, 1, -3};
  std::vector<double> expected;
  double total = 0;
  for (const float l : logits) total += std::exp(static_cast<double>(l) / 0.5);
  std::vector<size_t> counts(4);
  constexpr size_t kDraws = 20000;
  for (size_t i = 0; i < kDraws; ++i) ++counts[static_cast<size_t>(sampler.pick(logits))];
  for (size_t i = 0; i < 4; ++i) {
    const double p = std::exp(static_cast<double>(logits[i]) / 0.5) / total;
    // Five standard errors.
    EXPECT_NEAR(static_cast<double>(counts[i]) / kDraws, p, 5 * std::sqrt(p * (1 - p) / kDraws) + 1e-9);
  }
  Sampler again(o);
  Sampler third(o);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(again.pick(logits), third.pick(logits));
}

TEST(Sampler, TopKTopPMinP) {
  const std::vector<float> logits = {std::log(0.5f), std::log(0.3f), std::log(0.15f), std::log(0.05f)};
  const auto reached = [&](SamplingOptions o) {
    o.temperature = 1;
    Sampler sampler(o);
    text::TokenId last = 0;
    for (int i = 0; i < 500; ++i) last = std::max(last, sampler.pick(logits));
    return last;
  };
  EXPECT_EQ(reached({}), 3);
  EXPECT_EQ(reached({.top_k = 2}), 1);
  EXPECT_EQ(reached({.top_p = 0.75}), 1);
  EXPECT_EQ(reached({.top_p = 0.85}), 2);
  EXPECT_EQ(reached({.min_p = 0.5}), 1);
}

TEST(Sampler, RepetitionCosts) {
  Sampler sampler({.repeat_penalty = 2});
  const std::vector<float> logits = {3, 2, -1};
  EXPECT_EQ(sampler.pick(logits), 0);
  EXPECT_EQ(sampler.pick(logits), 1);
}

TEST(Sampler, Refusals) {
  for (const SamplingOptions& o : {SamplingOptions{.temperature = -1}, SamplingOptions{.top_p = 0}, SamplingOptions{.min_p = 2},
                                   SamplingOptions{.repeat_penalty = 0}}) {
    EXPECT_KPD_ERROR(kInvalidArgument, "expected", check_sampling(o));
  }
}

TEST(Sampler, LogitsThatAreNoNumbersAreRefused) {
  constexpr float kInf = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();
  for (const SamplingOptions& o : {SamplingOptions{}, SamplingOptions{.temperature = 1}, SamplingOptions{.repeat_penalty = 1.5},
                                   SamplingOptions{.temperature = 1, .top_k = 1, .top_p = 0.5}}) {
    Sampler sampler(o);
    const auto pick = [&](std::vector<float> logits) { return sampler.pick(logits); };
    EXPECT_KPD_ERROR(kInvalidArgument, "no logits", pick({}));
    EXPECT_KPD_ERROR(kCorruptData, "token 1 the logit NaN", pick({1, kNan, 2}));
    EXPECT_KPD_ERROR(kCorruptData, "token 0 the logit NaN", pick({kNan, 1, 2}));
    EXPECT_KPD_ERROR(kCorruptData, "token 2 the logit inf", pick({1, 0, kInf}));
    EXPECT_KPD_ERROR(kCorruptData, "all 2 tokens the logit -inf", pick({-kInf, -kInf}));
    for (int i = 0; i < 20; ++i) EXPECT_EQ(pick({-kInf, 1, -kInf}), 1);
  }
  // What was refused is not a draw: the next ones are those of a sampler that never saw it.
  Sampler a({.temperature = 1, .seed = 5}), b({.temperature = 1, .seed = 5});
  const std::vector<float> even(50, 0);
  EXPECT_KPD_ERROR(kCorruptData, "NaN", a.pick(std::vector<float>{kNan}));
  for (int i = 0; i < 20; ++i) EXPECT_EQ(a.pick(even), b.pick(even));
}

TEST(Sampler, TokensOfNoVocabularyAreRefused) {
  Sampler sampler({.repeat_penalty = 2});
  for (const text::TokenId token :
       {-1, std::numeric_limits<text::TokenId>::min(), 1 << 24, std::numeric_limits<text::TokenId>::max()})
    EXPECT_KPD_ERROR(kInvalidArgument, "of no vocabulary", sampler.seen(token));
  sampler.seen((1 << 24) - 1);
  EXPECT_EQ(sampler.pick(std::vector<float>{2, 3}), 1);
}

// The original context is 32 tokens: prompt and answer together decide how the prompt's first chunk is rotated.
TEST(Generate, ChunksDoNotChangeRotationsThatDependOnTheContext) {
  const text::Tokenizer tokenizer = testing::character_tokenizer();
  std::vector<text::TokenId> prompt(40);
  for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<text::TokenId>(3 + (i * i * 7 + i) % 90);
  for (const char* name : {"phi3", "llama_dynamic"}) {
    Model model = Model::load(std::string(KPD_TESTS_DIR) + "/golden/models/" + name,
                              {.arithmetic = Arithmetic::kExact, .n_threads = 1, .limits = {}});
    const auto answer = [&](size_t n_prompt, size_t chunk, size_t context, bool shift) {
      const auto cache = model.make_cache("f32", 128);
      GenerateOptions options;
      options.max_tokens = 40;
      options.context = context;
      options.chunk = chunk;
      options.context_shift = shift;
      const auto g = generate(model, tokenizer, *cache, 0, std::span(prompt).first(n_prompt), options,
                              [](std::string_view) { return true; });
      EXPECT_EQ(g.tokens, 40u);
      return g.token_ids;
    };
    // A prompt beyond the border, one that only its answer takes there, and a context that is shifted.
    EXPECT_EQ(answer(40, 512, 128, false), answer(40, 8, 128, false)) << name;
    EXPECT_EQ(answer(20, 512, 128, false), answer(20, 1, 128, false)) << name;
    EXPECT_EQ(answer(40, 512, 48, true), answer(40, 8, 48, true)) << name;
    // The same planned by hand.
    const std::vector<text::TokenId> expected = answer(20, 8, 128, false);
    const auto cache = model.make_cache("f32", 128);
    cache->set_plan(0, plan_context(60));
    const BatchPart whole[] = {{0, {prompt.begin(), prompt.begin() + 20}, {}, BatchPart::Want::kLast, {}}};
    std::span<const float> logits = model.forward(whole, *cache);
    for (const text::TokenId token : expected) {
      EXPECT_EQ(std::max_element(logits.begin(), logits.end()) - logits.begin(), token) << name;
      const BatchPart next[] = {{0, {token}, {}, BatchPart::Want::kLast, {}}};
      logits = model.forward(next, *cache);
    }
  }
}

TEST(Generate, WithoutAListenerItGoesOn) {
  const text::Tokenizer tokenizer = testing::character_tokenizer();
  Model model = Model::load(std::string(KPD_TESTS_DIR) + "/golden/models/llama",
                            {.arithmetic = Arithmetic::kExact, .n_threads = 1, .limits = {}});
  const std::vector<text::TokenId> prompt = tokenizer.encode("go on");
  const auto answer = [&](const std::function<bool(std::string_view)>& on_text) {
    const auto cache = model.make_cache("f32", 64);
    GenerateOptions options;
    options.max_tokens = 8;
    return generate(model, tokenizer, *cache, 0, prompt, options, on_text);
  };
  const Generated heard = answer([](std::string_view) { return true; }), alone = answer({});
  EXPECT_EQ(alone.tokens, 8u);
  EXPECT_EQ(alone.token_ids, heard.token_ids);
  EXPECT_EQ(alone.text, heard.text);
  EXPECT_EQ(alone.reason, heard.reason);
}

// What is drawn last is not read by the model and takes no room.
TEST(Generate, AFullContextEndsTheAnswerOneTokenBehindIt) {
  const text::Tokenizer tokenizer = testing::character_tokenizer();
  Model model = Model::load(std::string(KPD_TESTS_DIR) + "/golden/models/llama",
                            {.arithmetic = Arithmetic::kExact, .n_threads = 1, .limits = {}});
  const auto cache = model.make_cache("f32", 64);
  GenerateOptions options;
  options.context = 32;
  const Generated g = generate(model, tokenizer, *cache, 0, tokenizer.encode("go on a"), options, {});
  EXPECT_EQ(g.reason, FinishReason::kLength);
  EXPECT_EQ(g.prompt_tokens + g.tokens, 33u);
  EXPECT_EQ(cache->length(0), 32u);
}

// A text continued by two calls with one seed is the text of one call: penalties see all of it, and no number is drawn twice.
TEST(Generate, GoesOnWhereItWas) {
  const text::Tokenizer tokenizer = testing::character_tokenizer();
  Model model = Model::load(std::string(KPD_TESTS_DIR) + "/golden/models/llama",
                            {.arithmetic = Arithmetic::kExact, .n_threads = 1, .limits = {}});
  const std::vector<text::TokenId> prompt = tokenizer.encode("go on");
  for (const SamplingOptions& sampling :
       {SamplingOptions{.repeat_penalty = 1.6, .seed = 1}, SamplingOptions{.temperature = 1.2, .seed = 1},
        SamplingOptions{.temperature = 0.9, .top_p = 0.9, .repeat_penalty = 1.4, .seed = 9}}) {
    GenerateOptions options;
    options.ignore_eos = true;
    options.sampling = sampling;
    options.context = 128;
    const auto whole_cache = model.make_cache("f32", 128), cache = model.make_cache("f32", 128);
    options.max_tokens = 24;
    const std::vector<text::TokenId> whole = generate(model, tokenizer, *whole_cache, 0, prompt, options, {}).token_ids;
    options.max_tokens = 10;
    std::vector<text::TokenId> answer = generate(model, tokenizer, *cache, 0, prompt, options, {}).token_ids;
    // The cache holds all but the last token, which is the next prompt.
    std::vector<text::TokenId> held = prompt;
    held.insert(held.end(), answer.begin(), answer.end() - 1);
    options.held = held;
    options.max_tokens = 14;
    const Generated rest = generate(model, tokenizer, *cache, 0, std::span(answer).last(1), options, {});
    answer.insert(answer.end(), rest.token_ids.begin(), rest.token_ids.end());
    EXPECT_EQ(answer, whole) << describe_sampling(sampling);
  }
}

TEST(Generate, APenaltyAsksForWhatTheCacheHolds) {
  const text::Tokenizer tokenizer = testing::character_tokenizer();
  Model model = Model::load(std::string(KPD_TESTS_DIR) + "/golden/models/llama",
                            {.arithmetic = Arithmetic::kExact, .n_threads = 1, .limits = {}});
  const auto cache = model.make_cache("f32", 128);
  const std::vector<text::TokenId> prompt = tokenizer.encode("go on");
  GenerateOptions options;
  options.max_tokens = 3;
  options.ignore_eos = true;
  options.sampling.repeat_penalty = 1.3;
  generate(model, tokenizer, *cache, 0, prompt, options, {});
  EXPECT_KPD_ERROR(kInvalidArgument,
                   "the repeat penalty counts the tokens that the cache holds: 0 were given, sequence 0 holds 7",
                   generate(model, tokenizer, *cache, 0, prompt, options, {}));
  options.sampling.repeat_penalty = 1;
  EXPECT_EQ(generate(model, tokenizer, *cache, 0, prompt, options, {}).tokens, 3u);
}

TEST(Generate, ChunksOfNoTokenAreRefused) {
  const text::Tokenizer tokenizer = testing::character_tokenizer();
  Model model = Model::load(std::string(KPD_TESTS_DIR) + "/golden/models/llama",
                            {.arithmetic = Arithmetic::kExact, .n_threads = 1, .limits = {}});
  const auto cache = model.make_cache("f32", 128);
  EXPECT_KPD_ERROR(kInvalidArgument, "chunks of no token",
                   generate(model, tokenizer, *cache, 0, tokenizer.encode("go on"), {.chunk = 0}, {}));
}

// Turns of a conversation: the same text is asked for at another place, so other numbers are drawn.
TEST(Generate, TurnsDrawNewNumbers) {
  const text::Tokenizer tokenizer = testing::character_tokenizer();
  Model model = Model::load(std::string(KPD_TESTS_DIR) + "/golden/models/llama",
                            {.arithmetic = Arithmetic::kExact, .n_threads = 1, .limits = {}});
  GenerateOptions options;
  options.max_tokens = 12;
  options.ignore_eos = true;
  options.sampling = {.temperature = 100, .seed = 5};  // all but uniform, whatever was said
  const std::vector<text::TokenId> prompt = tokenizer.encode("go on");
  const auto cache = model.make_cache("f32", 128);
  const std::vector<text::TokenId> first = generate(model, tokenizer, *cache, 0, prompt, options, {}).token_ids;
  const std::vector<text::TokenId> second = generate(model, tokenizer, *cache, 0, prompt, options, {}).token_ids;
  size_t same = 0;
  for (size_t i = 0; i < first.size(); ++i) same += first[i] == second[i] ? 1 : 0;
  EXPECT_LT(same, 3u);
  const auto another = model.make_cache("f32", 128);
  options.first_draw = 1000;
  EXPECT_NE(generate(model, tokenizer, *another, 0, prompt, options, {}).token_ids, first);
}

TEST(StopFilter, HoldsBackWhatMayBecomeAStop) {
  StopFilter filter({"END", "\n\n"});
  EXPECT_EQ(filter.push("abE"), "ab");
  EXPECT_EQ(filter.push("N"), "");
  EXPECT_EQ(filter.push("x\n"), "ENx");
  EXPECT_FALSE(filter.stopped());
  EXPECT_EQ(filter.push("\nmore"), "");
  EXPECT_TRUE(filter.stopped());
  EXPECT_EQ(filter.finish(), "");
  StopFilter open({"END"});
  EXPECT_EQ(open.push("fine EN"), "fine ");
  EXPECT_EQ(open.finish(), "EN");
}

}  // namespace
}  // namespace kpd::llm
