// llm: the keys of a GGUF file from a description: those that llama.cpp reads of the architecture, and no others, since one
// that it passes over would be another network there.
#include <algorithm>
#include <cmath>

#include "kpd/base/error.h"
#include "llm/family_files.h"
#include "llm/same_network.h"

namespace kpd::llm {
namespace {

// `near`, or the float next to it that gives back what a reader is to compute from it; `near` if neither does.
template <class Gives>
float float_near(float near, const Gives& gives) {
  for (const float x : {near, std::nextafter(near, INFINITY), std::nextafter(near, 0.0f)}) {
    if (gives(static_cast<double>(x))) return x;
  }
  return near;
}

class NetworkKeys {
 public:
  NetworkKeys(const ModelDescription& d, const Family& family, std::string_view file)
      : d_(d), family_(family), file_(file), out_{} {
    out_.architecture = gguf_architecture(family);
  }

  GgufNetwork write() {
    put("block_count", d_.layers.size());
    put("context_length", d_.max_context);
    put("embedding_length", d_.d_model);
    put("feed_forward_length", d_.layers.front().d_ff);
    put("attention.head_count", d_.layers.front().n_heads);
    put("attention.head_count_kv", d_.layers.front().n_kv_heads);
    put("attention.key_length", d_.layers.front().key_dim);
    put("attention.value_length", d_.layers.front().key_dim);
    put_real("attention.layer_norm_rms_epsilon", static_cast<double>(d_.norm_eps));
    put("vocab_size", d_.n_vocabulary);
    if (family_.gguf_plain_heads && d_.layers.front().query_width() != d_.d_model)
      refuse("heads of another width than the model's by their number");
    if (!family_.gguf_like_llama && (d_.o_bias || d_.mlp_bias)) refuse("biases of the attention's output and of the MLP");
    put_scales();
    put_windows();
    put_ropes();
    return std::move(out_);
  }

 private:
  std::string key(const char* name) const { return str(out_.architecture, ".", name); }
  void put(const char* name, uint64_t value) { out_.keys.emplace_back(key(name), value); }
  // llama.cpp reads numbers of 32 bits.
  void put_real(const char* name, double value) {
    out_.keys.emplace_back(key(name), static_cast<double>(static_cast<float>(value)));
  }
  [[noreturn]] void refuse(const std::string& what) const {
    fail(ErrorCode::kUnsupported, file_, ": the model has ", what, ", for which GGUF's ", out_.architecture, " has no key");
  }

  void put_scales() {
    if (family_.defaults.attention_softcap != 0 && d_.attention_softcap != 0)
      put_real("attn_logit_softcapping", static_cast<double>(d_.attention_softcap));
    if (family_.defaults.query_scalar != 0 && d_.logit_softcap != 0)
      put_real("final_logit_softcapping", static_cast<double>(d_.logit_softcap));
    if (!family_.multipliers) return;
    put_real("attention.scale", static_cast<double>(d_.attention_scale));
    put_real("embedding_scale", static_cast<double>(d_.embedding_scale));
    put_real("residual_scale", static_cast<double>(d_.residual_scale));
    float scale = 1 / d_.logit_scale;
    for (const float x : {scale, std::nextafter(scale, 0.0f), std::nextafter(scale, INFINITY)}) {
      if (1 / x == d_.logit_scale) scale = x;
    }
    put_real("logit_scale", static_cast<double>(scale));
  }

  void put_windows() {
    size_t window = 0;
    std::vector<bool> layers;
    for (const LayerDescription& layer : d_.layers) {
      layers.push_back(layer.window != 0);
      window = std::max(window, layer.window);
    }
    // Qwen's, Mistral's and SmolLM3's are read by no program: without the key they are found missing.
    if (window == 0 || !family_.gguf_windows) return;
    put("attention.sliding_window", window);
    ModelDescription usual = d_;
    set_windows(usual, family_.windows, window, 0, family_.pattern);
    const auto same = [](const auto& a, const auto& b) { return a.window == b.window; };
    const bool ruled = std::equal(d_.layers.begin(), d_.layers.end(), usual.layers.begin(), usual.layers.end(), same);
    if (!ruled || family_.gguf_window_list) out_.keys.emplace_back(key("attention.sliding_window_pattern"), layers);
  }

