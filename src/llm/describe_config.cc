// llm: config.json of a Hugging Face checkpoint, as transformers 4 (rope_theta, rope_scaling) and 5 (rope_parameters, per layer
// type) write it.
#include <cmath>

#include "kpd/base/error.h"
#include "kpd/llm/model_description.h"
#include "llm/families.h"
#include "llm/json.h"

namespace kpd::llm {
namespace {

// An object of the file with typed access; every refusal names file and key.
class Config {
 public:
  Config(const Json& object, std::string_view file, std::string prefix = "")
      : object_(object), file_(file), prefix_(std::move(prefix)) {}

  std::string_view file() const { return file_; }
  bool has(const char* key) const {
    const auto it = object_.find(key);
    return it != object_.end() && !it->is_null();
  }
  size_t size(const char* key) const {
    if (!has(key)) missing(key, "a whole number");
    const Json& v = object_[key];
    if (!v.is_number_unsigned()) wrong(key, "a whole number");
    return v.get<size_t>();
  }
  size_t size(const char* key, size_t otherwise) const { return has(key) ? size(key) : otherwise; }
  double real(const char* key) const {
    if (!has(key)) missing(key, "a number");
    const Json& v = object_[key];
    if (!v.is_number() || !std::isfinite(v.get<double>())) wrong(key, "a number");
    return v.get<double>();
  }
  double real(const char* key, double otherwise) const { return has(key) ? real(key) : otherwise; }
  bool boolean(const char* key, bool otherwise) const {
    if (!has(key)) return otherwise;
    if (!object_[key].is_boolean()) wrong(key, "true or false");
    return object_[key].get<bool>();
  }
  std::string text(const char* key, const std::string& otherwise) const {
    if (!has(key)) return otherwise;
    if (!object_[key].is_string()) wrong(key, "text");
    return object_[key].get<std::string>();
  }
  Config object(const char* key) const {
    if (!object_[key].is_object()) wrong(key, "an object");
    return {object_[key], file_, str(prefix_, key, ".")};
  }
  bool holds_objects(const char* key) const {
    return object_[key].is_object() && !object_[key].empty() && object_[key].begin()->is_object();
  }
  const Json& list(const char* key, size_t n) const {
    const Json& v = object_[key];
    if (!v.is_array() || (n != 0 && v.size() != n)) wrong(key, n != 0 ? str("a list of ", n) : "a list");
    return v;
  }
  std::vector<float> reals(const char* key) const {
    if (!has(key)) missing(key, "a list of numbers");
    std::vector<float> values;
    for (const Json& v : list(key, 0)) {
      if (!v.is_number() || !(v.get<double>() > 0)) wrong(key, "a list of positive numbers");
      values.push_back(v.get<float>());
    }
    return values;
  }
  [[noreturn]] void wrong(const char* key, const std::string& expected) const {
    // The value may stand in another part of the file.
    const auto it = object_.find(key);
    std::string text = it == object_.end() ? "not as it should be" : it->dump(-1, ' ', true, Json::error_handler_t::replace);
    if (text.size() > 60) text = text.substr(0, 60) + "...";
    fail(ErrorCode::kCorruptData, file_, ": ", prefix_, key, " is ", text, ", expected ", expected);
  }
  [[noreturn]] void missing(const char* key, const char* expected) const {
    fail(ErrorCode::kCorruptData, file_, ": ", prefix_, key, " is missing, expected ", expected);
  }

