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

TEST(Describe, EveryLayerIsDescribed) {
  for (const ModelDescription& d :
       {describe("LlamaForCausalLM", ""), describe_gguf_of("llama", {{"attention.head_count_kv", uint64_t{2}}})}) {
    ASSERT_EQ(d.layers.size(), 6u);
    EXPECT_EQ(d.n_file_layers, 6u);
    for (size_t i = 0; i < 6; ++i) {
      const LayerDescription& layer = d.layers[i];
      EXPECT_EQ(layer.source, i);
      EXPECT_TRUE(layer.has_attention() && layer.has_mlp());
      EXPECT_EQ(layer.query_width(), 64u);
      EXPECT_EQ(layer.key_width(), 32u);
      EXPECT_EQ(layer.value_width(), 32u);
      EXPECT_EQ(layer.attended_width(), 64u);
      EXPECT_EQ(layer.d_ff, 96u);
      EXPECT_EQ(layer.rope, 0);
    }
    EXPECT_EQ(layers_of_cache(d), (std::vector<size_t>{0, 1, 2, 3, 4, 5}));
  }
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

using List = std::vector<uint64_t>;

// By the keys of llama.cpp's converters: which layers have a window.
TEST(Describe, PatternsOfWindowsOfGguf) {
  const auto windows = [](const std::string& architecture, Values more) {
    more.emplace_back("attention.sliding_window", uint64_t{128});
    std::string text;
    for (const LayerDescription& layer : describe_gguf_of(architecture, more).layers) text += layer.window == 128 ? 'w' : '.';
    return text;
  };
  const char* key = "attention.sliding_window_pattern";
  EXPECT_EQ(windows("gemma2", {}), "w.w.w.");
  EXPECT_EQ(windows("gemma3", {}), "wwwww.");
  EXPECT_EQ(windows("gemma3", {{key, uint64_t{3}}}), "ww.ww.");
  EXPECT_EQ(windows("olmo2", {}), "www.ww");
  EXPECT_EQ(windows("olmo2", {{key, std::vector<bool>{true, false, false, true, true, false}}}), "w..ww.");
  EXPECT_EQ(windows("phi3", {}), "wwwwww");
  EXPECT_EQ(windows("qwen2", {{key, uint64_t{2}}}), "w.w.w.");
  EXPECT_KPD_ERROR(kUnsupported, "m.gguf: a window of 128 tokens, but no attention.sliding_window_pattern",
                   windows("qwen2", {}));
  EXPECT_EQ(describe_gguf_of("llama", {{"attention.sliding_window", uint64_t{4096}}}).layers[0].window, 0u);  // the context
  EXPECT_KPD_ERROR(kCorruptData, "has 2 values, expected 6", windows("olmo2", {{key, std::vector<bool>{true, false}}}));
}

TEST(Describe, KeysOfGgufThatChangeResultsAreRead) {
  EXPECT_FLOAT_EQ(describe_gguf_of("llama", {{"attention.scale", 0.5}}).attention_scale, 0.5f);
  EXPECT_FLOAT_EQ(describe_gguf_of("llama", {{"attention.scale", 0.0}}).attention_scale, 0.25f);
  EXPECT_FLOAT_EQ(describe_gguf_of("gemma3", {{"final_logit_softcapping", 20.0}}).logit_softcap, 20.f);
  EXPECT_FLOAT_EQ(describe_gguf_of("gemma2", {}).attention_softcap, 50.f);
  const ModelDescription granite = describe_gguf_of(
      "granite", {{"embedding_scale", 12.0}, {"residual_scale", 0.22}, {"logit_scale", 16.0}, {"attention.scale", 0.0078125}});
  EXPECT_FLOAT_EQ(granite.embedding_scale, 12);
  EXPECT_FLOAT_EQ(granite.residual_scale, 0.22f);
  EXPECT_FLOAT_EQ(granite.logit_scale, 1 / 16.f);
  EXPECT_FLOAT_EQ(granite.attention_scale, 0.0078125f);
  EXPECT_FLOAT_EQ(describe_gguf_of("granite", {{"logit_scale", 0.0}}).logit_scale, 1);
  EXPECT_EQ(describe_gguf_of("granite", {{"rope.scaling.finetuned", false}}).layers[1].rope, -1);
  EXPECT_EQ(describe_gguf_of("llama", {{"rope.scaling.finetuned", false}}).layers[1].rope, 0);
  const auto yarn = [](Values more) {
    more.insert(more.end(), {{"rope.scaling.type", std::string("yarn")}, {"rope.scaling.factor", 4.0}});
    return describe_gguf_of("mistral3", more);
  };
  const double usual = 0.1 * std::log(4.0) + 1;
  EXPECT_DOUBLE_EQ(yarn({{"rope.scaling.yarn_log_multiplier", 1.0}}).ropes[0].attention_factor, 1);
  EXPECT_DOUBLE_EQ(yarn({{"rope.scaling.yarn_log_multiplier", 0.5}}).ropes[0].attention_factor,
                   usual / (0.05 * std::log(4.0) + 1));
  EXPECT_DOUBLE_EQ(yarn({{"rope.scaling.yarn_attn_factor", 1.5}}).ropes[0].attention_factor, 1.5);
  EXPECT_DOUBLE_EQ(yarn({{"rope.scaling.yarn_attn_factor", 0.87825}}).ropes[0].attention_factor, usual);
  EXPECT_EQ(yarn({{"rope.scaling.yarn_beta_fast", 16.0}}).ropes[0].beta_fast, 16);
  EXPECT_EQ(yarn({{"rope.scaling.yarn_beta_slow", 2.0}}).ropes[0].beta_slow, 2);
  const ModelDescription hot =
      yarn({{"attention.temperature_scale", 0.1}, {"rope.scaling.original_context_length", uint64_t{1024}}});
  EXPECT_FLOAT_EQ(hot.temperature_scale, 0.1f);
  EXPECT_EQ(hot.temperature_length, 1024u);
  EXPECT_EQ(yarn({{"attention.temperature_length", uint64_t{99}}}).temperature_length, 99u);
  EXPECT_EQ(describe_gguf_of("gemma3", {{"rope.freq_base_swa", 5000.0}}).ropes[1].theta, 5000);
  const ModelDescription two = describe_gguf_of("gemma3", {{"rope.global.freq_base", 7.0}, {"rope.local.freq_base", 5.0}});
  EXPECT_EQ(two.ropes[0].theta, 7);
  EXPECT_EQ(two.ropes[1].theta, 5);
  EXPECT_EQ(describe_gguf_of("gemma3", {}).ropes[0].theta, 1e6);
  EXPECT_EQ(describe_gguf_of("llama", {}).ropes[0].theta, 1e4);
  EXPECT_EQ(describe_gguf_of("granite", {{"attention.head_count_kv", List(6, 2)}}).layers[5].n_kv_heads, 2u);
}

TEST(Describe, KeysOfGgufThatNothingReadsAreRefused) {
  const auto refused = [](const std::string& architecture, const Values& more, const std::string& text, int line) {
    testing::expect_error(
        ErrorCode::kUnsupported, text, [&] { describe_gguf_of(architecture, more); }, __FILE__, line);
  };
  refused("llama", {{"attention.clamp_kqv", 8.0}}, "m.gguf: kpd does not know the key llama.attention.clamp_kqv", __LINE__);
  refused("llama", {{"logit_scale", 2.0}}, "llama.logit_scale", __LINE__);
  refused("qwen3", {{"rope.dimension_sections", List{8, 4, 4}}}, "qwen3.rope.dimension_sections", __LINE__);
  refused("llama", {{"rope.scaling.alpha", 2.0}}, "llama.rope.scaling.alpha", __LINE__);
  refused("llama", {{"attention.temperature_scale", 0.1}}, "llama.attention.temperature_scale", __LINE__);
  refused("llama", {{"a.new.key", std::string("on")}}, "llama.a.new.key", __LINE__);
  refused("llama", {{"rope.scaling.type", std::string("yarn")}, {"rope.scaling.yarn_ext_factor", 0.5}}, "expected 1", __LINE__);
  refused("llama", {{"attention.causal", false}}, "an embedding model", __LINE__);
  refused("qwen3", {{"pooling_type", uint64_t{3}}}, "an embedding model", __LINE__);
  refused("llama", {{"attention.value_length", uint64_t{8}}}, "values of 8 numbers a head beside keys of 16", __LINE__);
  refused("granite", {{"attention.head_count_kv", List{2, 2, 0, 2, 2, 2}}}, "granite.attention.head_count_kv differs",
          __LINE__);
  refused("llama", {{"expert_count", uint64_t{8}}, {"expert_used_count", uint64_t{2}}}, "a mixture of 8 experts", __LINE__);
  // Zeros, and what converters leave in dense models.
  for (const Values& taken :
       {Values{{"attention.clamp_kqv", 0.0}}, Values{{"a.new.key", uint64_t{0}}},
        Values{{"expert_count", uint64_t{0}}, {"expert_used_count", uint64_t{2}}}, Values{{"ssm.conv_kernel", uint64_t{4}}},
        Values{{"vision.block_count", uint64_t{4}}}, Values{{"attention.causal", true}},
        Values{{"tensor_data_layout", std::string("Meta AI original pth")}}}) {
    EXPECT_EQ(describe_gguf_of("llama", taken).layers.size(), 6u) << taken[0].first;
  }
}

TEST(Describe, WhatIsLeftOutIsNamed) {
  const auto refused = [](const std::string& architecture, const std::string& what, int line) {
    testing::expect_error(
        ErrorCode::kUnsupported, architecture + " is " + what, [&] { describe(architecture, ""); }, __FILE__, line);
  };
  for (const char* name :
       {"MixtralForCausalLM", "Qwen2MoeForCausalLM", "Qwen3MoeForCausalLM", "OlmoeForCausalLM", "PhimoeForCausalLM",
        "DeepseekV3ForCausalLM", "GptOssForCausalLM", "GraniteMoeForCausalLM", "Llama4ForConditionalGeneration"}) {
    refused(name, "a mixture of experts", __LINE__);
  }
  refused("Lfm2ForCausalLM", "a hybrid of convolutions", __LINE__);
  refused("Qwen3_5ForConditionalGeneration", "a hybrid of linear and full attention", __LINE__);
  refused("Gemma3nForConditionalGeneration", "a model with embeddings of its own", __LINE__);
  refused("MambaForCausalLM", "a state-space model", __LINE__);
  refused("Qwen2VLForConditionalGeneration", "a model for images or sound", __LINE__);
  refused("LlamaForSequenceClassification", "a classifier", __LINE__);
  for (const char* name : {"qwen3moe", "gpt-oss", "deepseek2", "llama4"}) {
    EXPECT_KPD_ERROR(kUnsupported, "a mixture of experts", describe_gguf_of(name, {}));
  }
  EXPECT_KPD_ERROR(kUnsupported, "lfm2 is a hybrid", describe_gguf_of("lfm2", {}));
  EXPECT_KPD_ERROR(kUnsupported, "a mixture of 4 experts",
                   describe("GraniteMoeHybridForCausalLM", R"("num_local_experts": 4)"));
  EXPECT_KPD_ERROR(kUnsupported, "layer_types has 'mamba' for layer 1, a hybrid",
                   describe("GraniteMoeHybridForCausalLM",
                            R"("num_local_experts": 0, "shared_intermediate_size": 96,
                               "layer_types": ["attention", "mamba", "attention", "attention", "attention", "attention"])"));
}

// transformers' classes decide what a file leaves out.
TEST(Describe, WhatTheClassTakesWhereTheFileIsSilent) {
  EXPECT_EQ(describe("MistralForCausalLM", "").layers[0].window, 4096u);
  EXPECT_EQ(describe("GemmaForCausalLM", "").layers[0].key_dim, 256u);
  EXPECT_EQ(describe("LlamaForCausalLM", "").layers[0].key_dim, 16u);
  EXPECT_EQ(describe("SmolLM3ForCausalLM", "").ropes[0].theta, 2e6);
  EXPECT_FLOAT_EQ(describe("Gemma2ForCausalLM", "").attention_softcap, 50);
  EXPECT_FLOAT_EQ(describe("Gemma2ForCausalLM", R"("attn_logit_softcapping": null)").attention_softcap, 0);
  EXPECT_FLOAT_EQ(describe("Gemma3ForCausalLM", R"("head_dim": 64)").attention_scale, 1 / 16.f);
  const auto olmo = describe("Olmo3ForCausalLM", "");
  EXPECT_EQ(olmo.layers[2].window, 4096u);
  EXPECT_EQ(olmo.layers[3].window, 0u);
  EXPECT_EQ(olmo.ropes[0].theta, 5e5);
  const auto half = describe_config(R"({"architectures": ["Mistral3ForConditionalGeneration"],
      "text_config": {"model_type": "ministral3", "num_hidden_layers": 2}})",
                                    "config.json");
  EXPECT_EQ(half.d_model, 4096u);
  EXPECT_EQ(half.layers[1].n_kv_heads, 8u);
  EXPECT_EQ(half.ropes[0].kind, RopeKind::kYarn);
  EXPECT_FLOAT_EQ(half.temperature_scale, 0.1f);
  EXPECT_EQ(half.temperature_length, 16384u);
  EXPECT_TRUE(half.text_half && half.tied_head);
}

