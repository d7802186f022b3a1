// llm: the description from a GGUF file's metadata. What such files leave to the program that reads them (which layers have a
// window, which are not rotated, Gemma's scale) follows from the family.
#include <algorithm>
#include <cmath>
#include <set>

#include "kpd/base/error.h"
#include "kpd/io/gguf.h"
#include "kpd/llm/model_description.h"
#include "llm/families.h"
#include "llm/known_names.h"

namespace kpd::llm {
namespace {

// The keys of one architecture; it remembers which were asked for.
class Keys {
 public:
  Keys(const io::GgufMetadata& metadata, std::string prefix) : metadata_(metadata), prefix_(std::move(prefix)) {}
  const std::string& file() const { return metadata_.name; }
  bool has(const char* key) const { return value(key) != nullptr; }
  size_t size(const char* key) const { return metadata_.number(asked(key)); }
  size_t size(const char* key, size_t otherwise) const { return has(key) ? size(key) : otherwise; }
  double real(const char* key) const { return metadata_.real(asked(key)); }
  double real(const char* key, double otherwise) const { return has(key) ? real(key) : otherwise; }
  bool boolean(const char* key, bool otherwise) const { return has(key) ? metadata_.boolean(asked(key)) : otherwise; }
  std::string text(const char* key, const char* otherwise) const { return has(key) ? metadata_.text(asked(key)) : otherwise; }
  // Of every layer: one number, or a list of equal ones.
  size_t same_size(const char* key, size_t otherwise) const {
    if (!is_list(key)) return size(key, otherwise);
    const std::vector<int64_t> values = metadata_.integers(asked(key));
    for (const int64_t v : values) {
      if (v != values[0] || v < 0)
        fail(ErrorCode::kUnsupported, file(), ": ", asked(key),
             " differs between layers; kpd knows models whose layers are alike");
    }
    return values.empty() ? otherwise : static_cast<size_t>(values[0]);
  }
  bool is_list(const char* key) const {
    const io::GgufValue* v = value(key);
    return v != nullptr &&
           (std::holds_alternative<std::vector<uint64_t>>(*v) || std::holds_alternative<std::vector<int64_t>>(*v));
  }
  const io::GgufValue* value(const char* key) const { return metadata_.find(asked(key)); }

  // Throws Error(kUnsupported) for the first key of the architecture that nobody asked for and that may change results.
  void refuse_unknown() const {
    for (const auto& [key, value] : metadata_.values) {
      if (!key.starts_with(prefix_) || asked_.contains(key)) continue;
      if (is_harmless_gguf(std::string_view(key).substr(prefix_.size()), value)) continue;
      fail(ErrorCode::kUnsupported, file(), ": kpd does not know the key ", key.substr(0, 120), ", and it may change results");
    }
  }

 private:
  std::string asked(const char* key) const { return *asked_.insert(prefix_ + key).first; }

