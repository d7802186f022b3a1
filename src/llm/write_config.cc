// llm: config.json from a description, with the keys of the family's class in transformers 5.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "kpd/base/error.h"
#include "llm/family_files.h"
#include "llm/same_network.h"

namespace kpd::llm {
namespace {

bool has_windows(const ModelDescription& d) {
  return std::any_of(d.layers.begin(), d.layers.end(), [](const auto& layer) { return layer.window != 0; });
}

// A number x near `near` of which `value` comes out by `of`: a whole one if it does.
template <class Of>
double solve(double near, float value, const Of& of) {
  for (const double x : {std::round(near), short_decimal(static_cast<float>(near)), near}) {
    if (static_cast<float>(of(x)) == value) return x;
  }
  return near;
}

// llama3's stretching behind a list of factors, where one fits to the last bit.
std::optional<RopeDescription> find_llama3(const RopeDescription& rope, size_t max_context) {
  RopeDescription guess;
  guess.kind = RopeKind::kLlama3;
  guess.theta = rope.theta;
  guess.n_rotated = rope.n_rotated;
  guess.factor = static_cast<double>(*std::max_element(rope.short_factor.begin(), rope.short_factor.end()));
  for (guess.original_context = 16; guess.original_context <= size_t{1} << 22; guess.original_context *= 2) {
    if (same_rotation(rope, guess, max_context)) return guess;
  }
  return std::nullopt;
}

io::Json rope_json(RopeDescription rope, const ModelDescription& d) {
  if (rope.kind == RopeKind::kDefault && !rope.short_factor.empty()) {
    if (const auto llama3 = find_llama3(rope, d.max_context)) {
      rope = *llama3;
    } else {  // lists of factors that are the same in every context
      rope.kind = RopeKind::kLongRope;
      rope.long_factor = rope.short_factor;
      if (rope.original_context == 0) rope.original_context = d.max_context;
    }
  }
  io::Json json = {{"rope_type", rope_kind_name(rope.kind)}, {"rope_theta", rope.theta}};
  if (rope.n_rotated != d.layers.front().key_dim) {
    double part = static_cast<double>(rope.n_rotated) / static_cast<double>(d.layers.front().key_dim);
    while (static_cast<size_t>(static_cast<double>(d.layers.front().key_dim) * part) < rope.n_rotated)
      part = std::nextafter(part, 1.0);
    json["partial_rotary_factor"] = part;
  }
  if (rope.kind == RopeKind::kDefault) return json;
  if (rope.kind != RopeKind::kLongRope) json["factor"] = rope.factor;
  if (rope.kind == RopeKind::kLlama3 || rope.kind == RopeKind::kYarn || rope.kind == RopeKind::kLongRope)
    json["original_max_position_embeddings"] = rope.original_context;
  if (rope.kind == RopeKind::kLlama3) {
    json["low_freq_factor"] = rope.low_freq_factor;
    json["high_freq_factor"] = rope.high_freq_factor;
  }
  if (rope.kind == RopeKind::kYarn) {
    json["beta_fast"] = rope.beta_fast;
    json["beta_slow"] = rope.beta_slow;
    if (!rope.truncate) json["truncate"] = false;
    if (rope.attention_factor != yarn_magnitude(rope.factor, 1)) json["attention_factor"] = rope.attention_factor;
  }
  if (rope.kind == RopeKind::kLongRope) {
    const auto list = [](const std::vector<float>& values) {
      io::Json out = io::Json::array();
      for (const float v : values) out.push_back(short_decimal(v));
      return out;
    };
    json["short_factor"] = list(rope.short_factor);
    json["long_factor"] = list(rope.long_factor);
    json["attention_factor"] = rope.attention_factor;
  }
  return json;
}

void put_ropes(const ModelDescription& d, const Family& family, io::Json& json) {
  if (family.two_ropes) {
    RopeDescription local;
    local.n_rotated = d.layers.front().key_dim;
    local.theta = d.ropes[0].theta;
    if (d.ropes.size() > 1) local = d.ropes[1];
    json["rope_parameters"] = {{"full_attention", rope_json(d.ropes[0], d)}, {"sliding_attention", rope_json(local, d)}};
    return;
  }
  json["rope_parameters"] = rope_json(d.ropes[0], d);
  if (family.temperature) json["rope_parameters"]["llama_4_scaling_beta"] = short_decimal(d.temperature_scale);
  // Its class has the key at the top too.
  if (d.family == "phi3")
    json["original_max_position_embeddings"] = json["rope_parameters"].value("original_max_position_embeddings", d.max_context);
}

void put_windows(const ModelDescription& d, const Family& family, io::Json& json) {
  size_t window = 0, first = d.layers.size();
  for (size_t i = d.layers.size(); i-- > 0;) {
    if (d.layers[i].window == 0) continue;
    window = d.layers[i].window;
    first = i;
  }
  const bool optional = family.windows == WindowRule::kOptional || family.windows == WindowRule::kUnrotated;
  if (optional) json["use_sliding_window"] = window != 0;
  if (family.windows == WindowRule::kOptional) json["max_window_layers"] = first;
  if (family.windows == WindowRule::kUnrotated) {
    for (const LayerDescription& layer : d.layers) json["no_rope_layers"].push_back(layer.rope < 0 ? 0 : 1);
  }
  if (family.windows != WindowRule::kNone) {
    json["sliding_window"] = nullptr;
    if (window != 0) json["sliding_window"] = window;
    // Classes that take a number only.
    const bool always = family.windows == WindowRule::kAlternate || family.windows == WindowRule::kPattern;
    if (window == 0 && always) json["sliding_window"] = family.defaults.window;
  }
  if (!family.layer_types) return;
  for (const LayerDescription& layer : d.layers)
    json["layer_types"].push_back(layer.window != 0 ? "sliding_attention" : "full_attention");
}

void put_scales(const ModelDescription& d, const Family& family, io::Json& json) {
  if (family.defaults.query_scalar != 0) {
    const double scale = static_cast<double>(d.attention_scale);
    const double scalar = solve(1 / (scale * scale), d.attention_scale, [](double x) { return 1 / std::sqrt(x); });
    json["query_pre_attn_scalar"] = scalar;
    // Its class takes integers only as such.
    if (scalar == std::round(scalar)) json["query_pre_attn_scalar"] = static_cast<uint64_t>(scalar);
    const auto cap = [](float value) { return value == 0 ? io::Json() : io::Json(short_decimal(value)); };
    json["attn_logit_softcapping"] = cap(d.attention_softcap);
    json["final_logit_softcapping"] = cap(d.logit_softcap);
  }
  if (!family.multipliers) return;
  json["embedding_multiplier"] = short_decimal(d.embedding_scale);
  json["attention_multiplier"] = short_decimal(d.attention_scale);
  json["residual_multiplier"] = short_decimal(d.residual_scale);
  json["logits_scaling"] = solve(1 / static_cast<double>(d.logit_scale), d.logit_scale, [](double x) { return 1 / x; });
}

// What Granite 4's class asks for of its other layers and of experts, of which a dense model has none.
void put_hybrid(const ModelDescription& d, io::Json& json) {
  json["shared_intermediate_size"] = d.layers.front().d_ff;
  json["num_local_experts"] = 0;
  json["num_experts_per_tok"] = 0;
  json["position_embedding_type"] = nullptr;
  if (!d.layers.empty() && d.layers[0].rope >= 0) json["position_embedding_type"] = "rope";
  json["mamba_n_heads"] = d.layers.front().n_heads;
  json["mamba_d_head"] = 2 * d.d_model / d.layers.front().n_heads;
}

}  // namespace

double short_decimal(float value) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof(text), value).ptr;
  double out = static_cast<double>(value);
  std::from_chars(text, end, out);
  return out;
}