TEST(Describe, RotationsOfLayersWithWindows) {
  // YaRN is for the layers that see everything.
  const auto olmo = describe("Olmo3ForCausalLM", R"("rope_theta": 1000, "sliding_window": 128,
      "rope_scaling": {"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 1024})");
  ASSERT_EQ(olmo.ropes.size(), 2u);
  EXPECT_EQ(olmo.ropes[0].kind, RopeKind::kYarn);
  EXPECT_EQ(olmo.ropes[1].kind, RopeKind::kDefault);
  EXPECT_EQ(olmo.ropes[1].theta, 1000);
  EXPECT_EQ(olmo.layers[0].rope, 1);
  EXPECT_EQ(olmo.layers[3].rope, 0);
  const auto gemma = describe("Gemma3ForCausalLM", R"("rope_parameters": {"full_attention": {"rope_theta": 5}})");
  EXPECT_EQ(gemma.ropes[0].theta, 5);
  EXPECT_EQ(gemma.ropes[1].theta, 10000);
  const auto qwen = describe("Qwen3ForCausalLM", R"("rope_scaling": {"rope_type": "yarn", "factor": 4, "attn_factor": 0.87825,
      "original_max_position_embeddings": 1024})");
  EXPECT_DOUBLE_EQ(qwen.ropes[0].attention_factor, 0.1 * std::log(4.0) + 1);
  const auto smol = describe("SmolLM3ForCausalLM", R"("use_sliding_window": true, "sliding_window": 128)");
  EXPECT_EQ(smol.layers[3].window, 128u);  // the one without a rotation
  EXPECT_EQ(smol.layers[4].window, 0u);
  EXPECT_EQ(describe("Phi3ForCausalLM", R"("rope_scaling": {"type": "yarn", "original_max_position_embeddings": 64,
      "short_factor": [1,1,1,1,1,1,1,1], "long_factor": [1,1,1,1,1,1,1,1]})")
                .ropes[0]
                .kind,
            RopeKind::kLongRope);
}

