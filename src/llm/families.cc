// llm: the table of families. A family that differs from Llama only in what stands here is a row, and its golden test
// (tests/golden/make_models.py).
#include "llm/families.h"

#include <algorithm>
#include <array>

#include "kpd/base/error.h"
#include "kpd/llm/tokenizer.h"

namespace kpd::llm {
namespace {

// SmolLM, SmolLM2 and TinyLlama are "llama" in their files.
constexpr std::array<Family, 8> kFamilies = {{
    {.name = "llama", .architecture = "LlamaForCausalLM", .gguf = "llama", .interleaved_gguf = true},
    // Mistral's GGUF files call themselves llama.
    {.name = "mistral",
     .architecture = "MistralForCausalLM",
     .gguf = "mistral",
     .interleaved_gguf = true,
     .windows = WindowRule::kAll},
    {.name = "smollm3",
     .architecture = "SmolLM3ForCausalLM",
     .gguf = "smollm3",
     .interleaved_gguf = true,
     .unrotated_layers = true,
     .tied = true,
     .windows = WindowRule::kOptional},
    {.name = "qwen2", .architecture = "Qwen2ForCausalLM", .gguf = "qwen2", .qkv_bias = true, .windows = WindowRule::kOptional},
    {.name = "qwen3", .architecture = "Qwen3ForCausalLM", .gguf = "qwen3", .qk_norm = true, .windows = WindowRule::kOptional},
    {.name = "gemma2",
     .architecture = "Gemma2ForCausalLM",
     .gguf = "gemma2",
     .post_norms = true,
     .norm_plus_one = true,
     .scaled_embedding = true,
     .tied = true,
     .windows = WindowRule::kAlternate,
     .activation = Activation::kGeluTanh},
    {.name = "gemma3",
     .architecture = "Gemma3ForCausalLM",
     .gguf = "gemma3",
     .qk_norm = true,
     .post_norms = true,
     .norm_plus_one = true,
     .scaled_embedding = true,
     .tied = true,
     .windows = WindowRule::kPattern,
     .activation = Activation::kGeluTanh},
    {.name = "phi3", .architecture = "Phi3ForCausalLM", .gguf = "phi3", .fused = true, .windows = WindowRule::kAll},
}};

const Family& find_family(std::string_view architecture, std::string_view file, const char* Family::*name) {
  std::string known;
  for (const Family& family : kFamilies) {
    if (architecture == family.*name) return family;
    known += str(known.empty() ? "" : ", ", family.*name);
  }
  fail(ErrorCode::kUnsupported, file, ": the architecture '", architecture.substr(0, 80), "' is unknown; kpd reads ", known);
}

}  // namespace

const Family& family_of_architecture(std::string_view architecture, std::string_view file) {
  return find_family(architecture, file, &Family::architecture);
}

const Family& family_of_gguf(std::string_view architecture, std::string_view file) {
  return find_family(architecture, file, &Family::gguf);
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
  d.post_norms = family.post_norms;
  d.fused = family.fused;
  d.activation = family.activation;
  return d;
}

void set_windows(ModelDescription& d, WindowRule rule, size_t window, size_t first, size_t pattern) {
  for (size_t i = 0; i < d.layers.size(); ++i) {
    const bool on = rule == WindowRule::kAll || (rule == WindowRule::kOptional && i >= first) ||
                    (rule == WindowRule::kAlternate && i % 2 == 0) || (rule == WindowRule::kPattern && (i + 1) % pattern != 0);
    d.layers[i].window = on ? window : 0;
  }
}

namespace {

void check_size(size_t value, size_t limit, const char* what, std::string_view file) {
  if (value == 0 || value > limit) fail(ErrorCode::kCorruptData, file, ": ", what, " is ", value, ", expected 1 to ", limit);
}

}  // namespace

void check_description(const ModelDescription& d, std::string_view file) {
  check_size(d.n_layers, 4096, "the number of layers", file);
  check_size(d.d_model, size_t{1} << 20, "the width of the model", file);
  check_size(d.n_heads, 65536, "the number of heads", file);
  check_size(d.n_kv_heads, d.n_heads, "the number of key-value heads", file);
  check_size(d.head_dim, 4096, "the width of a head", file);
  check_size(d.d_ff, size_t{1} << 22, "the width of the MLP", file);
  check_size(d.n_vocabulary, static_cast<size_t>(kMaxVocabulary), "the size of the vocabulary", file);
  check_size(d.max_context, size_t{1} << 30, "the context", file);
  if (d.n_heads % d.n_kv_heads != 0) {
    fail(ErrorCode::kCorruptData, file, ": ", d.n_heads, " heads cannot share ", d.n_kv_heads, " key-value heads evenly");
  }
  if (!(d.norm_eps > 0) || d.norm_eps > 1)
    fail(ErrorCode::kCorruptData, file, ": the norm's epsilon is ", d.norm_eps, ", expected 0 to 1");
  if (!(d.attention_scale > 0) || d.attention_scale > 1e6f) {
    fail(ErrorCode::kCorruptData, file, ": the scale of attention is ", d.attention_scale, ", expected more than 0");
  }
  for (const RopeDescription& rope : d.ropes) {
    if (rope.n_rotated == 0 || rope.n_rotated % 2 != 0 || rope.n_rotated > d.head_dim) {
      fail(ErrorCode::kCorruptData, file, ": ", rope.n_rotated, " rotated values of a head of ", d.head_dim,
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
}

}  // namespace kpd::llm
