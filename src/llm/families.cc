// llm: the table of families. A family that differs from Llama only in what stands here is a row, and its golden test
// (tests/golden/make_models.py).
#include "llm/families.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "kpd/base/ascii.h"
#include "kpd/base/error.h"
#include "kpd/text/tokenizer.h"

namespace kpd::llm {
namespace {

// SmolLM, SmolLM2, TinyLlama, Falcon 3 and many others are "llama" in their files.
constexpr std::array<Family, 15> kFamilies = {{
    {.name = "llama",
     .architecture = "LlamaForCausalLM",
     .gguf = "llama",
     .model_type = "llama",
     .interleaved_gguf = true,
     .gguf_like_llama = true,
     .attention_bias = true,
     .mlp_bias = true},
    // Mistral's GGUF files call themselves llama.
    {.name = "mistral",
     .architecture = "MistralForCausalLM",
     .gguf = "mistral",
     .model_type = "mistral",
     .interleaved_gguf = true,
     .windows = WindowRule::kAll,
     .defaults = {.window = 4096,
                  .context = 131072,
                  .n_layers = 32,
                  .d_model = 4096,
                  .n_heads = 32,
                  .n_kv_heads = 8,
                  .d_ff = 14336,
                  .n_vocabulary = 32000},
     .written_gguf = "llama",
     .gguf_like_llama = true},
    {.name = "ministral",
     .architecture = "MinistralForCausalLM",
     .gguf = "",
     .model_type = "ministral",
     .windows = WindowRule::kAll,
     .defaults = {.window = 4096,
                  .context = 131072,
                  .n_layers = 32,
                  .d_model = 4096,
                  .n_heads = 32,
                  .n_kv_heads = 8,
                  .d_ff = 14336,
                  .n_vocabulary = 32000},
     .written_gguf = "llama",
     .gguf_like_llama = true,
     .layer_types = true},
    {.name = "ministral3",
     .architecture = "Ministral3ForCausalLM",
     .gguf = "mistral3",
     .model_type = "ministral3",
     .interleaved_gguf = true,
     .temperature = true,
     .windows = WindowRule::kAll,
     .defaults = {.norm_eps = 1e-5,
                  .head_dim = 128,
                  .context = 262144,
                  .n_layers = 34,
                  .d_model = 4096,
                  .n_heads = 32,
                  .n_kv_heads = 8,
                  .d_ff = 14336,
                  .n_vocabulary = 131072,
                  .rope = R"({"rope_type": "yarn", "rope_theta": 1e6, "factor": 16, "original_max_position_embeddings": 16384,
                              "mscale": 1, "mscale_all_dim": 1, "llama_4_scaling_beta": 0.1})"},
     .gguf_like_llama = true},
    {.name = "smollm3",
     .architecture = "SmolLM3ForCausalLM",
     .gguf = "smollm3",
     .model_type = "smollm3",
     .interleaved_gguf = true,
     .unrotated_layers = true,
     .tied = true,
     .windows = WindowRule::kUnrotated,
     .defaults = {.theta = 2e6, .context = 32768},
     .attention_bias = true,
     .mlp_bias = true,
     .layer_types = true},
    {.name = "qwen2",
     .architecture = "Qwen2ForCausalLM",
     .gguf = "qwen2",
     .model_type = "qwen2",
     .qkv_bias = true,
     .windows = WindowRule::kOptional,
     .defaults = {.window = 4096, .context = 32768},
     .gguf_plain_heads = true,
     .layer_types = true},
    {.name = "qwen3",
     .architecture = "Qwen3ForCausalLM",
     .gguf = "qwen3",
     .model_type = "qwen3",
     .qk_norm = true,
     .windows = WindowRule::kOptional,
     .defaults = {.head_dim = 128, .window = 4096, .context = 32768},
     .attention_bias = true,
     .layer_types = true},
    {.name = "gemma",
     .architecture = "GemmaForCausalLM",
     .gguf = "gemma",
     .model_type = "gemma",
     .norm_plus_one = true,
     .scaled_embedding = true,
     .tied = true,
     .activation = Activation::kGeluTanh,
     .defaults = {.head_dim = 256, .context = 8192},
     .gguf_head = HeadInGguf::kNever,
     .attention_bias = true},
    {.name = "gemma2",
     .architecture = "Gemma2ForCausalLM",
     .gguf = "gemma2",
     .model_type = "gemma2",
     .post_norms = true,
     .norm_plus_one = true,
     .scaled_embedding = true,
     .tied = true,
     .windows = WindowRule::kAlternate,
     .activation = Activation::kGeluTanh,
     .defaults =
         {.head_dim = 256, .window = 4096, .context = 8192, .query_scalar = 256, .attention_softcap = 50, .logit_softcap = 30},
     .gguf_windows = true,
     .gguf_head = HeadInGguf::kNever,
     .attention_bias = true,
     .layer_types = true},
    {.name = "gemma3",
     .architecture = "Gemma3ForCausalLM",
     .gguf = "gemma3",
     .model_type = "gemma3_text",
     .qk_norm = true,
     .post_norms = true,
     .norm_plus_one = true,
     .scaled_embedding = true,
     .two_ropes = true,
     .tied = true,
     .windows = WindowRule::kPattern,
     .activation = Activation::kGeluTanh,
     .defaults = {.theta = 1e6,
                  .head_dim = 256,
                  .window = 4096,
                  .context = 131072,
                  .query_scalar = 256,
                  .n_layers = 26,
                  .d_model = 2304,
                  .n_heads = 8,
                  .n_kv_heads = 4,
                  .d_ff = 9216,
                  .n_vocabulary = 262208},
     .gguf_windows = true,
     .attention_bias = true,
     .layer_types = true},
    {.name = "phi3",
     .architecture = "Phi3ForCausalLM",
     .gguf = "phi3",
     .model_type = "phi3",
     .fused_qkv = true,
     .fused_gate_up = true,
     .windows = WindowRule::kAll,
     .defaults = {.norm_eps = 1e-5, .context = 4096},
     .gguf_plain_heads = true,
     .gguf_windows = true},
    {.name = "granite",
     .architecture = "GraniteForCausalLM",
     .gguf = "granite",
     .model_type = "granite",
     .multipliers = true,
     .interleaved_gguf = true,
     .gguf_like_llama = true,
     .attention_bias = true,
     .mlp_bias = true},
    // The dense ones of Granite 4; their GGUF files are those of granite.
    {.name = "granite4",
     .architecture = "GraniteMoeHybridForCausalLM",
     .gguf = "",
     .model_type = "granitemoehybrid",
     .multipliers = true,
     .fused_gate_up = true,
     .shared_mlp = true,
     .written_gguf = "granite",
     .gguf_like_llama = true,
     .attention_bias = true,
     .layer_types = true},
    // GGUF's olmo2 are OLMo 2 and 3; those of OLMo 3 have windows.
    {.name = "olmo2",
     .architecture = "Olmo2ForCausalLM",
     .gguf = "olmo2",
     .model_type = "olmo2",
     .qk_norm = true,
     .qk_norm_whole = true,
     .pre_norms = false,
     .post_norms = true,
     .windows = WindowRule::kNone,
     .pattern = 4,
     .defaults = {.norm_eps = 1e-5},
     .gguf_plain_heads = true,
     .gguf_head = HeadInGguf::kNeeded,
     .attention_bias = true},
    {.name = "olmo3",
     .architecture = "Olmo3ForCausalLM",
     .gguf = "",
     .model_type = "olmo3",
     .qk_norm = true,
     .qk_norm_whole = true,
     .pre_norms = false,
     .post_norms = true,
     .two_ropes = true,
     .windows = WindowRule::kPattern,
     .pattern = 4,
     .defaults = {.norm_eps = 1e-5, .theta = 5e5, .window = 4096},
     .written_gguf = "olmo2",
     .gguf_plain_heads = true,
     .gguf_windows = true,
     .gguf_window_list = true,
     .gguf_head = HeadInGguf::kNeeded,
     .attention_bias = true,
     .layer_types = true},
}};

// What other models are, by a part of their class's or their file's name in lower case; the first that fits.
struct LeftOut {
  std::string_view part, what;
};
constexpr std::array<LeftOut, 39> kLeftOut = {{
    {"moe", "a mixture of experts"},
    {"mixtral", "a mixture of experts"},
    {"deepseek", "a mixture of experts with latent attention"},
    {"gptoss", "a mixture of experts"},
    {"gpt-oss", "a mixture of experts"},
    {"llama4", "a mixture of experts"},
    {"dbrx", "a mixture of experts"},
    {"arctic", "a mixture of experts"},
    {"grok", "a mixture of experts"},
    {"minimax", "a mixture of experts"},
    {"kimi", "a mixture of experts"},
    {"mistral4", "a mixture of experts"},
    {"dots1", "a mixture of experts"},
    {"lfm2", "a hybrid of convolutions and attention"},
    {"qwen3next", "a hybrid of linear and full attention"},
    {"qwen3_5", "a hybrid of linear and full attention"},
    {"qwen35", "a hybrid of linear and full attention"},
    {"hybrid", "a hybrid of state spaces and attention"},
    {"jamba", "a hybrid of state spaces and attention"},
    {"zamba", "a hybrid of state spaces and attention"},
    {"bamba", "a hybrid of state spaces and attention"},
    {"falconh1", "a hybrid of state spaces and attention"},
    {"falcon-h1", "a hybrid of state spaces and attention"},
    {"nemotronh", "a hybrid of state spaces and attention"},
    {"nemotron_h", "a hybrid of state spaces and attention"},
    {"mamba", "a state-space model"},
    {"rwkv", "a recurrent model"},
    {"gemma3n", "a model with embeddings of its own in every layer"},
    {"gemma-embedding", "an embedding model"},
    {"bert", "an encoder"},
    {"t5", "an encoder and decoder"},
    {"bart", "an encoder and decoder"},
    {"whisper", "a speech model"},
    {"clip", "an image encoder"},
    {"forsequenceclassification", "a classifier"},
    {"fortokenclassification", "a classifier"},
    {"forconditionalgeneration", "a model for images or sound beside text whose text half kpd does not know"},
    {"qwen2vl", "a model for images and text whose text half kpd does not know"},
    {"qwen3vl", "a model for images and text whose text half kpd does not know"},
}};

const Family& find_family(std::string_view architecture, std::string_view file, const char* Family::*name) {
  std::string known;
  for (const Family& family : kFamilies) {
    const std::string_view candidate = family.*name;
    if (candidate.empty()) continue;
    if (architecture == candidate) return family;
    known += str(known.empty() ? "" : ", ", candidate);
  }
  const std::string low = ascii_lower(architecture.substr(0, 80));
  for (const LeftOut& other : kLeftOut) {
    if (low.find(other.part) != std::string::npos) {
      fail(ErrorCode::kUnsupported, file, ": ", architecture.substr(0, 80), " is ", other.what, "; kpd reads ", known);
    }
  }
  fail(ErrorCode::kUnsupported, file, ": the architecture '", architecture.substr(0, 80), "' is unknown; kpd reads ", known);
}

struct Composite {
  std::string_view architecture, usual;
};
constexpr std::array<Composite, 2> kComposites = {
    {{"Gemma3ForConditionalGeneration", "gemma3_text"}, {"Mistral3ForConditionalGeneration", "mistral"}}};

}  // namespace

