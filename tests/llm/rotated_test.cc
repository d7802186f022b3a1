// The seam of weights proven on whole models: a format that no model was made for (a rotation of every matrix's input and
// output) gives the logits of the plain one, on the golden model of every family; without its output stage it does not.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "base/expect_error.h"
#include "kpd/base/error.h"
#include "kpd/io/tensors.h"
#include "kpd/io/weights.h"
#include "kpd/llm/model.h"
#include "weight/rotated_format.h"

namespace kpd::llm {
namespace {

namespace fs = std::filesystem;
using WeightFormat = std::function<std::string(size_t layer, LinearSite site, size_t i)>;

const std::string kModels = std::string(KPD_TESTS_DIR) + "/golden/models/";

Model load(const std::string& path, const WeightFormat& format = {}, Arithmetic arithmetic = Arithmetic::kExact) {
  return Model::load(
      kModels + path,
      {.arithmetic = arithmetic, .n_threads = 2, .limits = {}, .edit_layers = {}, .weight_format = format, .on_progress = {}});
}

std::vector<text::TokenId> tokens(size_t n) {
  std::vector<text::TokenId> all(n);
  for (size_t i = 0; i < n; ++i) all[i] = static_cast<text::TokenId>(1 + (i * i * 7 + i) % 90);
  return all;
}

std::vector<float> logits(Model& model, size_t n, size_t step) {
  const auto cache = model.make_cache("f32", 64);
  cache->set_plan(0, plan_context(n));
  const std::vector<text::TokenId> all = tokens(n);
  std::vector<float> result;
  for (size_t first = 0; first < n; first += step) {
    const auto from = all.begin() + static_cast<std::ptrdiff_t>(first);
    const BatchPart batch[] = {
        {0, {from, from + static_cast<std::ptrdiff_t>(std::min(step, n - first))}, {}, BatchPart::Want::kAll, {}}};
    const auto some = model.forward(batch, *cache);
    result.insert(result.end(), some.begin(), some.end());
  }
  return result;
}

// The largest difference, by the largest logit.
float distance(std::span<const float> a, std::span<const float> b) {
  EXPECT_EQ(a.size(), b.size());
  float worst = 0, largest = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const float d = std::fabs(a[i] - b[i]);
    worst = std::isnan(d) ? INFINITY : std::max(worst, d);
    largest = std::max(largest, std::fabs(b[i]));
  }
  return worst / largest;
}

// Every matrix, a seed for each group as it would be; and two formats in every group, with seeds of their own.
std::string all_rotated(size_t layer, LinearSite site, size_t) {
  return str("rotated:of=stored,seed=", 16 * layer + 2 * static_cast<size_t>(site));
}
std::string some_rotated(size_t layer, LinearSite site, size_t i) {
  if (i == 1 || (i == 0 && layer % 2 == 1 && site != LinearSite::kQkv)) return "";
  return str("rotated:of=", i == 0 ? "stored" : "float", ",seed=", 100 + 16 * layer + 2 * static_cast<size_t>(site) + i);
}
std::string without_output(size_t layer, LinearSite site, size_t i) { return all_rotated(layer, site, i) + ",output=0"; }

std::vector<std::string> golden_models() {
  std::vector<std::string> all;
  for (const auto& entry : fs::directory_iterator(kModels)) {
    const std::string name = entry.path().filename().string();
    all.push_back(name);
    if (fs::exists(entry.path() / "model.gguf")) all.push_back(name + "/model.gguf");
  }
  std::sort(all.begin(), all.end());
  return all;
}

class Rotated : public ::testing::TestWithParam<std::string> {
  const weight::RegisteredFormat format_{testing::rotated_format()};
};

TEST_P(Rotated, LogitsAreThoseOfThePlainModel) {
  Model plain = load(GetParam());
  const std::vector<float> expected = logits(plain, 24, 24);
  size_t n_rotated = 0;
  const auto counted = [&](const WeightFormat& format) {
    return [&, format](size_t layer, LinearSite site, size_t i) {
      const std::string spec = format(layer, site, i);
      n_rotated += spec.empty() ? 0 : 1;
      return spec;
    };
  };
  Model all = load(GetParam(), counted(all_rotated));
  EXPECT_EQ(n_rotated, 7 * plain.description().layers.size() + 1) << "matrices of a layer, and the head";
  EXPECT_LT(distance(logits(all, 24, 24), expected), 1e-4f);
  Model some = load(GetParam(), some_rotated);
  EXPECT_LT(distance(logits(some, 24, 24), expected), 1e-4f);
  Model without = load(GetParam(), without_output);
  EXPECT_GT(distance(logits(without, 24, 24), expected), 1e-2f) << "the output stage decides";
  EXPECT_NE(all.fingerprint(), plain.fingerprint());
  EXPECT_NE(all.fingerprint(), some.fingerprint());
}

INSTANTIATE_TEST_SUITE_P(, Rotated, ::testing::ValuesIn(golden_models()), [](const auto& i) {
  std::string name = i.param;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == '/' || c == '.'; }, '_');
  return name;
});