const Family& written_family(const ModelDescription& d) {
  std::string name = d.family;
  // GGUF has one name for each of these pairs.
  const bool rotated = std::any_of(d.layers.begin(), d.layers.end(), [](const auto& layer) { return layer.rope >= 0; });
  if (name == "granite" && !rotated) name = "granite4";
  if (name == "olmo2" && has_windows(d)) name = "olmo3";
  return family_by_name(name);
}

io::Json write_config(const ModelDescription& d) {
  const Family& family = written_family(d);
  io::Json json = {{"architectures", {family.architecture}},
                   {"model_type", family.model_type},
                   {"num_hidden_layers", d.layers.size()},
                   {"hidden_size", d.d_model},
                   {"num_attention_heads", d.layers.front().n_heads},
                   {"num_key_value_heads", d.layers.front().n_kv_heads},
                   {"intermediate_size", d.layers.front().d_ff},
                   {"vocab_size", d.n_vocabulary},
                   {"max_position_embeddings", d.max_context},
                   {"rms_norm_eps", short_decimal(d.norm_eps)},
                   {"tie_word_embeddings", d.tied_head}};
  if (family.defaults.head_dim != 0 || d.layers.front().key_dim * d.layers.front().n_heads != d.d_model)
    json["head_dim"] = d.layers.front().key_dim;
  const bool of_its_own = family.defaults.query_scalar != 0;
  json[of_its_own ? "hidden_activation" : "hidden_act"] = d.activation == Activation::kSilu ? "silu" : "gelu_pytorch_tanh";
  if (family.attention_bias) json["attention_bias"] = d.o_bias;
  if (family.mlp_bias) json["mlp_bias"] = d.mlp_bias;
  put_windows(d, family, json);
  put_scales(d, family, json);
  put_ropes(d, family, json);
  if (family.shared_mlp) put_hybrid(d, json);
  return json;
}

}  // namespace kpd::llm
