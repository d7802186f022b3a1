// The checkpoints of docs/guide/llm.md: for each a tiny model with its published keys gives the logits of transformers; and
// what is no part of a model is an error.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/expect_error.h"
#include "io/temp_folder.h"
#include "kpd/llm/model.h"
#include "llm/tiny_checkpoint.h"

namespace kpd::llm {
namespace {

namespace fs = std::filesystem;
using testing::TinyCheckpoint;

const std::string kFolder = std::string(KPD_TESTS_DIR) + "/golden/checkpoints/";

class Checkpoints : public testing::TempFolder {
 protected:
  Model load(const TinyCheckpoint& c) {
    c.write(folder_);
    return Model::load(folder_, {.arithmetic = Arithmetic::kExact, .n_threads = 1, .limits = {}});
  }

  // The largest difference of a logit, by the largest logit.
  static float distance(Model& model, const TinyCheckpoint& c) {
    const auto cache = model.make_cache("f32", 64);
    BatchPart part = {0, c.tokens, {}, BatchPart::Want::kList, c.rows};
    const BatchPart batch[] = {part};
    const auto logits = model.forward(batch, *cache);
    if (logits.size() != c.logits.size()) return INFINITY;
    float worst = 0, largest = 0;
    for (size_t i = 0; i < logits.size(); ++i) {
      worst = std::max(worst, std::fabs(logits[i] - c.logits[i]));
      largest = std::max(largest, std::fabs(c.logits[i]));
    }
    return std::isnan(worst) ? INFINITY : worst / largest;
  }