  const io::GgufMetadata& metadata_;
  std::string prefix_;
  mutable std::set<std::string> asked_;
};

// The older key is that of files of before 2023-11; 0 means that nothing is stretched.
double scaling_factor(const Keys& keys) {
  const double factor = keys.real("rope.scaling.factor", keys.real("rope.scale_linear", 0));
  return factor == 0 ? 1 : factor;
}

// llama.cpp gives YaRN's blend a weight, and scales attention by the two magnitudes of DeepSeek, of which the file has the
// second. yarn_attn_factor is what the converter found: attention_factor, which replaces the usual factor, or DeepSeek's
// attn_factor, which undoes it for programs that multiply the two; transformers and llama.cpp pass over the latter.
void read_yarn(const Keys& keys, RopeDescription& rope) {
  rope.factor = scaling_factor(keys);
  rope.beta_fast = keys.real("rope.scaling.yarn_beta_fast", 32);
  rope.beta_slow = keys.real("rope.scaling.yarn_beta_slow", 1);
  if (const double weight = keys.real("rope.scaling.yarn_ext_factor", 1); weight != 1) {
    fail(ErrorCode::kUnsupported, keys.file(), ": rope.scaling.yarn_ext_factor is ", weight, ", expected 1");
  }
  const double log_multiplier = keys.real("rope.scaling.yarn_log_multiplier", 0);
  const double usual = yarn_magnitude(rope.factor, 1) / (log_multiplier != 0 ? yarn_magnitude(rope.factor, log_multiplier) : 1);
  const double given = keys.real("rope.scaling.yarn_attn_factor", 0);
  const bool undoes = std::fabs(given * usual - 1) < 1e-3;
  rope.attention_factor *= given != 0 && !undoes ? given : usual;
}

RopeDescription read_rope(const Keys& keys, const Family& family, size_t head, const ModelDescription& d) {
  RopeDescription rope;
  // Ollama's files of Gemma 3 have names of their own for its two bases.
  rope.theta = keys.real("rope.freq_base", keys.real("rope.global.freq_base", d.family == "gemma3" ? 1e6 : 1e4));
  rope.n_rotated = keys.size("rope.dimension_count", head);
  // Where a file names no type, llama.cpp takes it for linear.
  const std::string type = keys.text("rope.scaling.type", "linear");
  if (type == "none") {
    rope.kind = RopeKind::kDefault;
    (void)scaling_factor(keys);  // has nothing to say
  } else if (type == "linear") {
    rope.factor = scaling_factor(keys);
    rope.kind = rope.factor == 1 ? RopeKind::kDefault : RopeKind::kLinear;
  } else if (type == "yarn") {
    rope.kind = RopeKind::kYarn;
  } else if (type == "longrope") {
    rope.kind = RopeKind::kLongRope;
    (void)scaling_factor(keys);
  } else {
    fail(ErrorCode::kUnsupported, keys.file(), ": the rope type '", type.substr(0, 60),
         "' is unknown; kpd knows none, linear, yarn, longrope");
  }
  rope.original_context = keys.size("rope.scaling.original_context_length", d.max_context);
  // It counts for every type: a converted Phi-3 has this factor and longrope's tensors, but names no type.
  rope.attention_factor = keys.real("rope.scaling.attn_factor", 1);
  if (rope.kind == RopeKind::kYarn) read_yarn(keys, rope);
  if (family.multipliers && !keys.boolean("rope.scaling.finetuned", true)) rope.n_rotated = 0;
  return rope;
}

// The largest model of both Gemma families scales by the width per head instead of the head's width.
double gemma_scale(const LayerDescription& layer, const ModelDescription& d) {
  const size_t n_layers = d.layers.size();
  const bool largest = (d.family == "gemma2" && n_layers == 46) || (d.family == "gemma3" && n_layers == 62);
  return 1.0 / std::sqrt(static_cast<double>(largest ? d.d_model / layer.n_heads : layer.key_dim));
}

// Which layers have the window: a list of all layers, a number of layers after which one sees everything, or the family's rule.
void read_windows(const Keys& keys, const Family& family, ModelDescription& d) {
  const char* key = "attention.sliding_window_pattern";
  // Early files of Gemma 2 leave out its window.
  const size_t window = keys.size("attention.sliding_window", d.family == "gemma2" ? 4096 : 0);
  const io::GgufValue* pattern = keys.value(key);
  if (window == 0) return;
  if (pattern != nullptr && std::holds_alternative<std::vector<bool>>(*pattern)) {
    const auto& layers = std::get<std::vector<bool>>(*pattern);
    if (layers.size() != d.layers.size())
      fail(ErrorCode::kCorruptData, keys.file(), ": ", key, " has ", layers.size(), " values, expected ", d.layers.size());
    for (size_t i = 0; i < layers.size(); ++i) d.layers[i].window = layers[i] ? window : 0;
    return;
  }
  WindowRule rule = family.windows;
  size_t period = family.pattern;
  if (pattern != nullptr) {
    rule = WindowRule::kPattern;
    period = keys.size(key);
    if (period == 0) rule = WindowRule::kAll;
  } else if (d.family == "olmo2") {
    rule = WindowRule::kPattern;  // the window makes it an OLMo 3
  } else if (rule == WindowRule::kNone || rule == WindowRule::kOptional || rule == WindowRule::kUnrotated) {
    if (window >= d.max_context) return;
    fail(ErrorCode::kUnsupported, keys.file(), ": a window of ", window, " tokens, but no ", key,
         " that says which layers have it");
  }
  set_windows(d, rule, window, 0, period);
}

void read_ropes(const Keys& keys, const Family& family, size_t head, ModelDescription& d) {
  d.ropes.push_back(read_rope(keys, family, head, d));
  const bool windows = std::any_of(d.layers.begin(), d.layers.end(), [](const auto& layer) { return layer.window != 0; });
  if (family.two_ropes || (d.family == "olmo2" && windows)) {
    RopeDescription local;
    const double usual = keys.real("rope.local.freq_base", d.family == "gemma3" ? 1e4 : d.ropes[0].theta);
    local.theta = keys.real("rope.freq_base_swa", usual);
    local.n_rotated = d.ropes[0].n_rotated;
    d.ropes.push_back(local);
  }
  for (size_t i = 0; i < d.layers.size(); ++i) {
    if (d.ropes.size() > 1 && d.layers[i].window != 0) d.layers[i].rope = 1;
    if (family.unrotated_layers && i % 4 == 3) d.layers[i].rope = -1;
  }
  if (d.ropes[0].n_rotated != 0) return;
  d.ropes[0].n_rotated = head;  // a file that says that nothing is rotated
  for (LayerDescription& layer : d.layers) layer.rope = -1;
}

void read_attention(const Keys& keys, const Family& family, const LayerDescription& layer, ModelDescription& d) {
  if (!keys.boolean("attention.causal", true) || keys.size("pooling_type", 0) != 0) {
    fail(ErrorCode::kUnsupported, keys.file(), ": an embedding model, which kpd does not run");
  }
  if (const size_t values = keys.size("attention.value_length", layer.key_dim); values != layer.key_dim) {
    fail(ErrorCode::kUnsupported, keys.file(), ": values of ", values, " numbers a head beside keys of ", layer.key_dim,
         "; kpd knows equal ones");
  }
  const bool gemma = family.scaled_embedding;
  if (gemma) d.embedding_scale = static_cast<float>(std::sqrt(static_cast<double>(d.d_model)));
  d.attention_scale = static_cast<float>(gemma ? gemma_scale(layer, d) : 1.0 / std::sqrt(static_cast<double>(layer.key_dim)));
  if (const double scale = keys.real("attention.scale", 0); scale != 0) d.attention_scale = static_cast<float>(scale);
  d.attention_softcap = static_cast<float>(keys.real("attn_logit_softcapping", family.defaults.attention_softcap));
  d.logit_softcap = static_cast<float>(keys.real("final_logit_softcapping", family.defaults.logit_softcap));
  if (!family.multipliers) return;
  // 0 means that there is none.
  const auto multiplier = [&](const char* key) {
    const double value = keys.real(key, 0);
    return static_cast<float>(value == 0 ? 1.0 : value);
  };
  d.embedding_scale = multiplier("embedding_scale");
  d.residual_scale = multiplier("residual_scale");
  d.logit_scale = 1 / multiplier("logit_scale");
}

void read_temperature(const Keys& keys, const Family& family, ModelDescription& d) {
  if (!family.temperature) return;
  d.temperature_scale = static_cast<float>(keys.real("attention.temperature_scale", 0));
  d.temperature_length = keys.size("attention.temperature_length", 0);
  if (d.temperature_length == 0) d.temperature_length = d.ropes[0].original_context;
}

// Gives the layer that all of them are like.
LayerDescription read_layers(const Keys& keys, ModelDescription& d) {
  const size_t n_layers = keys.size("block_count");
  d.d_model = keys.size("embedding_length");
  LayerDescription layer;
  layer.n_heads = keys.same_size("attention.head_count", 0);
  layer.n_kv_heads = keys.same_size("attention.head_count_kv", layer.n_heads);
  if (layer.n_heads == 0 || n_layers > 4096)
    fail(ErrorCode::kCorruptData, keys.file(), ": ", n_layers, " layers of ", layer.n_heads, " heads");
  layer.key_dim = keys.size("attention.key_length", d.d_model / layer.n_heads);
  layer.value_dim = layer.key_dim;
  layer.d_ff = keys.same_size("feed_forward_length", 0);
  set_layers(d, n_layers, layer);
  return layer;
}

}  // namespace

ModelDescription describe_gguf(const io::GgufMetadata& metadata) {
  const std::string& architecture = metadata.text("general.architecture");
  const Keys keys(metadata, architecture + ".");
  // Some mixtures of experts go by the name of their dense kin.
  refuse_experts(keys.size("expert_count", 0), metadata.name);
  const Family& family = family_of_gguf(architecture, metadata.name);
  ModelDescription d = describe_family(family);
  d.norm_plus_one = false;  // added in by the converter
  d.interleaved_qk = family.interleaved_gguf;
  const LayerDescription layer = read_layers(keys, d);
  d.n_vocabulary = keys.has("vocab_size") ? keys.size("vocab_size") : metadata.texts("tokenizer.ggml.tokens").size();
  d.max_context = keys.size("context_length");
  d.norm_eps = static_cast<float>(keys.real("attention.layer_norm_rms_epsilon"));
  d.tied_head = true;  // a file with a head of its own has the tensor
  read_attention(keys, family, layer, d);
  read_windows(keys, family, d);
  read_ropes(keys, family, layer.key_dim, d);
  read_temperature(keys, family, d);
  keys.refuse_unknown();
  check_description(d, metadata.name);
  return d;
}

}  // namespace kpd::llm