// transformers chooses by model_type.
TEST(Describe, FilesThatNameNoClass) {
  const auto of = [](const std::string& start) {
    return describe_config(
        start + R"(, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
        "vocab_size": 100})",
        "config.json");
  };
  EXPECT_EQ(of(R"({"model_type": "qwen2")").family, "qwen2");
  EXPECT_EQ(of(R"({"model_type": "llama", "architectures": null)").family, "llama");
  EXPECT_KPD_ERROR(kUnsupported, "mixtral is a mixture of experts", of(R"({"model_type": "mixtral")"));
  EXPECT_KPD_ERROR(kCorruptData, "architectures is missing", of(R"({"model_type": 5)"));
  EXPECT_KPD_ERROR(kCorruptData, "architectures is missing", of(R"({"model_type": "llama", "architectures": [])"));
}

// Python writes infinities that JSON has not.
TEST(Describe, InfinitiesOfPython) {
  const char* text = R"("time_step_limit": [0.0, Infinity, -Infinity, NaN], "_note": "say \"Infinity\" or NaN")";
  EXPECT_EQ(describe("LlamaForCausalLM", text).layers.size(), 6u);
  EXPECT_KPD_ERROR(kCorruptData, "rope_theta is \"Infinity\", expected a number",
                   describe("LlamaForCausalLM", R"("rope_theta": Infinity)"));
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
  EXPECT_KPD_ERROR(kCorruptData, "byte 1: not valid JSON here", describe_config("{", "config.json"));
  EXPECT_KPD_ERROR(kCorruptData, "expected an object", describe_config("[]", "config.json"));
  EXPECT_KPD_ERROR(kCorruptData, "architectures is missing", describe_config("{}", "config.json"));
}

}  // namespace
}  // namespace kpd::llm