 private:
  const Json& object_;
  std::string_view file_;
  std::string prefix_;
};

RopeKind rope_kind(const std::string& name, const Config& config) {
  if (name == "su") return RopeKind::kLongRope;  // its first name, in Phi-3's early files
  for (const RopeKind kind :
       {RopeKind::kDefault, RopeKind::kLinear, RopeKind::kDynamic, RopeKind::kLlama3, RopeKind::kYarn, RopeKind::kLongRope}) {
    if (name == rope_kind_name(kind)) return kind;
  }
  fail(ErrorCode::kUnsupported, config.file(), ": the rope type '", name.substr(0, 60),
       "' is unknown; kpd knows default, linear, dynamic, llama3, yarn, longrope");
}

void read_yarn(const Config& scaling, RopeDescription& rope) {
  rope.beta_fast = scaling.real("beta_fast", 32);
  rope.beta_slow = scaling.real("beta_slow", 1);
  rope.truncate = scaling.boolean("truncate", true);
  const auto magnitude = [&](double m) { return rope.factor <= 1 ? 1.0 : 0.1 * m * std::log(rope.factor) + 1.0; };
  const double m = scaling.real("mscale", 0), m_all = scaling.real("mscale_all_dim", 0);
  rope.attention_factor =
      scaling.real("attention_factor", m != 0 && m_all != 0 ? magnitude(m) / magnitude(m_all) : magnitude(1));
}

void read_longrope(const Config& scaling, size_t max_context, RopeDescription& rope) {
  rope.short_factor = scaling.reals("short_factor");
  rope.long_factor = scaling.reals("long_factor");
  // The factor follows from the two contexts where it is not given.
  rope.factor = scaling.real("factor", static_cast<double>(max_context) / static_cast<double>(rope.original_context));
  rope.attention_factor = scaling.real(
      "attention_factor",
      rope.factor <= 1 ? 1.0 : std::sqrt(1 + std::log(rope.factor) / std::log(static_cast<double>(rope.original_context))));
}

// One rope from `scaling` (rope_scaling, rope_parameters or a part of it), null for none; `top` is the whole file.
RopeDescription read_rope(const Config& top, const Config* scaling, double theta, const ModelDescription& d) {
  RopeDescription rope;
  rope.theta = scaling != nullptr ? scaling->real("rope_theta", theta) : theta;
  double part = top.real("partial_rotary_factor", 1);
  if (scaling != nullptr) part = scaling->real("partial_rotary_factor", part);
  if (!(part > 0) || part > 1)
    (scaling != nullptr && scaling->has("partial_rotary_factor") ? *scaling : top)
        .wrong("partial_rotary_factor", "more than 0, at most 1");
  rope.n_rotated = static_cast<size_t>(static_cast<double>(d.head_dim) * part);
  if (scaling == nullptr) return rope;
  rope.kind = rope_kind(scaling->text("rope_type", scaling->text("type", "default")), top);
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

// Rope 0 is that of full attention, rope 1, if there is one, that of the layers with a window.
void read_ropes(const Config& top, const Family& family, ModelDescription& d) {
  const double theta = top.real("rope_theta", std::string_view(family.name) == "gemma3" ? 1e6 : 1e4);
  const bool both = top.has("rope_parameters") && top.holds_objects("rope_parameters");
  if (both) {
    const Config parts = top.object("rope_parameters");
    for (const char* key : {"full_attention", "sliding_attention"}) {
      if (!parts.has(key)) parts.missing(key, "an object");
      const Config part = parts.object(key);
      d.ropes.push_back(read_rope(top, &part, theta, d));
    }
  } else if (top.has("rope_parameters") || top.has("rope_scaling")) {
    const Config scaling = top.object(top.has("rope_parameters") ? "rope_parameters" : "rope_scaling");
    d.ropes.push_back(read_rope(top, &scaling, theta, d));
  } else {
    d.ropes.push_back(read_rope(top, nullptr, theta, d));
  }
  if (std::string_view(family.name) == "gemma3" && !both) {
    d.ropes.push_back(read_rope(top, nullptr, top.real("rope_local_base_freq", 1e4), d));
  }
  for (LayerDescription& layer : d.layers) layer.rope = layer.window != 0 && d.ropes.size() > 1 ? 1 : 0;
}

void read_layer_types(const Config& top, size_t window, ModelDescription& d) {
  const Json& types = top.list("layer_types", d.n_layers);
  for (size_t i = 0; i < d.n_layers; ++i) {
    const bool sliding = types[i] == "sliding_attention";
    if (!sliding && types[i] != "full_attention")
      top.wrong("layer_types", "full_attention or sliding_attention for each layer");
    if (sliding && window == 0) top.missing("sliding_window", "a whole number");
    d.layers[i].window = sliding ? window : 0;
  }
}

void read_windows(const Config& top, const Family& family, ModelDescription& d) {
  size_t window = top.size("sliding_window", 0);
  if (top.has("layer_types")) return read_layer_types(top, window, d);
  if (family.windows == WindowRule::kOptional && !top.boolean("use_sliding_window", false)) window = 0;
  const size_t pattern = top.size("sliding_window_pattern", 6);
  if (pattern == 0) top.wrong("sliding_window_pattern", "more than 0");
  set_windows(d, family.windows, window, top.size("max_window_layers", 28), pattern);
}

void read_unrotated(const Config& top, ModelDescription& d) {
  if (top.has("no_rope_layers")) {
    const Json& list = top.list("no_rope_layers", d.n_layers);
    for (size_t i = 0; i < d.n_layers; ++i) {
      if (list[i] == 0) d.layers[i].rope = -1;
    }
    return;
  }
  const size_t interval = top.size("no_rope_layer_interval", 4);
  if (interval == 0) top.wrong("no_rope_layer_interval", "more than 0");
  for (size_t i = interval - 1; i < d.n_layers; i += interval) d.layers[i].rope = -1;
}

void read_activation(const Config& top, ModelDescription& d) {
  const char* key = top.has("hidden_activation") ? "hidden_activation" : "hidden_act";
  const std::string name = top.text(key, d.activation == Activation::kSilu ? "silu" : "gelu_pytorch_tanh");
  if (name == "silu" || name == "swish") {
    d.activation = Activation::kSilu;
  } else if (name == "gelu_pytorch_tanh") {
    d.activation = Activation::kGeluTanh;
  } else if (name == "gelu" && d.activation == Activation::kGeluTanh) {
    // Gemma's early files say gelu and mean its tanh form.
    d.activation = Activation::kGeluTanh;
  } else {
    fail(ErrorCode::kUnsupported, top.file(), ": the activation '", name.substr(0, 60),
         "' is unknown; kpd knows silu and gelu_pytorch_tanh");
  }
}

void read_attention(const Config& top, ModelDescription& d) {
  if (!d.qkv_bias) d.qkv_bias = d.o_bias = top.boolean("attention_bias", false);
  d.mlp_bias = top.boolean("mlp_bias", false);
  const double divisor = top.real("query_pre_attn_scalar", static_cast<double>(d.head_dim));
  if (!(divisor > 0)) top.wrong("query_pre_attn_scalar", "more than 0");
  d.attention_scale = static_cast<float>(1.0 / std::sqrt(divisor));
  d.attention_softcap = static_cast<float>(top.real("attn_logit_softcapping", 0));
  d.logit_softcap = static_cast<float>(top.real("final_logit_softcapping", 0));
}

const Family& read_family(const Json& top, std::string_view file) {
  const auto it = top.find("architectures");
  if (it == top.end() || !it->is_array() || it->empty() || !it->front().is_string()) {
    fail(ErrorCode::kCorruptData, file, ": architectures is missing, expected a list with the name of the model's class");
  }
  return family_of_architecture(it->front().get<std::string>(), file);
}

}  // namespace

ModelDescription describe_config(std::string_view json, std::string_view name) {
  const Json parsed = parse_json(json, std::string(name));
  if (!parsed.is_object()) fail(ErrorCode::kCorruptData, name, ": expected an object");
  const Family& family = read_family(parsed, name);
  const Config top(parsed, name);
  ModelDescription d = describe_family(family);
  d.n_layers = top.size("num_hidden_layers");
  d.d_model = top.size("hidden_size");
  d.n_heads = top.size("num_attention_heads");
  d.n_kv_heads = top.size("num_key_value_heads", d.n_heads);
  if (d.n_heads == 0) top.wrong("num_attention_heads", "more than 0");
  d.head_dim = top.size("head_dim", d.d_model / d.n_heads);
  d.d_ff = top.size("intermediate_size");
  d.n_vocabulary = top.size("vocab_size");
  d.max_context = top.size("max_position_embeddings", 2048);
  d.norm_eps = static_cast<float>(top.real("rms_norm_eps", 1e-6));
  d.tied_head = top.boolean("tie_word_embeddings", family.tied);
  if (family.scaled_embedding) d.embedding_scale = static_cast<float>(std::sqrt(static_cast<double>(d.d_model)));
  if (d.n_layers > 4096) top.wrong("num_hidden_layers", "at most 4096");
  d.layers.resize(d.n_layers);
  read_attention(top, d);
  read_activation(top, d);
  read_windows(top, family, d);
  read_ropes(top, family, d);
  if (family.unrotated_layers) read_unrotated(top, d);
  check_description(d, name);
  return d;
}

}  // namespace kpd::llm