const Family& family_of_architecture(std::string_view architecture, std::string_view file) {
  return find_family(architecture, file, &Family::architecture);
}

const Family& family_of_gguf(std::string_view architecture, std::string_view file) {
  return find_family(architecture, file, &Family::gguf);
}

bool is_composite(std::string_view architecture, std::string_view& usual) {
  for (const Composite& composite : kComposites) {
    if (composite.architecture != architecture) continue;
    usual = composite.usual;
    return true;
  }
  return false;
}

const Family& family_of_model_type(std::string_view model_type, std::string_view file) {
  return find_family(model_type, file, &Family::model_type);
}

const Family& family_by_name(std::string_view name) {
  const auto* const found = std::find_if(kFamilies.begin(), kFamilies.end(), [&](const Family& f) { return f.name == name; });
  if (found == kFamilies.end()) fail(ErrorCode::kInternal, "the family ", name, " is none of the table");
  return *found;
}

const char* gguf_architecture(const Family& family) { return *family.written_gguf != 0 ? family.written_gguf : family.gguf; }

void refuse_experts(uint64_t n_experts, std::string_view file) {
  if (n_experts == 0) return;
  fail(ErrorCode::kUnsupported, file, ": a mixture of ", n_experts, " experts, which kpd does not run");
}

std::vector<std::string> family_names() {
  std::vector<std::string> names;
  for (const Family& family : kFamilies) names.emplace_back(family.name);
  return names;
}