  void put_ropes() {
    const RopeDescription& rope = d_.ropes[0];
    put("rope.dimension_count", rope.n_rotated);
    put_real("rope.freq_base", rope.theta);
    const bool windows = std::any_of(d_.layers.begin(), d_.layers.end(), [](const auto& layer) { return layer.window != 0; });
    if (d_.ropes.size() > 1 && windows && d_.ropes[1].theta != rope.theta) put_real("rope.freq_base_swa", d_.ropes[1].theta);
    put_stretching(rope);
    if (!family_.multipliers) return;
    const bool rotated = std::any_of(d_.layers.begin(), d_.layers.end(), [](const auto& layer) { return layer.rope >= 0; });
    out_.keys.emplace_back(key("rope.scaling.finetuned"), rotated);
  }

  void put_type(const char* type) { out_.keys.emplace_back(key("rope.scaling.type"), std::string(type)); }

  void put_stretching(const RopeDescription& rope) {
    switch (rope.kind) {
      case RopeKind::kDefault:
        if (!rope.short_factor.empty()) put_factors("rope_freqs.weight", rope.short_factor);
        break;
      case RopeKind::kLinear:
        put_type("linear");
        put_real("rope.scaling.factor", rope.factor);
        if (!rope.short_factor.empty()) put_factors("rope_freqs.weight", rope.short_factor);
        break;
      case RopeKind::kDynamic:
        refuse("a rotation that grows with the context (dynamic)");
      case RopeKind::kLlama3:
        put_factors("rope_freqs.weight", llama3_factors(rope));
        break;
      case RopeKind::kYarn:
        put_yarn(rope);
        break;
      case RopeKind::kLongRope:
        put_type("longrope");
        put("rope.scaling.original_context_length", rope.original_context);
        put_real("rope.scaling.attn_factor", rope.attention_factor);
        put_factors("rope_factors_long.weight", rope.long_factor);
        put_factors("rope_factors_short.weight", rope.short_factor);
        break;
    }
  }

  void put_factors(const char* name, std::vector<float> values) {
    if (!family_.gguf_like_llama && d_.family != "phi3") refuse("factors of the rotation");
    out_.factors.push_back({name, std::move(values)});
  }

  // What llama.cpp's converter writes, to the bit that gives this rotation back where a float has it.
  static std::vector<float> llama3_factors(const RopeDescription& rope) {
    RopeDescription plain;
    plain.theta = rope.theta;
    plain.n_rotated = rope.n_rotated;
    const std::vector<float> wanted = rope_frequencies(rope, 1).radians;
    std::vector<float> factors(wanted.size());
    for (size_t i = 0; i < factors.size(); ++i) {
      const double radians = 1.0 / std::pow(rope.theta, static_cast<double>(2 * i) / static_cast<double>(rope.n_rotated));
      factors[i] = float_near(static_cast<float>(radians / static_cast<double>(wanted[i])),
                              [&](double x) { return static_cast<float>(radians / x) == wanted[i]; });
    }
    return factors;
  }

  void put_yarn(const RopeDescription& rope) {
    put_type("yarn");
    put_real("rope.scaling.factor", rope.factor);
    put("rope.scaling.original_context_length", rope.original_context);
    double usual = yarn_magnitude(rope.factor, 1);
    if (family_.temperature) {
      put_real("rope.scaling.yarn_beta_fast", rope.beta_fast);
      put_real("rope.scaling.yarn_beta_slow", rope.beta_slow);
      // DeepSeek's two magnitudes undo each other.
      if (rope.attention_factor == 1) {
        put_real("rope.scaling.yarn_log_multiplier", 1);
        usual = 1;
      }
      if (d_.temperature_scale != 0) put_real("attention.temperature_scale", static_cast<double>(d_.temperature_scale));
    } else if (rope.beta_fast != 32 || rope.beta_slow != 1) {
      refuse("bounds of YaRN's ramp");
    }
    if (rope.attention_factor == usual) return;
    const float factor = float_near(static_cast<float>(rope.attention_factor / usual), [&](double x) {
      return static_cast<float>(x * usual) == static_cast<float>(rope.attention_factor);
    });
    put_real("rope.scaling.attn_factor", static_cast<double>(factor));
  }

  const ModelDescription& d_;
  const Family& family_;
  std::string_view file_;
  GgufNetwork out_;
};

}  // namespace

GgufNetwork write_gguf_network(const ModelDescription& d, std::string_view file) {
  return NetworkKeys(d, written_family(d), file).write();
}

}  // namespace kpd::llm
