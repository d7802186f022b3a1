// A model whose layers are laid out as they run gives the logits of the whole one, and holds no more than two layers beside the
// hidden states. This program counts the bytes that every operator new gives out.
#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/expect_error.h"
#include "base/new_operators.h"
#include "io/temp_folder.h"
#include "kpd/llm/export.h"
#include "kpd/llm/model.h"
#include "io/json.h"

namespace {

std::atomic<int64_t> g_held{0}, g_most{0};

}  // namespace

inline void* kpd::testing::allocate(size_t bytes, size_t alignment) {
  void* p = system_allocate(bytes, alignment);
  const int64_t held =
      g_held.fetch_add(static_cast<int64_t>(malloc_usable_size(p))) + static_cast<int64_t>(malloc_usable_size(p));
  int64_t most = g_most.load();
  while (held > most && !g_most.compare_exchange_weak(most, held)) {
  }
  return p;
}

inline void kpd::testing::release(void* p) noexcept {
  if (p != nullptr) g_held.fetch_sub(static_cast<int64_t>(malloc_usable_size(p)));
  std::free(p);
}

namespace kpd::llm {
namespace {

namespace fs = std::filesystem;
using Layers = LoadOptions::Layers;

const std::string kModels = std::string(KPD_TESTS_DIR) + "/golden/models/";

Model load(const std::string& path, Layers layers, Arithmetic arithmetic) {
  LoadOptions options;
  options.arithmetic = arithmetic;
  options.n_threads = 1;
  options.layers = layers;
  return Model::load(path, options);
}

const std::vector<text::TokenId> kTokens = {5, 9, 77, 3, 21, 60, 8, 8, 41, 12, 90, 33};

std::vector<float> logits_of(Model& model) {
  const auto cache = model.make_cache("f32", 64);
  const BatchPart batch[] = {{0, kTokens, {}, BatchPart::Want::kAll, {}}};
  const auto logits = model.forward(batch, *cache);
  return {logits.begin(), logits.end()};
}

TEST(LayersOnDemand, GiveTheLogitsOfTheWholeModel) {
  for (const char* name : {"llama", "llama3_rope", "qwen2_window", "gemma3", "phi3", "granite4", "olmo3", "llama/model.gguf",
                           "phi3/model.gguf", "chat/model.gguf"}) {
    for (const Arithmetic arithmetic : {Arithmetic::kExact, Arithmetic::kFast}) {
      Model whole = load(kModels + name, Layers::kAll, arithmetic), parts = load(kModels + name, Layers::kOnDemand, arithmetic);
      EXPECT_EQ(logits_of(parts), logits_of(whole)) << name << " " << arithmetic_name(arithmetic);
      EXPECT_LT(parts.memory_bytes(), whole.memory_bytes() + (arithmetic == Arithmetic::kFast ? 0 : 1)) << name;
    }
  }
}

// Layer after layer over several batches, as calibration runs them.
TEST(LayersOnDemand, OneLayerOverSeveralBatches) {
  Model whole = load(kModels + "llama", Layers::kAll, Arithmetic::kFast),
        parts = load(kModels + "llama", Layers::kOnDemand, Arithmetic::kFast);
  const auto cache = parts.make_cache("f32", 256);
  const size_t d_model = parts.description().d_model, n = kTokens.size();
  std::vector<std::vector<float>> hidden(2, std::vector<float>(n * d_model));
  std::vector<BatchRows> rows;
  for (uint32_t b = 0; b < 2; ++b) {
    const BatchPart part[] = {{b, kTokens, {}, BatchPart::Want::kAll, {}}};
    rows.push_back(parts.plan(part, *cache));
    parts.embed(kTokens, hidden[b].data());
  }
  for (size_t i = 0; i < parts.description().layers.size(); ++i) {
    parts.load_layer(i);
    parts.load_layer(i);  // it is there
    for (uint32_t b = 0; b < 2; ++b) {
      cache->crop(b, 0);
      cache->begin(rows[b].cache);
      parts.layer(i, rows[b], hidden[b].data(), *cache);
    }
    parts.drop_layer(i);
  }
  std::vector<float> logits(n * parts.description().n_vocabulary);
  for (const auto& h : hidden) {
    parts.head(h.data(), n, logits.data());
    EXPECT_EQ(logits, logits_of(whole));
  }
}

TEST(LayersOnDemand, AreAskedForWhereTheyAre) {
  Model whole = load(kModels + "llama", Layers::kAll, Arithmetic::kExact),
        parts = load(kModels + "llama", Layers::kOnDemand, Arithmetic::kExact);
  EXPECT_KPD_ERROR(kInvalidArgument, "the model holds all its layers", whole.load_layer(0));
  EXPECT_KPD_ERROR(kInvalidArgument, "the model holds all its layers", whole.drop_layer(0));
  EXPECT_KPD_ERROR(kInvalidArgument, "layer 3, the model has 3", parts.load_layer(3));
  EXPECT_KPD_ERROR(kInvalidArgument, "layer 3, the model has 3", parts.drop_layer(3));
}

class Memory : public testing::TempFolder {
 protected:
  static constexpr size_t kModel = 1024, kFf = 3072, kLayers = 3, kVocabulary = 4096;