class RotatedModels : public ::testing::Test {
  const weight::RegisteredFormat format_{testing::rotated_format()};
};

// The golden models have every kind of matrix that the seam is about.
TEST_F(RotatedModels, BiasesFusedSlicesAndPermutedRowsAreAmongThem) {
  EXPECT_TRUE(load("qwen2").description().qkv_bias);
  EXPECT_TRUE(load("phi3").description().fused_qkv && load("phi3").description().fused_gate_up);
  EXPECT_TRUE(load("llama/model.gguf").description().interleaved_qk);
}

TEST_F(RotatedModels, TheyDoNotDependOnHowABatchIsCut) {
  for (const Arithmetic arithmetic : {Arithmetic::kExact, Arithmetic::kFast}) {
    Model model = load("qwen2", all_rotated, arithmetic);
    const std::vector<float> whole = logits(model, 40, 40);
    for (const size_t step : {1, 7, 33}) EXPECT_EQ(logits(model, 40, step), whole) << step;
  }
}

// Made by hand and put in the place of one that was loaded.
TEST_F(RotatedModels, AMatrixIsReplaced) {
  Model model = load("llama");
  const std::vector<float> plain = logits(model, 24, 24);
  const std::string fingerprint = model.fingerprint();
  const io::Weights weights = io::Weights::open(kModels + "llama");
  const auto source_of = [&](const std::string& name) {
    const io::WeightEntry& e = *weights.find(name);
    weight::MatrixSource source;
    source.n_out = e.shape[0];
    source.n_in = e.shape[1];
    source.parts = {
        {std::string(weight::MatrixSource::kWeight), {e.name, e.type, source.n_out, source.n_in, e.bytes.data(), {}}}};
    return source;
  };
  model.replace(1, LinearSite::kGateUp, 1,
                weight::make_matrix("rotated:of=float,seed=5", source_of("model.layers.1.mlp.up_proj.weight"), 2));
  EXPECT_LT(distance(logits(model, 24, 24), plain), 1e-4f);
  EXPECT_NE(logits(model, 24, 24), plain);
  EXPECT_NE(model.fingerprint(), fingerprint) << "saved keys and values are those of the model that made them";
  // Another layer's in its place is another model; its own again gives the first logits, bit for bit.
  const auto put = [&](const char* name) {
    model.replace(1, LinearSite::kGateUp, 1, weight::make_matrix("stored", source_of(name), 2));
  };
  put("model.layers.0.mlp.up_proj.weight");
  EXPECT_GT(distance(logits(model, 24, 24), plain), 1e-3f);
  put("model.layers.1.mlp.up_proj.weight");
  EXPECT_EQ(logits(model, 24, 24), plain);
}

TEST_F(RotatedModels, WhatCannotBeReplacedIsSaid) {
  Model model = load("llama");
  const std::vector<float> plain = logits(model, 24, 24);
  const size_t n = model.description().layers.size();
  const std::vector<float> zeros(96 * 96);
  const auto replace = [&](size_t layer, LinearSite site, size_t i, size_t n_out, size_t n_in) {
    weight::MatrixSource source;
    source.n_out = n_out;
    source.n_in = n_in;
    source.parts = {{std::string(weight::MatrixSource::kWeight),
                     {"zeros", BlockType::kF32, n_out, n_in, reinterpret_cast<const uint8_t*>(zeros.data()), {}}}};
    model.replace(layer, site, i, weight::make_matrix("float", source, 1));
  };
  EXPECT_KPD_ERROR(kInvalidArgument, "layer 3, the model has 3", replace(n, LinearSite::kQkv, 0, 32, 32));
  EXPECT_KPD_ERROR(kInvalidArgument, "no matrix 3 in a group of 3", replace(0, LinearSite::kQkv, 3, 32, 32));
  EXPECT_KPD_ERROR(kInvalidArgument, "[32, 32], expected [48, 32]", replace(0, LinearSite::kGateUp, 0, 32, 32));
  EXPECT_KPD_ERROR(kInvalidArgument, "the head stands behind the layers", replace(0, LinearSite::kHead, 0, 96, 32));
  EXPECT_EQ(logits(model, 24, 24), plain);
  replace(n, LinearSite::kHead, 0, 96, 32);
  EXPECT_EQ(logits(model, 24, 24), std::vector<float>(plain.size()));
}

}  // namespace
}  // namespace kpd::llm