ModelDescription describe_family(const Family& family) {
  ModelDescription d;
  d.family = family.name;
  d.norm_plus_one = family.norm_plus_one;
  d.qkv_bias = family.qkv_bias;
  d.qk_norm = family.qk_norm;
  d.qk_norm_whole = family.qk_norm_whole;
  d.pre_norms = family.pre_norms;
  d.post_norms = family.post_norms;
  d.fused_qkv = family.fused_qkv;
  d.fused_gate_up = family.fused_gate_up;
  d.activation = family.activation;
  return d;
}

void set_layers(ModelDescription& d, size_t n, const LayerDescription& layer) {
  d.layers.assign(n, layer);
  for (size_t i = 0; i < n; ++i) d.layers[i].source = i;
  d.n_file_layers = n;
}

std::vector<size_t> layers_of_cache(const ModelDescription& description) {
  std::vector<size_t> layers;
  for (size_t i = 0; i < description.layers.size(); ++i) {
    if (description.layers[i].has_attention()) layers.push_back(i);
  }
  return layers;
}

double yarn_magnitude(double factor, double m) { return factor <= 1 ? 1.0 : 0.1 * m * std::log(factor) + 1.0; }

void set_windows(ModelDescription& d, WindowRule rule, size_t window, size_t first, size_t pattern) {
  for (size_t i = 0; i < d.layers.size(); ++i) {
    const bool on = rule == WindowRule::kAll || (rule == WindowRule::kOptional && i >= first) ||
                    (rule == WindowRule::kUnrotated && d.layers[i].rope < 0) ||
                    (rule == WindowRule::kAlternate && i % 2 == 0) || (rule == WindowRule::kPattern && (i + 1) % pattern != 0);
    d.layers[i].window = on ? window : 0;
  }
}