  // Zeros that take no place on the disk.
  void write_model(size_t n_layers) const {
    const io::Json config = {{"architectures", {"LlamaForCausalLM"}},
                             {"num_hidden_layers", n_layers},
                             {"hidden_size", kModel},
                             {"num_attention_heads", 8},
                             {"num_key_value_heads", 4},
                             {"intermediate_size", kFf},
                             {"vocab_size", kVocabulary},
                             {"rms_norm_eps", 1e-5},
                             {"max_position_embeddings", 256},
                             {"tie_word_embeddings", true}};
    std::ofstream(path("config.json")) << config.dump();
    io::Json header;
    uint64_t at = 0;
    const auto put = [&](const std::string& name, std::vector<uint64_t> shape) {
      uint64_t bytes = 2;
      for (const uint64_t x : shape) bytes *= x;
      header[name + ".weight"] = {{"dtype", "F16"}, {"shape", shape}, {"data_offsets", {at, at + bytes}}};
      at += bytes;
    };
    put("model.embed_tokens", {kVocabulary, kModel});
    put("model.norm", {kModel});
    for (size_t i = 0; i < n_layers; ++i) {
      const std::string layer = "model.layers." + std::to_string(i) + ".";
      put(layer + "input_layernorm", {kModel});
      put(layer + "post_attention_layernorm", {kModel});
      put(layer + "self_attn.q_proj", {kModel, kModel});
      put(layer + "self_attn.k_proj", {kModel / 2, kModel});
      put(layer + "self_attn.v_proj", {kModel / 2, kModel});
      put(layer + "self_attn.o_proj", {kModel, kModel});
      put(layer + "mlp.gate_proj", {kFf, kModel});
      put(layer + "mlp.up_proj", {kFf, kModel});
      put(layer + "mlp.down_proj", {kModel, kFf});
    }
    std::string text = header.dump();
    text.append((8 - text.size() % 8) % 8, ' ');
    const uint64_t size = text.size();
    {
      std::ofstream out(path("model.safetensors"), std::ios::binary);
      out.write(reinterpret_cast<const char*>(&size), sizeof(size));
      out << text;
    }
    fs::resize_file(path("model.safetensors"), 8 + size + at);
  }

  // The most that was held at once beyond what was held before.
  int64_t peak(Layers layers) const {
    const int64_t before = g_held.load();
    g_most.store(before);
    Model model = load(folder_, layers, Arithmetic::kFast);
    EXPECT_EQ(logits_of(model).size(), kTokens.size() * kVocabulary);
    return g_most.load() - before;
  }
};

TEST_F(Memory, AtMostTwoLayersAndTheHiddenStates) {
  write_model(kLayers);
  constexpr int64_t kLayer = int64_t{2} * (3 * kModel * kModel + 3 * kFf * kModel);
  // What runs between the layers: rows of every width, the cache, logits; and the arena's unit.
  const auto n = static_cast<int64_t>(kTokens.size());
  const int64_t between = n * 4 * static_cast<int64_t>(8 * kModel + 3 * kFf + 2 * kVocabulary) + (int64_t{4} << 20);
  const int64_t whole = peak(Layers::kAll), parts = peak(Layers::kOnDemand);
  EXPECT_LE(parts, 2 * kLayer + between);
  EXPECT_GE(whole, static_cast<int64_t>(kLayers) * kLayer);
}

TEST_F(Memory, AnExportHoldsNoMoreThanOneTensor) {
  write_model(1);
  constexpr int64_t kSmallest = int64_t{2} * kModel * kModel / 2, kLargest = int64_t{2} * kVocabulary * kModel;
  for (const CheckpointFormat format : {CheckpointFormat::kSafetensors, CheckpointFormat::kGguf}) {
    const int64_t before = g_held.load();
    g_most.store(before);
    const Checkpoint checkpoint = Checkpoint::open(folder_);
    const CheckpointExport plan(checkpoint, {.format = format, .type = BlockType::kBF16});
    uint64_t written = 0;
    plan.write(path("out"), io::Existing::kKeep, [&](uint64_t bytes) { written += bytes; });
    EXPECT_EQ(written, plan.bytes());
    EXPECT_GT(written, static_cast<uint64_t>(3 * kLargest));
    EXPECT_LT(g_most.load() - before, kLargest);
    EXPECT_GT(g_most.load() - before, kSmallest / 4);  // the counter counts
    fs::remove_all(path("out"));
  }
}

}  // namespace
}  // namespace kpd::llm