  void expect_refused(const TinyCheckpoint& c, ErrorCode code, const std::string& text, int line) {
    testing::expect_error(
        code, text, [&] { load(c); }, __FILE__, line);
  }
};

std::vector<std::string> checkpoint_names() {
  std::vector<std::string> all;
  for (const auto& entry : fs::directory_iterator(kFolder)) all.push_back(entry.path().stem().string());
  std::sort(all.begin(), all.end());
  return all;
}

TEST_F(Checkpoints, EachGivesTheLogitsOfTransformers) {
  const std::vector<std::string> all = checkpoint_names();
  EXPECT_EQ(all.size(), 42u);
  for (const std::string& name : all) {
    const TinyCheckpoint c = TinyCheckpoint::read(kFolder + name + ".json");
    try {
      Model model = load(c);
      EXPECT_LT(distance(model, c), 1e-4f) << name;
    } catch (const Error& error) {
      ADD_FAILURE() << name << ": " << error.what();
    }
  }
}

TEST_F(Checkpoints, TheGuidesTableSaysWhichLoad) {
  std::ifstream in(std::string(KPD_TESTS_DIR) + "/../docs/guide/llm.md");
  const std::string guide(std::istreambuf_iterator<char>(in), {});
  const std::vector<std::string> all = checkpoint_names();
  for (const std::string& name : all) EXPECT_NE(guide.find("\n| " + name + " | yes | "), std::string::npos) << name;
  size_t loads = 0;
  for (size_t at = guide.find(" | yes | "); at != std::string::npos; at = guide.find(" | yes | ", at + 1)) ++loads;
  EXPECT_EQ(loads, all.size());
  EXPECT_NE(guide.find("Of 45 checkpoints that people run " + std::to_string(loads) + " load"), std::string::npos);
}

// The other way in which text halves are named, and names that their towers have.
TEST_F(Checkpoints, TextHalvesUnderEitherName) {
  for (const std::string name : {"gemma-3-4b-it", "Ministral-3-3B-Instruct-2512"}) {
    TinyCheckpoint c = TinyCheckpoint::read(kFolder + name + ".json");
    const std::string old = "language_model.model.";
    for (TinyCheckpoint::Tensor& t : c.tensors) {
      if (t.name.starts_with(old))
        t.name = "model.language_model." + t.name.substr(old.size());
      else
        t.name = "model." + t.name;
    }
    c.tensors.push_back({"model.vision_tower.patch_embed.weight", "x", {3, 5, 7}, 1, 0});
    c.tensors.push_back({"model.vision_tower.embeddings.position_ids", "x", {9}, 1, 0, "I64"});
    Model model = load(c);
    EXPECT_LT(distance(model, c), 1e-4f) << name;
    EXPECT_TRUE(model.description().text_half && model.description().tied_head);
    // What is beside the text half is not counted.
    uint64_t parameters = 0;
    for (const TinyCheckpoint::Tensor& t : c.tensors) {
      if (!t.name.starts_with("model.language_model.")) continue;
      uint64_t count = 1;
      for (const uint64_t n : t.shape) count *= n;
      parameters += count;
    }
    EXPECT_EQ(model.n_parameters(), parameters);
    EXPECT_EQ(model.file_bytes(), 4 * parameters);
  }
}

TEST_F(Checkpoints, TensorsThatNothingReadsAreRefused) {
  const TinyCheckpoint plain = TinyCheckpoint::read(kFolder + "Llama-3-8B-Instruct.json");
  for (const char* name :
       {"model.layers.0.self_attn.q_norm.weight", "model.layers.1.self_attn.sinks", "model.layers.0.self_attn.q_proj.bias",
        "model.layers.2.input_layernorm.weight", "lm_head.bias", "model.layers.0.mlp.gate_proj.weight_scale", "score.weight"}) {
    TinyCheckpoint c = plain;
    c.tensors.push_back({name, name, {8}, 1, 0});
    expect_refused(c, ErrorCode::kUnsupported, std::string("the tensor ") + name + " [8] is none that", __LINE__);
  }
  TinyCheckpoint c = plain;
  c.tensors.push_back({"model.layers.0.self_attn.table", "x", {8}, 1, 0, "I64"});
  expect_refused(c, ErrorCode::kUnsupported, "model.layers.0.self_attn.table [8]", __LINE__);
  c = plain;
  *c.find("model.norm.weight") = {"model.norm.weight", "x", {32}, 1, 0, "I64"};
  expect_refused(c, ErrorCode::kUnsupported, "model.norm.weight has the type I64, expected F32, F16 or BF16", __LINE__);
}

TEST_F(Checkpoints, TensorsOfOtherShapesAndMissingOnesAreNamed) {
  const auto changed = [&](const char* checkpoint, const char* tensor, std::vector<uint64_t> shape, const std::string& text,
                           int line) {
    TinyCheckpoint c = TinyCheckpoint::read(kFolder + checkpoint + ".json");
    ASSERT_NE(c.find(tensor), nullptr) << tensor;
    if (shape.empty()) {
      std::erase_if(c.tensors, [&](const TinyCheckpoint::Tensor& t) { return t.name == tensor; });
    } else {
      c.find(tensor)->shape = std::move(shape);
    }
    expect_refused(c, ErrorCode::kCorruptData, text, line);
  };
  changed("OLMo-2-1124-7B-Instruct", "model.layers.1.self_attn.k_norm.weight", {8},
          "model.layers.1.self_attn.k_norm.weight has the shape [8], expected [32]", __LINE__);
  changed("granite-4.0-micro", "model.layers.0.shared_mlp.input_linear.weight", {48, 32},
          "has the shape [48, 32], expected [96, 32]", __LINE__);
  changed("granite-4.0-micro", "model.layers.1.shared_mlp.output_linear.weight", {},
          "model.layers.1.shared_mlp.output_linear.weight is missing", __LINE__);
  changed("gemma-3-4b-it", "language_model.model.layers.0.pre_feedforward_layernorm.weight", {},
          "language_model.model.layers.0.pre_feedforward_layernorm.weight is missing; the family gemma3 needs it", __LINE__);
  changed("Llama-3-8B-Instruct", "lm_head.weight", {}, "lm_head.weight is missing", __LINE__);
}

TEST_F(Checkpoints, TensorsThatFollowFromOthersAreHarmless) {
  TinyCheckpoint c = TinyCheckpoint::read(kFolder + "Llama-2-7B-chat.json");
  for (const char* name : {"model.layers.0.self_attn.rotary_emb.inv_freq", "model.rotary_emb.inv_freq",
                           "mtp.layers.0.norm.weight", "model.layers.1.self_attn.masked_bias"})
    c.tensors.push_back({name, name, {4}, 1, 0});
  Model model = load(c);
  EXPECT_LT(distance(model, c), 1e-4f);
}

// A head beside tied embeddings: the same if it is the same, and read, as transformers does, if it differs.
TEST_F(Checkpoints, AHeadOfItsOwnBesideTiedEmbeddings) {
  TinyCheckpoint c = TinyCheckpoint::read(kFolder + "SmolLM2-135M-Instruct.json");
  TinyCheckpoint::Tensor head = *c.find("model.embed_tokens.weight");
  head.name = "lm_head.weight";
  c.tensors.push_back(head);
  {
    Model model = load(c);
    EXPECT_LT(distance(model, c), 1e-4f);
    EXPECT_FALSE(model.description().tied_head);
  }
  c.tensors.back().seed = "another";
  Model model = load(c);
  EXPECT_GT(distance(model, c), 0.1f);
}

TEST_F(Checkpoints, KeysThatNothingReadsAreRefused) {
  const TinyCheckpoint plain = TinyCheckpoint::read(kFolder + "Llama-3.1-8B-Instruct.json");
  const auto refused = [&](const char* key, const io::Json& value, const std::string& text, int line) {
    TinyCheckpoint c = plain;
    c.config[key] = value;
    expect_refused(c, ErrorCode::kUnsupported, text, line);
  };
  refused("attention_multiplier", 0.5, "attention_multiplier is 0.5; kpd does not know this key", __LINE__);
  refused("use_qk_norm", true, "use_qk_norm is true", __LINE__);
  refused("attn_temperature_tuning", 4, "attn_temperature_tuning is 4", __LINE__);
  refused("full_attn_mod", 2, "full_attn_mod is 2", __LINE__);
  refused("is_causal", false, "is_causal is false", __LINE__);
  refused("num_local_experts", 8, "a mixture of 8 experts", __LINE__);
  refused("quantization_config", {{"quant_method", "awq"}, {"bits", 4}}, "the weights are quantized by awq", __LINE__);
  refused("quantization", {{"group_size", 64}, {"bits", 4}}, "the weights are quantized; kpd reads", __LINE__);
  io::Json rope = plain.config["rope_scaling"];
  rope["mrope_section"] = {1, 1, 2};
  refused("rope_scaling", rope, "rope_scaling.mrope_section is [1,1,2]", __LINE__);
  refused("rope_parameters", {{"rope_type", "linear"}, {"factor", 2}}, "rope_scaling and rope_parameters say different",
          __LINE__);
  TinyCheckpoint half = TinyCheckpoint::read(kFolder + "Ministral-3-3B-Instruct-2512.json");
  half.config["text_config"]["altup_num_inputs"] = 4;
  expect_refused(half, ErrorCode::kUnsupported, "text_config.altup_num_inputs is 4", __LINE__);
  half.config["text_config"].erase("altup_num_inputs");
  half.config["text_config"]["model_type"] = "llama4_text";
  expect_refused(half, ErrorCode::kUnsupported, "llama4_text is a mixture of experts", __LINE__);
}

TEST_F(Checkpoints, KeysThatChangeNothingAreTaken) {
  TinyCheckpoint c = TinyCheckpoint::read(kFolder + "Llama-3.1-8B-Instruct.json");
  const io::Json more = {{"_name_or_path", "x"},   {"unsloth_version", "2025.1"}, {"dtype", "float16"},
                         {"use_qk_norm", false},   {"attn_scale", nullptr},       {"some_list", io::Json::array()},
                         {"temperature", 0.6},     {"hidden_dropout", 0.1},       {"vision_token_id", 5},
                         {"model_max_length", 99}, {"num_local_experts", 0},      {"router_aux_loss_coef", 0.1}};
  c.config.update(more);
  c.config["rope_parameters"] = c.config["rope_scaling"];  // both spellings, saying the same
  c.config["rope_parameters"]["rope_theta"] = c.config["rope_theta"];
  Model model = load(c);
  EXPECT_LT(distance(model, c), 1e-4f);
}

}  // namespace
}  // namespace kpd::llm
