// config.json in both spellings, and what is refused.
#include <gtest/gtest.h>

#include <cmath>

#include "base/expect_error.h"
#include "kpd/base/error.h"
#include "kpd/io/gguf.h"
#include "kpd/llm/model_description.h"

namespace kpd::llm {
namespace {

std::string config(const std::string& architecture, const std::string& more) {
  return R"({"architectures": [")" + architecture + R"("], "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 6,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5)" +
         (more.empty() ? "" : ", " + more) + "}";
}

ModelDescription describe(const std::string& architecture, const std::string& more) {
  return describe_config(config(architecture, more), "config.json");
}

TEST(Describe, BothSpellingsOfRope) {
  const auto old = describe("LlamaForCausalLM",
                            R"("rope_theta": 500000, "rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1,
    "high_freq_factor": 4, "original_max_position_embeddings": 1024})");
  const auto recent = describe(
      "LlamaForCausalLM", R"("rope_parameters": {"rope_theta": 500000, "rope_type": "llama3", "factor": 8, "low_freq_factor": 1,
    "high_freq_factor": 4, "original_max_position_embeddings": 1024})");
  for (const auto& d : {old, recent}) {
    ASSERT_EQ(d.ropes.size(), 1u);
    EXPECT_EQ(d.ropes[0].kind, RopeKind::kLlama3);
    EXPECT_EQ(d.ropes[0].theta, 500000);
    EXPECT_EQ(d.ropes[0].original_context, 1024u);
  }
  EXPECT_EQ(rope_frequencies(old.ropes[0], 1).radians, rope_frequencies(recent.ropes[0], 1).radians);
  // The older name of the key.
  EXPECT_EQ(describe("LlamaForCausalLM", R"("rope_scaling": {"type": "linear", "factor": 2})").ropes[0].kind,
            RopeKind::kLinear);
}

TEST(Describe, Gemma3InItsOldSpelling) {
  const auto d = describe("Gemma3ForCausalLM",
                          R"("head_dim": 16, "sliding_window": 512, "sliding_window_pattern": 3, "query_pre_attn_scalar": 64,
    "rope_theta": 1000000, "rope_local_base_freq": 10000, "rope_scaling": {"rope_type": "linear", "factor": 8})");
  ASSERT_EQ(d.ropes.size(), 2u);
  EXPECT_EQ(d.ropes[0].factor, 8);
  EXPECT_EQ(d.ropes[1].theta, 10000);
  EXPECT_EQ(d.layers[0].rope, 1);
  EXPECT_EQ(d.layers[2].rope, 0);
  EXPECT_EQ(d.layers[2].window, 0u);
  EXPECT_EQ(d.layers[4].window, 512u);
  EXPECT_FLOAT_EQ(d.attention_scale, 0.125f);
  EXPECT_TRUE(d.tied_head);
}

// transformers writes no key whose value is the usual one.
TEST(Describe, TiedHeadsWhereTheFileDoesNotSay) {
  for (const char* tied : {"SmolLM3", "Gemma2", "Gemma3"}) {
    EXPECT_TRUE(describe(std::string(tied) + "ForCausalLM", "").tied_head) << tied;
    EXPECT_FALSE(describe(std::string(tied) + "ForCausalLM", R"("tie_word_embeddings": false)").tied_head) << tied;
  }
  for (const char* own : {"Llama", "Mistral", "Qwen2", "Qwen3", "Phi3"}) {
    EXPECT_FALSE(describe(std::string(own) + "ForCausalLM", "").tied_head) << own;
    EXPECT_TRUE(describe(std::string(own) + "ForCausalLM", R"("tie_word_embeddings": true)").tied_head) << own;
  }
}

using Values = std::vector<std::pair<std::string, io::GgufValue>>;

ModelDescription describe_gguf_of(const std::string& architecture, const Values& more) {
  io::GgufMetadata m;
  m.name = "m.gguf";
  m.values = {{"general.architecture", architecture}};
  for (const auto& [key, value] : Values{{"block_count", uint64_t{6}},
                                         {"embedding_length", uint64_t{64}},
                                         {"attention.head_count", uint64_t{4}},
                                         {"feed_forward_length", uint64_t{96}},
                                         {"vocab_size", uint64_t{100}},
                                         {"context_length", uint64_t{4096}},
                                         {"attention.layer_norm_rms_epsilon", 1e-5}}) {
    m.values.emplace_back(architecture + "." + key, value);
  }
  for (const auto& [key, value] : more) m.values.emplace_back(architecture + "." + key, value);
  return describe_gguf(m);
}

// As llama.cpp reads these keys (llama-model.cpp, load_hparams; llama-context.cpp).
TEST(Describe, RopeOfGguf) {
  const auto rope = [](const Values& more) { return describe_gguf_of("llama", more).ropes[0]; };
  const RopeDescription none = rope({});
  EXPECT_EQ(none.kind, RopeKind::kDefault);
  EXPECT_EQ(none.attention_factor, 1);
  for (const Values& linear : {Values{{"rope.scaling.factor", 4.0}}, Values{{"rope.scale_linear", 4.0}},
                               Values{{"rope.scaling.factor", 4.0}, {"rope.scale_linear", 2.0}},
                               Values{{"rope.scaling.type", std::string("linear")}, {"rope.scale_linear", 4.0}}}) {
    EXPECT_EQ(rope(linear).kind, RopeKind::kLinear);
    EXPECT_EQ(rope(linear).factor, 4);
    EXPECT_FLOAT_EQ(rope_frequencies(rope(linear), 1).radians[1], rope_frequencies(none, 1).radians[1] / 4);
  }
  EXPECT_EQ(rope({{"rope.scaling.factor", 0.0}}).kind, RopeKind::kDefault);
  EXPECT_EQ(rope({{"rope.scaling.type", std::string("none")}, {"rope.scaling.factor", 4.0}}).kind, RopeKind::kDefault);
  for (const char* type : {"none", "linear", "longrope"}) {
    EXPECT_EQ(rope({{"rope.scaling.type", std::string(type)}, {"rope.scaling.attn_factor", 1.25}}).attention_factor, 1.25)
        << type;
  }
  EXPECT_EQ(rope({{"rope.scaling.attn_factor", 1.25}}).attention_factor, 1.25);
  const RopeDescription yarn =
      rope({{"rope.scaling.type", std::string("yarn")}, {"rope.scaling.factor", 4.0}, {"rope.scaling.attn_factor", 1.25}});
  EXPECT_EQ(yarn.factor, 4);
  EXPECT_DOUBLE_EQ(yarn.attention_factor, 1.25 * (0.1 * std::log(4.0) + 1));
  EXPECT_KPD_ERROR(kCorruptData, "factor", rope({{"rope.scaling.factor", -4.0}}));
}

