// The forward pass against transformers, family by family (tests/golden/make_models.py), and against itself however a batch is
// cut.
#include "kpd/llm/model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <type_traits>

#include "base/expect_error.h"
#include "kpd/io/tensors.h"
#include "io/temp_folder.h"

namespace kpd::llm {
namespace {

const std::string kModels = std::string(KPD_TESTS_DIR) + "/golden/models/";

struct Golden {
  std::vector<text::TokenId> tokens;
  std::vector<float> logits;
};

Golden load_golden(const std::string& name) {
  const io::TensorFile file = io::load_tensors(kModels + name + "/logits.safetensors");
  Golden golden;
  for (const io::TensorEntry& e : file.tensors) {
    std::vector<float> values(e.count);
    load_floats(e.view(), 0, values);
    if (e.name == "tokens") golden.tokens.assign(values.begin(), values.end());
    if (e.name == "logits") golden.logits = values;
  }
  return golden;
}

Model load_exact(const std::string& path, int n_threads = 2) {
  return Model::load(kModels + path, {.arithmetic = Arithmetic::kExact, .n_threads = n_threads, .limits = {}});
}

BatchPart part(SequenceId id, std::span<const text::TokenId> tokens, BatchPart::Want want) {
  return {id, {tokens.begin(), tokens.end()}, {}, want, {}};
}

std::vector<float> run_whole(Model& model, std::span<const text::TokenId> tokens, const char* spec = "f32") {
  const auto cache = model.make_cache(spec, 1024);
  const BatchPart batch[] = {part(0, tokens, BatchPart::Want::kAll)};
  const auto logits = model.forward(batch, *cache);
  return {logits.begin(), logits.end()};
}

float largest(std::span<const float> x) {
  float best = 0;
  for (const float v : x) best = std::max(best, std::fabs(v));
  return best;
}

float distance(std::span<const float> a, std::span<const float> b) {
  EXPECT_EQ(a.size(), b.size());
  float worst = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const float d = std::fabs(a[i] - b[i]);
    worst = std::isnan(d) ? INFINITY : std::max(worst, d);
  }
  return worst;
}

// `step` tokens a batch.
std::vector<float> run_in_steps(Model& model, const char* spec, std::span<const text::TokenId> tokens, size_t step) {
  const auto cache = model.make_cache(spec, 64);
  cache->set_plan(3, plan_context(tokens.size()));
  std::vector<float> pieces;
  for (size_t first = 0; first < tokens.size(); first += step) {
    const BatchPart batch[] = {part(3, tokens.subspan(first, std::min(step, tokens.size() - first)), BatchPart::Want::kAll)};
    const auto logits = model.forward(batch, *cache);
    pieces.insert(pieces.end(), logits.begin(), logits.end());
  }
  return pieces;
}

class EveryFamily : public ::testing::TestWithParam<const char*> {};

TEST_P(EveryFamily, GivesTheLogitsOfTransformers) {
  const Golden golden = load_golden(GetParam());
  Model model = load_exact(GetParam());
  EXPECT_LT(distance(run_whole(model, golden.tokens), golden.logits), 1e-4f * largest(golden.logits));
}

TEST_P(EveryFamily, TokenByTokenIsAllAtOnce) {
  const Golden golden = load_golden(GetParam());
  Model model = load_exact(GetParam());
  // Many queries at once read a cache of 16 bits in another way than few.
  for (const char* spec : {"f32", "f16", "bf16"}) {
    const std::vector<float> whole = run_whole(model, golden.tokens, spec);
    for (const size_t step : {1, 7, 33}) {
      EXPECT_EQ(distance(run_in_steps(model, spec, golden.tokens, step), whole), 0) << spec << " " << step;  // bit for bit
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, EveryFamily,
                         ::testing::Values("llama", "llama3_rope", "llama_linear", "llama_dynamic", "mistral", "smollm3",
                                           "qwen2", "qwen2_window", "qwen3", "gemma2", "gemma3", "phi3", "gemma",
                                           "gemma3_softcap", "smollm3_window", "ministral", "ministral3", "granite", "granite4",
                                           "granite4_unrotated", "olmo2", "olmo3"),
                         [](const auto& i) { return std::string(i.param); });

TEST(Model, AGgufFileIsTheSameModel) {
  for (const char* name : {"llama", "qwen2", "phi3", "llama3_rope", "smollm3", "qwen3", "gemma", "gemma3_softcap", "ministral3",
                           "granite", "granite4", "granite4_unrotated", "olmo2", "olmo3"}) {
    const Golden golden = load_golden(name);
    Model model = load_exact(std::string(name) + "/model.gguf");
    EXPECT_LT(distance(run_whole(model, golden.tokens), golden.logits), 1e-4f * largest(golden.logits)) << name;
  }
}

class ModelFolder : public testing::TempFolder {};

TEST_F(ModelFolder, AGgufFileBesideItsConfigIsLoadedByItsOwnNames) {
  const Golden golden = load_golden("qwen2");
  std::filesystem::copy_file(kModels + "qwen2/config.json", path("config.json"));
  std::filesystem::copy_file(kModels + "qwen2/model.gguf", path("model.gguf"));
  Model model = Model::load(folder_, {.arithmetic = Arithmetic::kExact, .n_threads = 2, .limits = {}});
  EXPECT_LT(distance(run_whole(model, golden.tokens), golden.logits), 1e-4f * largest(golden.logits));
}

// A key of layer 0, moved: what the rotation of its new position makes of it, by the frequencies that the context calls for.
TEST(Model, KeysAreMovedByTheFrequenciesOfTheirContext) {
  const Model model = load_exact("phi3");
  ASSERT_NE(rope_frequencies(model.description().ropes[0], 64).radians,
            rope_frequencies(model.description().ropes[0], 32).radians);
  for (const size_t context : {64, 32, 0}) {
    const RopeFrequencies frequencies = rope_frequencies(model.description().ropes[0], context);
    ASSERT_EQ(frequencies.radians.size(), 4u);
    std::vector<float> key = {1, 2, 3, 4, 5, 6, 7, 8};
    const std::vector<float> before = key;
    model.rerotate(0, key.data(), 1, -10, context);
    for (size_t i = 0; i < 4; ++i) {
      const double angle = -10.0 * static_cast<double>(frequencies.radians[i]);
      const auto x = static_cast<double>(before[i]), y = static_cast<double>(before[i + 4]);
      EXPECT_NEAR(key[i], x * std::cos(angle) - y * std::sin(angle), 1e-5) << i << ' ' << context;
      EXPECT_NEAR(key[i + 4], y * std::cos(angle) + x * std::sin(angle), 1e-5) << i << ' ' << context;
    }
  }
}

TEST(Model, ARaggedBatchIsEachSequenceAlone) {
  const Golden golden = load_golden("qwen2_window");
  const std::span<const text::TokenId> tokens(golden.tokens);
  Model model = load_exact("qwen2_window");
  const auto cache = model.make_cache("f32", 256);
  const BatchPart first[] = {part(0, tokens.first(20), BatchPart::Want::kNone),
                             part(9, tokens.subspan(5, 3), BatchPart::Want::kLast)};
  const auto logits = model.forward(first, *cache);
  std::vector<float> of_nine(logits.begin(), logits.end());
  BatchPart some = part(0, tokens.subspan(20, 10), BatchPart::Want::kList);
  some.rows = {2, 9};
  const BatchPart second[] = {part(9, tokens.subspan(8, 1), BatchPart::Want::kAll), some,
                              part(1, tokens.first(4), BatchPart::Want::kLast)};
  const auto more = model.forward(second, *cache);
  const size_t v = model.description().n_vocabulary;
  ASSERT_EQ(more.size(), 4 * v);
  std::vector<float> all(more.begin(), more.end());
  const std::vector<float> nine = run_whole(model, tokens.subspan(5, 4)), zero = run_whole(model, tokens.first(30)),
                           one = run_whole(model, tokens.first(4));
  const auto row = [&](const std::vector<float>& x, size_t r) { return std::span(x).subspan(r * v, v); };
  EXPECT_EQ(distance(of_nine, row(nine, 2)), 0);
  EXPECT_EQ(distance(row(all, 0), row(nine, 3)), 0);
  EXPECT_EQ(distance(row(all, 1), row(zero, 22)), 0);
  EXPECT_EQ(distance(row(all, 2), row(zero, 29)), 0);
  EXPECT_EQ(distance(row(all, 3), row(one, 3)), 0);
}

// The original context is 32 tokens: what a sequence has planned decides how it is rotated, whatever its neighbours have.
TEST(Model, EachSequenceHasItsOwnPlannedContext) {
  for (const char* name : {"phi3", "llama_dynamic"}) {
    Model model = load_exact(name);
    const std::vector<text::TokenId> all = load_golden(name).tokens;
    const std::span<const text::TokenId> tokens(all);
    const size_t plans[] = {0, 60, 200, 0, 24};
    const auto alone = [&](size_t plan, size_t n) {
      const auto cache = model.make_cache("f32", 64);
      cache->set_plan(0, plan_context(plan));
      std::vector<std::vector<float>> rows;
      for (size_t i = 0; i < n; ++i) {
        const BatchPart batch[] = {part(0, tokens.subspan(i, 1), BatchPart::Want::kLast)};
        const auto logits = model.forward(batch, *cache);
        rows.emplace_back(logits.begin(), logits.end());
      }
      return rows;
    };
    const auto cache = model.make_cache("f32", 512);
    for (SequenceId s = 0; s < 5; ++s) cache->set_plan(s, plan_context(plans[s]));
    std::vector<std::vector<std::vector<float>>> expected;
    for (const size_t plan : plans) expected.push_back(alone(plan, 40));
    EXPECT_EQ(expected[0], expected[3]);
    EXPECT_EQ(expected[0][20], expected[4][20]);
    EXPECT_NE(expected[0][20], expected[1][20]) << "a plan beyond the original context changes nothing";
    const size_t v = model.description().n_vocabulary;
    for (size_t i = 0; i < 40; ++i) {
      std::vector<BatchPart> batch;
      for (SequenceId s = 0; s < 5; ++s) batch.push_back(part(s, tokens.subspan(i, 1), BatchPart::Want::kLast));
      const auto logits = model.forward(batch, *cache);
      for (size_t s = 0; s < 5; ++s) EXPECT_EQ(distance(logits.subspan(s * v, v), expected[s][i]), 0) << name << s << ' ' << i;
    }
    for (SequenceId s = 0; s < 5; ++s) EXPECT_EQ(planned_context(cache->plan(s)), plans[s]);
  }
}

TEST(Model, TheNumberOfThreadsChangesNothing) {
  const Golden golden = load_golden("gemma2");
  Model one = load_exact("gemma2", 1), three = load_exact("gemma2", 3);
  EXPECT_EQ(distance(run_whole(one, golden.tokens), run_whole(three, golden.tokens)), 0);
}

TEST(Model, NarrowCachesAreClose) {
  const Golden golden = load_golden("llama");
  Model model = load_exact("llama");
  const std::vector<float> whole = run_whole(model, golden.tokens);
  EXPECT_LT(distance(run_whole(model, golden.tokens, "f16"), whole), 0.01f * largest(whole));
  EXPECT_LT(distance(run_whole(model, golden.tokens, "bf16"), whole), 0.05f * largest(whole));
}

TEST(Model, TheTapSeesEveryGroup) {
  const Golden golden = load_golden("llama");
  Model model = load_exact("llama");
  std::vector<std::string> seen;
  model.set_tap([&](size_t layer, LinearSite site, const float*, size_t n_rows, size_t n_in) {
    if (layer == 0 || site == LinearSite::kHead)
      seen.push_back(std::string(linear_site_name(site)) + " " + std::to_string(n_rows) + " " + std::to_string(n_in));
  });
  run_whole(model, std::span(golden.tokens).first(5));
  EXPECT_EQ(seen, (std::vector<std::string>{"qkv 5 32", "output 5 32", "gate_up 5 32", "down 5 48", "head 5 32"}));
}

TEST(Model, BadBatchesAreRefusedBeforeAnyWork) {
  Model model = load_exact("llama");
  const auto cache = model.make_cache("f32", 64);
  const auto refused = [&](const std::string& part, const BatchPart& p) {
    const BatchPart batch[] = {p};
    EXPECT_KPD_ERROR(kInvalidArgument, part, model.forward(batch, *cache));
    EXPECT_EQ(cache->length(0), 0u);
  };
  refused("a batch without tokens", {0, {}, {}, BatchPart::Want::kLast, {}});
  refused("token 96 is beyond", {0, {96}, {}, BatchPart::Want::kLast, {}});
  refused("token -1 is beyond", {0, {-1}, {}, BatchPart::Want::kLast, {}});
  refused("position 5 does not follow 5", {0, {1, 2}, {5, 5}, BatchPart::Want::kLast, {}});
  refused("1 positions for 2 tokens", {0, {1, 2}, {5}, BatchPart::Want::kLast, {}});
  refused("logits of row 2 of 2", {0, {1, 2}, {}, BatchPart::Want::kList, {2}});
  refused("do not ascend", {0, {1, 2}, {}, BatchPart::Want::kList, {1, 0}});
  refused("do not ascend", {0, {1, 2}, {}, BatchPart::Want::kList, {0, 1, 1, 1}});
  refused("no position -1", {0, {1, 2}, {-1, 0}, BatchPart::Want::kLast, {}});
  refused("no position 2147483647", {0, {1, 2}, {5, std::numeric_limits<int32_t>::max()}, BatchPart::Want::kLast, {}});
  const BatchPart too_long[] = {{0, std::vector<text::TokenId>(65, 1), {}, BatchPart::Want::kLast, {}}};
  EXPECT_KPD_ERROR(kLimitExceeded, "64", model.forward(too_long, *cache));
  EXPECT_EQ(cache->length(0), 0u);
}

TEST(Model, CachesOfOtherModelsAreRefusedBeforeAnyWork) {
  const BatchPart batch[] = {{0, {1, 2, 3}, {}, BatchPart::Want::kLast, {}}};
  const auto refused = [&](const char* name, KvCache& cache, const std::string& why) {
    Model model = load_exact(name);
    EXPECT_KPD_ERROR(kInvalidArgument, why, model.forward(batch, cache));
    EXPECT_KPD_ERROR(kInvalidArgument, why, model.plan(batch, cache));
    EXPECT_EQ(cache.length(0), 0u);
  };
  const auto of_qwen3 = load_exact("qwen3").make_cache("f32", 64), of_gemma3 = load_exact("gemma3").make_cache("f16", 64);
  refused("chat/model.gguf", *of_qwen3, "3 layers, expected 2");
  refused("llama", *of_qwen3, "layer 0 has 2 heads of 16, expected 2 of 8");
  refused("gemma2", *of_gemma3, "layers");
  // A cache may forget what no layer asks for again, and no more.
  const Model windowed = load_exact("mistral");
  std::vector<cache::Layer> layers = windowed.cache_layers();
  ASSERT_EQ(layers[1].window, 16u);
  refused("qwen3", *cache::make_cache("f32", layers, 64, 1), "layer 0 may forget what is 16 tokens back");
  layers[1].window = 15;
  refused("mistral", *cache::make_cache("f32", layers, 64, 1), "layer 1 may forget what is 15 tokens back");
  for (cache::Layer& layer : layers) layer.window = 0;
  const auto keeps_all = cache::make_cache("f32", layers, 64, 1);
  EXPECT_EQ(load_exact("mistral").forward(batch, *keeps_all).size(), windowed.description().n_vocabulary);
}

TEST(Model, ThePiecesRefuseWhatTheModelLacks) {
  Model model = load_exact("llama");
  const auto cache = model.make_cache("f32", 64);
  const BatchPart batch[] = {{0, {1, 2}, {}, BatchPart::Want::kLast, {}}};
  const BatchRows rows = model.plan(batch, *cache);
  std::vector<float> hidden(2 * model.description().d_model);
  for (const text::TokenId token : {-1, 96, 1 << 30}) {
    const text::TokenId tokens[] = {1, token};
    EXPECT_KPD_ERROR(kInvalidArgument, "beyond the vocabulary of 96", model.embed(tokens, hidden.data()));
  }
  for (const size_t index : {3, 99}) {
    EXPECT_KPD_ERROR(kInvalidArgument, "the model has 3", model.layer(index, rows, hidden.data(), *cache));
    EXPECT_KPD_ERROR(kInvalidArgument, "the model has 3", model.rerotate(index, hidden.data(), 1, 1, 1));
  }
}

// A copy's spans would point into the original.
TEST(Model, PlannedRowsMoveAndAreNotCopied) {
  static_assert(!std::is_copy_constructible_v<BatchRows> && !std::is_copy_assignable_v<BatchRows>);
  static_assert(std::is_nothrow_move_constructible_v<BatchRows> && std::is_nothrow_move_assignable_v<BatchRows>);
  Model model = load_exact("llama");
  const auto cache = model.make_cache("f32", 64);
  const BatchPart batch[] = {{0, {1, 2, 3}, {}, BatchPart::Want::kLast, {}}};
  BatchRows planned = model.plan(batch, *cache);
  const BatchRows rows = std::move(planned);
  EXPECT_EQ(rows.cache.parts[0].positions.data(), rows.positions.data());
  cache->begin(rows.cache);
  EXPECT_EQ(rows.cache.n_rows(), 3u);
}

}  // namespace
}  // namespace kpd::llm
