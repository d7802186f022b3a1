// Layers described one by one: a description without some of them, or without halves of them, loads the right tensors and runs
// as a file that never had them; layer, file and cache count differently then.
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>

#include "base/expect_error.h"
#include "io/temp_folder.h"
#include "kpd/llm/generate.h"
#include "kpd/llm/model.h"
#include "llm/tiny_checkpoint.h"
#include "text/tokenizer_fixture.h"

namespace kpd::llm {
namespace {

namespace fs = std::filesystem;
using testing::TinyCheckpoint;
using Layers = std::vector<LayerDescription>;
using Edit = std::function<void(Layers&)>;

const std::string kGolden = std::string(KPD_TESTS_DIR) + "/golden/";

TinyCheckpoint read(const std::string& name) { return TinyCheckpoint::read(kGolden + "checkpoints/" + name + ".json"); }

// "model.layers.3.mlp.up_proj.weight" -> 3 and where the number stands; none: false.
bool find_layer(const std::string& tensor, size_t& layer, size_t& first, size_t& last) {
  const std::string prefix = "model.layers.";
  if (!tensor.starts_with(prefix)) return false;
  first = prefix.size();
  last = tensor.find('.', first);
  layer = std::stoul(tensor.substr(first, last - first));
  return true;
}

// The file of the layers `kept` alone, numbered anew.
TinyCheckpoint without_others(TinyCheckpoint c, const std::vector<size_t>& kept) {
  std::vector<TinyCheckpoint::Tensor> tensors;
  for (TinyCheckpoint::Tensor t : c.tensors) {
    size_t layer = 0, first = 0, last = 0;
    if (find_layer(t.name, layer, first, last)) {
      const auto it = std::find(kept.begin(), kept.end(), layer);
      if (it == kept.end()) continue;
      t.name = t.name.substr(0, first) + std::to_string(it - kept.begin()) + t.name.substr(last);
    }
    tensors.push_back(t);
  }
  c.tensors = tensors;
  c.config["num_hidden_layers"] = kept.size();
  io::Json types = io::Json::array();
  for (const size_t layer : kept) types.push_back(c.config["layer_types"][layer]);
  c.config["layer_types"] = types;
  return c;
}

void keep(Layers& layers, const std::vector<size_t>& kept) {
  Layers all = std::move(layers);
  layers.clear();
  for (const size_t i : kept) layers.push_back(all[i]);
}

std::vector<float> logits(Model& model, const std::vector<text::TokenId>& tokens, size_t step) {
  const auto cache = model.make_cache("f32", 64);
  std::vector<float> all;
  for (size_t first = 0; first < tokens.size(); first += step) {
    const auto from = tokens.begin() + static_cast<std::ptrdiff_t>(first);
    const BatchPart batch[] = {
        {0, {from, from + static_cast<std::ptrdiff_t>(std::min(step, tokens.size() - first))}, {}, BatchPart::Want::kAll, {}}};
    const auto some = model.forward(batch, *cache);
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

class LayersOfFiles : public testing::TempFolder {
 protected:
  Model load(const TinyCheckpoint& c, const Edit& edit = {}, Arithmetic arithmetic = Arithmetic::kExact) {
    // A folder each: exact arithmetic reads the file for as long as the model lives.
    const std::string folder = path(std::to_string(n_folders_++));
    fs::create_directory(folder);
    c.write(folder);
    return Model::load(folder,
                       {.arithmetic = arithmetic, .n_threads = 1, .limits = {}, .edit_layers = edit, .on_progress = {}});
  }

 private:
  size_t n_folders_ = 0;
};

// Windows and rotations stay those of the layers that they belonged to.
TEST_F(LayersOfFiles, ALayerThatIsLeftOutWasNeverThere) {
  for (const auto& [name, kept] : {std::pair{"Olmo-3-7B-Instruct", std::vector<size_t>{0, 2, 3}},
                                   {"Olmo-3-7B-Instruct", {3, 1}},
                                   {"gemma-3-270m-it", {0, 1, 3, 5}}}) {
    const TinyCheckpoint c = read(name);
    for (const Arithmetic arithmetic : {Arithmetic::kExact, Arithmetic::kFast}) {
      Model pruned = load(
          c, [&, kept = kept](Layers& layers) { keep(layers, kept); }, arithmetic);
      ASSERT_EQ(pruned.description().layers.size(), kept.size());
      for (size_t i = 0; i < kept.size(); ++i) EXPECT_EQ(pruned.description().layers[i].source, kept[i]);
      const std::vector<float> got = logits(pruned, c.tokens, c.tokens.size());
      Model expected = load(without_others(c, kept), {}, arithmetic);
      EXPECT_EQ(got, logits(expected, c.tokens, c.tokens.size())) << name;
      EXPECT_EQ(logits(pruned, c.tokens, 1), got) << name;
      EXPECT_EQ(pruned.n_parameters(), expected.n_parameters()) << name;
      EXPECT_EQ(pruned.file_bytes(), expected.file_bytes()) << name;
      Model whole = load(c, {}, arithmetic);
      EXPECT_NE(logits(whole, c.tokens, c.tokens.size()), got) << name;
      EXPECT_NE(whole.fingerprint(), pruned.fingerprint()) << name;
    }
  }
}

TEST_F(LayersOfFiles, ALayerMayStandTwice) {
  const TinyCheckpoint c = read("Olmo-3-7B-Instruct");
  TinyCheckpoint twice = c;
  twice.config["num_hidden_layers"] = 5;
  twice.config["layer_types"].insert(twice.config["layer_types"].begin() + 1, twice.config["layer_types"][0]);
  std::vector<TinyCheckpoint::Tensor> copies;
  for (TinyCheckpoint::Tensor& t : twice.tensors) {
    size_t layer = 0, first = 0, last = 0;
    if (!find_layer(t.name, layer, first, last)) continue;
    const std::string head = t.name.substr(0, first), tail = t.name.substr(last);
    if (layer == 0) copies.push_back(t);
    t.name = head + std::to_string(layer == 0 ? 0 : layer + 1) + tail;
    if (layer == 0) copies.back().name = head + "1" + tail;
  }
  twice.tensors.insert(twice.tensors.end(), copies.begin(), copies.end());
  Model model = load(c, [](Layers& layers) { keep(layers, {0, 0, 1, 2, 3}); });
  const std::vector<float> got = logits(model, c.tokens, 7);
  Model expected = load(twice);
  EXPECT_EQ(got, logits(expected, c.tokens, 7));
  EXPECT_LT(model.n_parameters(), expected.n_parameters()) << "what is read twice is counted once";
}

// An output matrix of zeros adds nothing, whatever the half computes.
TEST_F(LayersOfFiles, AHalfThatIsLeftOutAddsNothing) {
  // Norms of what attention and the MLP give would have nothing to divide by: a family without them.
  const TinyCheckpoint c = read("SmolLM3-3B");
  for (const auto& [kind, zero] : {std::pair{LayerKind::kMlp, "model.layers.1.self_attn.o_proj.weight"},
                                   {LayerKind::kAttention, "model.layers.1.mlp.down_proj.weight"}}) {
    TinyCheckpoint zeros = c;
    ASSERT_NE(zeros.find(zero), nullptr);
    zeros.find(zero)->scale = zeros.find(zero)->offset = 0;
    Model expected = load(zeros);
    Model model = load(c, [kind = kind](Layers& layers) { layers[1].kind = kind; });
    const bool drops = kind == LayerKind::kMlp;
    EXPECT_EQ(model.cache_layers().size(), drops ? 3u : 4u);
    const std::span<const size_t> in_cache = model.layers_of_cache();
    EXPECT_EQ(std::vector<size_t>(in_cache.begin(), in_cache.end()),
              drops ? (std::vector<size_t>{0, 2, 3}) : (std::vector<size_t>{0, 1, 2, 3}));
    const std::vector<float> got = logits(model, c.tokens, c.tokens.size());
    EXPECT_EQ(got, logits(expected, c.tokens, c.tokens.size())) << zero;
    EXPECT_EQ(got, logits(model, c.tokens, 3)) << zero;
    EXPECT_LT(model.n_parameters(), expected.n_parameters());
  }
}

// A key that is moved is rotated as its layer is: the last of SmolLM3's four layers is not, and has another number in the
// cache.
TEST_F(LayersOfFiles, KeysMoveByTheRotationOfTheirLayer) {
  const TinyCheckpoint c = read("SmolLM3-3B");
  TinyCheckpoint zeros = c;
  zeros.find("model.layers.1.self_attn.o_proj.weight")->scale = 0;
  Model expected = load(zeros);
  Model model = load(c, [](Layers& layers) { layers[1].kind = LayerKind::kMlp; });
  EXPECT_EQ(model.description().layers[3].rope, -1);
  EXPECT_GE(model.description().layers[2].rope, 0);
  const text::Tokenizer tokenizer = testing::character_tokenizer();
  const auto answer = [&](Model& m) {
    const auto cache = m.make_cache("f32", 64);
    GenerateOptions options;
    options.max_tokens = 60;
    options.context = 24;
    options.context_shift = true;
    options.ignore_eos = true;
    return generate(m, tokenizer, *cache, 0, std::span(c.tokens).first(12), options, {}).token_ids;
  };
  EXPECT_EQ(answer(model), answer(expected));
}

TEST_F(LayersOfFiles, WhatTheFileLacksIsRefused) {
  const TinyCheckpoint c = read("Olmo-3-7B-Instruct");
  const auto refused = [&](ErrorCode code, const std::string& text, const Edit& edit, int line) {
    testing::expect_error(
        code, text, [&] { load(c, edit); }, __FILE__, line);
  };
  refused(
      ErrorCode::kInvalidArgument, "layer 1 is to be layer 4 of a file of 4", [](Layers& l) { l[1].source = 4; }, __LINE__);
  refused(
      ErrorCode::kInvalidArgument, "layer 2 has the rotation 2 of 2", [](Layers& l) { l[2].rope = 2; }, __LINE__);
  refused(
      ErrorCode::kCorruptData, "the number of layers is 0", [](Layers& l) { l.clear(); }, __LINE__);
  refused(
      ErrorCode::kCorruptData, "model.layers.3.mlp.gate_proj.weight has the shape", [](Layers& l) { l[3].d_ff = 7; }, __LINE__);
  // Left out are the tensors of a layer that kpd knows, not any that stand under its name.
  TinyCheckpoint more = c;
  more.tensors.push_back({"model.layers.1.self_attn.sinks", "x", {8}, 1, 0});
  EXPECT_KPD_ERROR(kUnsupported, "model.layers.1.self_attn.sinks [8] is none that", load(more, [](Layers& l) {
                     keep(l, {0, 2, 3});
                   }));
}

// The same by the other file's names and permuted rows.
TEST(LayersOfGguf, ALayerThatIsLeftOut) {
  for (const char* name : {"llama", "qwen2", "phi3"}) {
    std::vector<text::TokenId> tokens(40);
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<text::TokenId>(1 + (i * i * 7 + i) % 90);
    std::vector<std::vector<float>> results;
    for (const char* file : {"", "/model.gguf"}) {
      const auto without_second = [](Layers& layers) { layers.erase(layers.begin() + 1); };
      Model model = Model::load(
          kGolden + "models/" + name + file,
          {.arithmetic = Arithmetic::kExact, .n_threads = 1, .limits = {}, .edit_layers = without_second, .on_progress = {}});
      EXPECT_EQ(model.description().layers[1].source, 2u);
      results.push_back(logits(model, tokens, 40));
    }
    ASSERT_EQ(results[0].size(), results[1].size());
    float largest = 0, worst = 0;
    for (size_t i = 0; i < results[0].size(); ++i) {
      largest = std::max(largest, std::abs(results[0][i]));
      worst = std::max(worst, std::abs(results[0][i] - results[1][i]));
    }
    EXPECT_LT(worst, 1e-4f * largest) << name;
  }
}

}  // namespace
}  // namespace kpd::llm