TEST(Describe, WindowsOfGguf) {
  EXPECT_EQ(describe_gguf_of("gemma2", {}).layers[0].window, 4096u);
  EXPECT_EQ(describe_gguf_of("gemma2", {}).layers[1].window, 0u);
  EXPECT_EQ(describe_gguf_of("gemma2", {{"attention.sliding_window", uint64_t{128}}}).layers[0].window, 128u);
  EXPECT_EQ(describe_gguf_of("gemma3", {}).layers[0].window, 0u);
}

TEST(Describe, WindowsOfEachFamily) {
  EXPECT_EQ(describe("MistralForCausalLM", R"("sliding_window": 128)").layers[5].window, 128u);
  EXPECT_EQ(describe("MistralForCausalLM", R"("sliding_window": null)").layers[5].window, 0u);
  EXPECT_EQ(describe("Qwen2ForCausalLM", R"("sliding_window": 128, "use_sliding_window": false)").layers[5].window, 0u);
  const auto qwen =
      describe("Qwen2ForCausalLM", R"("sliding_window": 128, "use_sliding_window": true, "max_window_layers": 4)");
  EXPECT_EQ(qwen.layers[3].window, 0u);
  EXPECT_EQ(qwen.layers[4].window, 128u);
  EXPECT_TRUE(qwen.qkv_bias);
  EXPECT_FALSE(qwen.o_bias);
  EXPECT_EQ(describe("SmolLM3ForCausalLM", "").layers[3].rope, -1);
  EXPECT_EQ(describe("SmolLM3ForCausalLM", R"("no_rope_layers": [0,1,1,1,1,1])").layers[0].rope, -1);
}

TEST(Describe, PublishedFrequencies) {
  // Llama 3.1: the waves of the longest dimensions are stretched eightfold, the shortest are left.
  const auto d = describe(
      "LlamaForCausalLM",
      R"("head_dim": 128, "rope_theta": 500000, "rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1,
    "high_freq_factor": 4, "original_max_position_embeddings": 8192})");
  const auto f = rope_frequencies(d.ropes[0], 1).radians;
  EXPECT_FLOAT_EQ(f[0], 1);
  EXPECT_FLOAT_EQ(f[63], static_cast<float>(std::pow(500000.0, -126.0 / 128) / 8));
}

TEST(Describe, Refusals) {
  const auto refused = [](const std::string& architecture, const std::string& more, ErrorCode code, const std::string& text) {
    testing::expect_error(
        code, text, [&] { describe(architecture, more); }, __FILE__, __LINE__);
  };
  refused("GPT2LMHeadModel", "", ErrorCode::kUnsupported, "kpd reads LlamaForCausalLM");
  refused("LlamaForCausalLM", R"("rope_scaling": {"rope_type": "su2", "factor": 2})", ErrorCode::kUnsupported, "longrope");
  refused("LlamaForCausalLM", R"("hidden_act": "relu")", ErrorCode::kUnsupported, "silu");
  refused("LlamaForCausalLM", R"("num_key_value_heads": 3)", ErrorCode::kCorruptData, "evenly");
  refused("LlamaForCausalLM", R"("num_hidden_layers": 1e30)", ErrorCode::kCorruptData, "num_hidden_layers");
  refused("LlamaForCausalLM", R"("num_hidden_layers": 99999999999)", ErrorCode::kCorruptData, "num_hidden_layers");
  refused("LlamaForCausalLM", R"("num_attention_heads": 0)", ErrorCode::kCorruptData, "num_attention_heads");
  refused("LlamaForCausalLM", R"("vocab_size": -5)", ErrorCode::kCorruptData, "vocab_size");
  refused("LlamaForCausalLM", R"("head_dim": 15)", ErrorCode::kCorruptData, "even number");
  refused("LlamaForCausalLM", R"("rms_norm_eps": "small")", ErrorCode::kCorruptData, "rms_norm_eps");
  refused(
      "Phi3ForCausalLM",
      R"("rope_scaling": {"type": "longrope", "short_factor": [1], "long_factor": [1], "original_max_position_embeddings": 64})",
      ErrorCode::kCorruptData, "factors");
  refused("Qwen2ForCausalLM", R"("layer_types": ["full_attention"])", ErrorCode::kCorruptData, "layer_types");
  refused("LlamaForCausalLM", R"("rope_theta": 1e706)", ErrorCode::kCorruptData, "beyond what a double holds");
  EXPECT_THROW(describe_config("{", "config.json"), Error);
  EXPECT_THROW(describe_config("[]", "config.json"), Error);
  EXPECT_THROW(describe_config("{}", "config.json"), Error);
}

}  // namespace
}  // namespace kpd::llm