namespace {

void check_size(size_t value, size_t limit, const char* what, std::string_view file) {
  if (value == 0 || value > limit) fail(ErrorCode::kCorruptData, file, ": ", what, " is ", value, ", expected 1 to ", limit);
}

void check_layer(const ModelDescription& d, size_t index, std::string_view file) {
  const LayerDescription& layer = d.layers[index];
  check_size(layer.n_heads, 65536, "the number of heads", file);
  check_size(layer.n_kv_heads, layer.n_heads, "the number of key-value heads", file);
  check_size(layer.key_dim, 4096, "the width of a head", file);
  check_size(layer.value_dim, 4096, "the width of a head's values", file);
  check_size(layer.d_ff, size_t{1} << 22, "the width of the MLP", file);
  if (layer.n_heads % layer.n_kv_heads != 0) {
    fail(ErrorCode::kCorruptData, file, ": ", layer.n_heads, " heads cannot share ", layer.n_kv_heads,
         " key-value heads evenly");
  }
  if (layer.value_dim != layer.key_dim) {
    fail(ErrorCode::kUnsupported, file, ": values of ", layer.value_dim, " numbers a head beside keys of ", layer.key_dim,
         "; kpd knows equal ones");
  }
  if (layer.source >= d.n_file_layers) {
    fail(ErrorCode::kInvalidArgument, file, ": layer ", index, " is to be layer ", layer.source, " of a file of ",
         d.n_file_layers);
  }
  if (layer.rope >= static_cast<int>(d.ropes.size()))
    fail(ErrorCode::kInvalidArgument, file, ": layer ", index, " has the rotation ", layer.rope, " of ", d.ropes.size());
}

void check_rope(const RopeDescription& rope, size_t head, std::string_view file) {
  if (rope.n_rotated == 0 || rope.n_rotated % 2 != 0 || rope.n_rotated > head) {
    fail(ErrorCode::kCorruptData, file, ": ", rope.n_rotated, " rotated values of a head of ", head,
         ", expected an even number up to it");
  }
  if (!(rope.theta > 0) || !(rope.theta < 1e15)) fail(ErrorCode::kCorruptData, file, ": the rotation's base is ", rope.theta);
  if (!(rope.factor > 0) || !(rope.factor < 1e6))
    fail(ErrorCode::kCorruptData, file, ": the rotation's factor is ", rope.factor);
  for (const auto& factors : {rope.short_factor, rope.long_factor}) {
    if (!factors.empty() && factors.size() != rope.n_rotated / 2) {
      fail(ErrorCode::kCorruptData, file, ": ", factors.size(), " factors of the rotation, expected ", rope.n_rotated / 2);
    }
  }
}

}  // namespace

void check_description(const ModelDescription& d, std::string_view file) {
  check_size(d.layers.size(), 4096, "the number of layers", file);
  check_size(d.d_model, size_t{1} << 20, "the width of the model", file);
  for (size_t i = 0; i < d.layers.size(); ++i) check_layer(d, i, file);
  check_size(d.n_vocabulary, static_cast<size_t>(text::kMaxVocabulary), "the size of the vocabulary", file);
  check_size(d.max_context, kMaxContext, "the context", file);
  if (!(d.norm_eps > 0) || d.norm_eps > 1)
    fail(ErrorCode::kCorruptData, file, ": the norm's epsilon is ", d.norm_eps, ", expected 0 to 1");
  if (!(d.attention_scale > 0) || d.attention_scale > 1e6f) {
    fail(ErrorCode::kCorruptData, file, ": the scale of attention is ", d.attention_scale, ", expected more than 0");
  }
  for (const float scale : {d.embedding_scale, d.residual_scale, d.logit_scale}) {
    if (!(scale > 0) || scale > 1e6f)
      fail(ErrorCode::kCorruptData, file, ": a multiplier of ", scale, ", expected more than 0");
  }
  // Every head that a rope turns has room for it; one that turns none is still read by the loader.
  size_t narrowest = d.layers.front().key_dim;
  for (const LayerDescription& layer : d.layers) narrowest = std::min(narrowest, layer.key_dim);
  for (const RopeDescription& rope : d.ropes) check_rope(rope, narrowest, file);
}

}  // namespace kpd::llm
