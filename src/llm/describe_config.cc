// llm: config.json of a Hugging Face checkpoint, as transformers 4 (rope_theta, rope_scaling) and 5 (rope_parameters, per layer
// type) write it.
#include <cmath>
#include <set>
#include <string>

#include "kpd/base/error.h"
#include "kpd/base/limits.h"
#include "kpd/llm/model_description.h"
#include "llm/config_object.h"
#include "llm/families.h"

namespace kpd::llm {
namespace {

RopeKind rope_kind(const std::string& name, const ConfigObject& config) {
  if (name == "su") return RopeKind::kLongRope;  // its first name, in Phi-3's early files
  for (const RopeKind kind :
       {RopeKind::kDefault, RopeKind::kLinear, RopeKind::kDynamic, RopeKind::kLlama3, RopeKind::kYarn, RopeKind::kLongRope}) {
    if (name == rope_kind_name(kind)) return kind;
  }
  fail(ErrorCode::kUnsupported, config.file(), ": the rope type '", name.substr(0, 60),
       "' is unknown; kpd knows default, linear, dynamic, llama3, yarn, longrope");
}

void read_yarn(const ConfigObject& scaling, RopeDescription& rope) {
  rope.beta_fast = scaling.real("beta_fast", 32);
  rope.beta_slow = scaling.real("beta_slow", 1);
  rope.truncate = scaling.boolean("truncate", true);
  const double m = scaling.real("mscale", 0), m_all = scaling.real("mscale_all_dim", 0);
  rope.attention_factor = scaling.real(
      "attention_factor", m != 0 && m_all != 0 ? yarn_magnitude(rope.factor, m) / yarn_magnitude(rope.factor, m_all)
                                               : yarn_magnitude(rope.factor, 1));
}

void read_longrope(const ConfigObject& scaling, size_t max_context, RopeDescription& rope) {
  rope.short_factor = scaling.reals("short_factor");
  rope.long_factor = scaling.reals("long_factor");
  // The factor follows from the two contexts where it is not given.
  rope.factor = scaling.real("factor", static_cast<double>(max_context) / static_cast<double>(rope.original_context));
  rope.attention_factor = scaling.real(
      "attention_factor",
      rope.factor <= 1 ? 1.0 : std::sqrt(1 + std::log(rope.factor) / std::log(static_cast<double>(rope.original_context))));
}

// One rope from `scaling` (rope_scaling, rope_parameters or a part of it), null for none; `top` is the whole model.
// `head` is the width of a query's head.
RopeDescription read_rope(const ConfigObject& top, const ConfigObject* scaling, double theta, size_t head,
                          const ModelDescription& d) {
  RopeDescription rope;
  rope.theta = scaling != nullptr ? scaling->real("rope_theta", theta) : theta;
  double part = top.real("partial_rotary_factor", 1);
  if (scaling != nullptr) part = scaling->real("partial_rotary_factor", part);
  if (!(part > 0) || part > 1)
    (scaling != nullptr && scaling->has("partial_rotary_factor") ? *scaling : top)
        .wrong("partial_rotary_factor", "more than 0, at most 1");
  rope.n_rotated = static_cast<size_t>(static_cast<double>(head) * part);
  if (scaling == nullptr) return rope;
  // transformers reads those of the type and passes over the others; attn_factor is another program's.
  scaling->known({"factor", "original_max_position_embeddings", "attention_factor", "attn_factor", "beta_fast", "beta_slow",
                  "truncate", "mscale", "mscale_all_dim", "short_factor", "long_factor", "low_freq_factor", "high_freq_factor",
                  "finetuned", "max_position_embeddings"});
  rope.kind = rope_kind(scaling->text("rope_type", scaling->text("type", "default")), top);
  if (d.family == "phi3" && rope.kind == RopeKind::kYarn) rope.kind = RopeKind::kLongRope;  // what its early files mean
  if (rope.kind == RopeKind::kDefault) return rope;
  if (rope.kind != RopeKind::kLongRope) rope.factor = scaling->real("factor");
  rope.original_context =
      scaling->size("original_max_position_embeddings", top.size("original_max_position_embeddings", d.max_context));
  if (rope.original_context == 0) scaling->wrong("original_max_position_embeddings", "more than 0");
  if (rope.kind == RopeKind::kLlama3) {
    rope.low_freq_factor = scaling->real("low_freq_factor");
    rope.high_freq_factor = scaling->real("high_freq_factor");
    if (!(rope.high_freq_factor > rope.low_freq_factor) || !(rope.low_freq_factor > 0))
      scaling->wrong("high_freq_factor", "more than low_freq_factor");
  }
  if (rope.kind == RopeKind::kYarn) read_yarn(*scaling, rope);
  if (rope.kind == RopeKind::kLongRope) read_longrope(*scaling, d.max_context, rope);
  // transformers stretches by what lies beyond the configured context.
  if (rope.kind == RopeKind::kDynamic) rope.original_context = d.max_context;
  return rope;
}

// Ministral 3: queries grow with the number of original contexts before them.
void read_temperature(const ConfigObject& scaling, const Family& family, ModelDescription& d) {
  if (!family.temperature) return;
  d.temperature_scale = static_cast<float>(scaling.real("llama_4_scaling_beta", 0));
  d.temperature_length = d.ropes[0].original_context;
  if (d.temperature_scale != 0 && d.temperature_length == 0) scaling.missing("original_max_position_embeddings", "an integer");
}

// The rotation of the layers with a window, of families that have one for them.
RopeDescription read_local_rope(const ConfigObject& top, double theta, size_t head, const ModelDescription& d) {
  return read_rope(top, nullptr, d.family == "gemma3" ? top.real("rope_local_base_freq", 1e4) : theta, head, d);
}

// Rope 0 is that of full attention, rope 1, if there is one, that of the layers with a window.
void read_ropes(const ConfigObject& top, const Family& family, size_t head, ModelDescription& d) {
  top.known({"original_max_position_embeddings", "rope_local_base_freq"});
  const double theta = top.real("rope_theta", family.defaults.theta);
  const char* key = top.filled("rope_scaling") ? "rope_scaling" : "rope_parameters";
  if (!top.filled(key)) {
    const io::Json usual = *family.defaults.rope != 0 ? io::Json::parse(family.defaults.rope) : io::Json();
    std::set<std::string> asked;
    const ConfigObject scaling(usual, top.file(), asked);
    d.ropes.push_back(read_rope(top, usual.is_null() ? nullptr : &scaling, theta, head, d));
    if (!usual.is_null()) read_temperature(scaling, family, d);
  } else if (top.holds_objects(key)) {
    const ConfigObject parts = top.object(key);
    for (const char* part_key : {"full_attention", "sliding_attention"}) {
      if (parts.has(part_key)) {
        const ConfigObject part = parts.object(part_key);
        d.ropes.push_back(read_rope(top, &part, theta, head, d));
      } else if (!family.two_ropes) {
        parts.missing(part_key, "an object");
      } else {
        d.ropes.push_back(d.ropes.empty() ? read_rope(top, nullptr, theta, head, d) : read_local_rope(top, theta, head, d));
      }
    }
  } else {
    const ConfigObject scaling = top.object(key);
    d.ropes.push_back(read_rope(top, &scaling, theta, head, d));
    read_temperature(scaling, family, d);
  }
  if (family.two_ropes && d.ropes.size() == 1) d.ropes.push_back(read_local_rope(top, theta, head, d));
  for (LayerDescription& layer : d.layers) {
    if (layer.rope >= 0) layer.rope = layer.window != 0 && d.ropes.size() > 1 ? 1 : 0;
  }
}

void read_layer_types(const ConfigObject& top, size_t window, ModelDescription& d) {
  const io::Json& types = top.list("layer_types", d.layers.size());
  for (size_t i = 0; i < d.layers.size(); ++i) {
    if (!types[i].is_string()) top.wrong("layer_types", "a list of strings");
    const auto& type = types[i].get_ref<const std::string&>();
    const bool sliding = type == "sliding_attention";
    if (!sliding && type != "full_attention" && type != "attention") {
      fail(ErrorCode::kUnsupported, top.file(), ": layer_types has '", type.substr(0, 60), "' for layer ", i,
           ", a hybrid; kpd knows full_attention and sliding_attention");
    }
    if (sliding && window == 0) top.missing("sliding_window", "an integer");
    d.layers[i].window = sliding ? window : 0;
  }
}

void read_windows(const ConfigObject& top, const Family& family, ModelDescription& d) {
  // Of null there is no window; where the file does not say, the class does.
  size_t window = top.mentions("sliding_window") ? top.size("sliding_window", 0) : family.defaults.window;
  const bool used = top.boolean("use_sliding_window", false);
  const size_t first = top.size("max_window_layers", 28);
  const size_t pattern = top.size("sliding_window_pattern", family.pattern);
  if (pattern == 0) top.wrong("sliding_window_pattern", "more than 0");
  if (top.has("layer_types")) return read_layer_types(top, window, d);
  if (family.shared_mlp) top.missing("layer_types", "a list with attention for every layer");
  if ((family.windows == WindowRule::kOptional || family.windows == WindowRule::kUnrotated) && !used) window = 0;
  set_windows(d, family.windows, window, first, pattern);
}

void read_unrotated(const ConfigObject& top, const Family& family, ModelDescription& d) {
  if (family.shared_mlp && top.text("position_embedding_type", "") != "rope") {
    for (LayerDescription& layer : d.layers) layer.rope = -1;
  }
  if (!family.unrotated_layers) return;
  const size_t interval = top.size("no_rope_layer_interval", 4);
  if (interval == 0) top.wrong("no_rope_layer_interval", "more than 0");
  if (top.has("no_rope_layers")) {
    const io::Json& list = top.list("no_rope_layers", d.layers.size());
    for (size_t i = 0; i < d.layers.size(); ++i) {
      if (list[i] == 0) d.layers[i].rope = -1;
    }
    return;
  }
  for (size_t i = interval - 1; i < d.layers.size(); i += interval) d.layers[i].rope = -1;
}

void read_activation(const ConfigObject& top, ModelDescription& d) {
  top.known({"hidden_act"});
  const bool gemma = d.activation == Activation::kGeluTanh, of_its_own = top.has("hidden_activation");
  const std::string name = top.text(of_its_own ? "hidden_activation" : "hidden_act", gemma ? "gelu_pytorch_tanh" : "silu");
  if (name == "silu" || name == "swish") {
    d.activation = Activation::kSilu;
  } else if (name == "gelu_pytorch_tanh" || (name == "gelu" && gemma && !of_its_own)) {
    // Gemma's early files say hidden_act: gelu and mean its tanh form.
    d.activation = Activation::kGeluTanh;
  } else {
    fail(ErrorCode::kUnsupported, top.file(), ": the activation '", name.substr(0, 60),
         "' is unknown; kpd knows silu and gelu_pytorch_tanh");
  }
}

float read_softcap(const ConfigObject& top, const char* key, double usual) {
  return static_cast<float>(top.mentions(key) ? top.real(key, 0) : usual);
}

void read_attention(const ConfigObject& top, const Family& family, size_t head, ModelDescription& d) {
  const bool bias = top.boolean("attention_bias", false);
  if (!d.qkv_bias) d.qkv_bias = d.o_bias = bias;
  d.mlp_bias = top.boolean("mlp_bias", false);
  const double usual = family.defaults.query_scalar != 0 ? family.defaults.query_scalar : static_cast<double>(head);
  const double divisor = top.real("query_pre_attn_scalar", usual);
  if (!(divisor > 0)) top.wrong("query_pre_attn_scalar", "more than 0");
  d.attention_scale = static_cast<float>(1.0 / std::sqrt(divisor));
  d.attention_softcap = read_softcap(top, "attn_logit_softcapping", family.defaults.attention_softcap);
  d.logit_softcap = read_softcap(top, "final_logit_softcapping", family.defaults.logit_softcap);
  if (family.scaled_embedding) d.embedding_scale = static_cast<float>(std::sqrt(static_cast<double>(d.d_model)));
  if (!family.multipliers) return;
  d.embedding_scale = static_cast<float>(top.real("embedding_multiplier", 1));
  d.attention_scale = static_cast<float>(top.real("attention_multiplier", 1));
  d.residual_scale = static_cast<float>(top.real("residual_multiplier", 1));
  d.logit_scale = static_cast<float>(1.0 / top.real("logits_scaling", 1));
}

void refuse_quantized(const ConfigObject& top) {
  for (const char* key : {"quantization_config", "quantization", "compression_config"}) {
    if (!top.filled(key)) continue;
    std::string method;
    if (top.is_object(key)) method = top.object(key).text("quant_method", "");
    fail(ErrorCode::kUnsupported, top.file(), ": ", key, ": the weights are quantized", method.empty() ? "" : " by ",
         method.substr(0, 60), "; kpd reads safetensors of F32, F16 and BF16, and GGUF");
  }
}

void read_experts(const ConfigObject& top, const Family& family) {
  refuse_experts(top.size("num_local_experts", family.shared_mlp ? 8 : 0), top.file());
  for (const char* key : {"num_experts", "n_routed_experts", "moe_num_experts"}) refuse_experts(top.size(key, 0), top.file());
}

// Gives the layer that all of them are like.
LayerDescription read_sizes(const ConfigObject& top, const Family& family, bool text_half, ModelDescription& d) {
  const FamilyDefaults& usual = family.defaults;
  const auto size = [&](const char* key, size_t otherwise) {
    return text_half && otherwise != 0 ? top.size(key, otherwise) : top.size(key);
  };
  const size_t n_layers = size("num_hidden_layers", usual.n_layers);
  if (n_layers > 4096) top.wrong("num_hidden_layers", "at most 4096");
  d.d_model = size("hidden_size", usual.d_model);
  LayerDescription layer;
  layer.n_heads = size("num_attention_heads", usual.n_heads);
  if (layer.n_heads == 0) top.wrong("num_attention_heads", "more than 0");
  layer.n_kv_heads = top.size("num_key_value_heads", text_half && usual.n_kv_heads != 0 ? usual.n_kv_heads : layer.n_heads);
  layer.key_dim = top.size("head_dim", usual.head_dim != 0 ? usual.head_dim : d.d_model / layer.n_heads);
  layer.value_dim = layer.key_dim;
  layer.d_ff = size("intermediate_size", usual.d_ff);
  if (family.shared_mlp) layer.d_ff = top.size("shared_intermediate_size");
  set_layers(d, n_layers, layer);
  d.n_vocabulary = size("vocab_size", usual.n_vocabulary);
  d.max_context = top.size("max_position_embeddings", usual.context);
  d.norm_eps = static_cast<float>(top.real("rms_norm_eps", usual.norm_eps));
  return layer;
}

// All but the heads' being tied.
ModelDescription read_model(const ConfigObject& top, const Family& family, bool text_half) {
  refuse_quantized(top);
  read_experts(top, family);
  ModelDescription d = describe_family(family);
  d.shared_mlp = family.shared_mlp;
  d.text_half = text_half;
  const size_t head = read_sizes(top, family, text_half, d).key_dim;
  read_attention(top, family, head, d);
  read_activation(top, d);
  read_unrotated(top, family, d);
  read_windows(top, family, d);
  read_ropes(top, family, head, d);
  return d;
}

// The model's class; empty where only model_type tells, as it does for transformers.
std::string read_architecture(const io::Json& top, std::string_view file) {
  const auto it = top.find("architectures");
  if (it != top.end() && it->is_array() && !it->empty() && it->front().is_string()) return it->front().get<std::string>();
  if (it == top.end() || it->is_null()) {
    if (const auto type = top.find("model_type"); type != top.end() && type->is_string()) return "";
  }
  fail(ErrorCode::kCorruptData, file, ": architectures is missing, expected a list with the name of the model's class");
}

// Files that say the rotation in both spellings may only say the same.
void unify_rope(io::Json& model, std::string_view file) {
  const auto scaling = model.find("rope_scaling"), parameters = model.find("rope_parameters");
  if (scaling == model.end() || parameters == model.end() || !scaling->is_object() || !parameters->is_object()) return;
  if (scaling->empty() || parameters->empty()) return;
  io::Json a = *scaling, b = *parameters;
  for (const char* key : {"rope_theta", "partial_rotary_factor"}) {
    a.erase(key);
    b.erase(key);
  }
  if (a != b) fail(ErrorCode::kUnsupported, file, ": rope_scaling and rope_parameters say different things");
  model.erase("rope_scaling");
}

// Python writes numbers that JSON has not; as texts they are wrong where a number is read, and harmless where none is.
std::string quote_python_numbers(std::string_view text) {
  std::string quoted;
  bool in_text = false;
  for (size_t at = 0; at < text.size(); ++at) {
    if (in_text && text[at] == '\\' && at + 1 < text.size()) {
      quoted += text[at++];
    } else if (text[at] == '"') {
      in_text = !in_text;
    } else if (!in_text) {
      for (const std::string_view word :
           {std::string_view("-Infinity"), std::string_view("Infinity"), std::string_view("NaN")}) {
        if (!text.substr(at).starts_with(word)) continue;
        quoted += str('"', word, '"');
        at += word.size();
        break;
      }
      if (at >= text.size()) break;
    }
    quoted += text[at];
  }
  return quoted;
}

}  // namespace

ModelDescription describe_config(std::string_view json, std::string_view name) {
  const bool python = json.size() <= Limits{}.max_header_bytes &&
                      (json.find("Infinity") != std::string_view::npos || json.find("NaN") != std::string_view::npos);
  io::Json parsed =
      python ? io::parse_json(quote_python_numbers(json), std::string(name)) : io::parse_json(json, std::string(name));
  if (!parsed.is_object()) fail(ErrorCode::kCorruptData, name, ": expected an object");
  const std::string architecture = read_architecture(parsed, name);
  std::set<std::string> asked;
  std::string_view usual_half;
  const bool text_half = is_composite(architecture, usual_half);
  if (text_half && parsed.contains("text_config") && parsed["text_config"].is_object()) unify_rope(parsed["text_config"], name);
  if (!text_half) unify_rope(parsed, name);
  const ConfigObject whole(parsed, name, asked);
  const ConfigObject top = text_half ? whole.object("text_config") : whole;
  if (text_half) refuse_quantized(whole);
  const Family& family = text_half || architecture.empty()
                             ? family_of_model_type(top.text("model_type", std::string(usual_half)), name)
                             : family_of_architecture(architecture, name);
  ModelDescription d = read_model(top, family, text_half);
  d.tied_head = top.boolean("tie_word_embeddings", family.tied);
  // The whole model ties them unless it says otherwise.
  if (text_half && whole.boolean("tie_word_embeddings", true)) d.tied_head = true;
  whole.refuse_unknown();
  check_description(d, name);
  return d;
}

}  // namespace kpd::llm
