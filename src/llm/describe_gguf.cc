// llm: the description from a GGUF file's metadata. What such files leave to the program that reads them (which layers have a
// window, which are not rotated, Gemma's scale) follows from the family.
#include <cmath>

#include "kpd/base/error.h"
#include "kpd/io/gguf.h"
#include "kpd/llm/model_description.h"
#include "llm/families.h"

namespace kpd::llm {
namespace {

class Keys {
 public:
  Keys(const io::GgufMetadata& metadata, std::string prefix) : metadata_(metadata), prefix_(std::move(prefix)) {}
  bool has(const char* key) const { return metadata_.find(prefix_ + key) != nullptr; }
  size_t size(const char* key) const { return metadata_.number(prefix_ + key); }
  size_t size(const char* key, size_t otherwise) const { return has(key) ? size(key) : otherwise; }
  double real(const char* key) const { return metadata_.real(prefix_ + key); }
  double real(const char* key, double otherwise) const { return has(key) ? real(key) : otherwise; }
  std::string text(const char* key, const char* otherwise) const {
    return has(key) ? metadata_.text(prefix_ + key) : otherwise;
  }

 private:
  const io::GgufMetadata& metadata_;
  std::string prefix_;
};

// The older key is that of files of before 2023-11; 0 means that nothing is stretched.
double scaling_factor(const Keys& keys) {
  const double factor = keys.real("rope.scaling.factor", keys.real("rope.scale_linear", 0));
  return factor == 0 ? 1 : factor;
}

RopeDescription read_rope(const Keys& keys, const ModelDescription& d, const std::string& file) {
  RopeDescription rope;
  rope.theta = keys.real("rope.freq_base", 10000);
  rope.n_rotated = keys.size("rope.dimension_count", d.head_dim);
  // Where a file names no type, llama.cpp takes it for linear.
  const std::string type = keys.text("rope.scaling.type", "linear");
  if (type == "none") {
    rope.kind = RopeKind::kDefault;
  } else if (type == "linear") {
    rope.factor = scaling_factor(keys);
    rope.kind = rope.factor == 1 ? RopeKind::kDefault : RopeKind::kLinear;
  } else if (type == "yarn") {
    rope.kind = RopeKind::kYarn;
  } else if (type == "longrope") {
    rope.kind = RopeKind::kLongRope;
  } else {
    fail(ErrorCode::kUnsupported, file, ": the rope type '", type.substr(0, 60),
         "' is unknown; kpd knows none, linear, yarn, longrope");
  }
  rope.original_context = keys.size("rope.scaling.original_context_length", d.max_context);
  // It counts for every type: a converted Phi-3 has this factor and longrope's tensors, but names no type.
  rope.attention_factor = keys.real("rope.scaling.attn_factor", 1);
  if (rope.kind == RopeKind::kYarn) {
    rope.factor = scaling_factor(keys);
    if (rope.factor > 1) rope.attention_factor *= 0.1 * std::log(rope.factor) + 1;
  }
  return rope;
}

// The largest model of both Gemma families scales by the width per head instead of the head's width.
double gemma_scale(const ModelDescription& d) {
  const bool largest = (d.family == "gemma2" && d.n_layers == 46) || (d.family == "gemma3" && d.n_layers == 62);
  return 1.0 / std::sqrt(static_cast<double>(largest ? d.d_model / d.n_heads : d.head_dim));
}

void read_layers(const Keys& keys, const Family& family, ModelDescription& d) {
  d.layers.resize(d.n_layers);
  // Early files of Gemma 2 leave out its window.
  set_windows(d, family.windows == WindowRule::kOptional ? WindowRule::kNone : family.windows,
              keys.size("attention.sliding_window", d.family == "gemma2" ? 4096 : 0), 0, 6);
  for (size_t i = 0; i < d.n_layers; ++i) {
    if (d.ropes.size() > 1 && d.layers[i].window != 0) d.layers[i].rope = 1;
    if (family.unrotated_layers && i % 4 == 3) d.layers[i].rope = -1;
  }
}

}  // namespace

ModelDescription describe_gguf(const io::GgufMetadata& metadata) {
  const std::string& architecture = metadata.text("general.architecture");
  const Family& family = family_of_gguf(architecture, metadata.name);
  const Keys keys(metadata, architecture + ".");
  ModelDescription d = describe_family(family);
  d.norm_plus_one = false;  // added in by the converter
  d.interleaved_qk = family.interleaved_gguf;
  d.n_layers = keys.size("block_count");
  d.d_model = keys.size("embedding_length");
  d.n_heads = keys.size("attention.head_count");
  d.n_kv_heads = keys.size("attention.head_count_kv", d.n_heads);
  if (d.n_heads == 0 || d.n_layers > 4096)
    fail(ErrorCode::kCorruptData, metadata.name, ": ", d.n_layers, " layers of ", d.n_heads, " heads");
  d.head_dim = keys.size("attention.key_length", d.d_model / d.n_heads);
  d.d_ff = keys.size("feed_forward_length");
  d.n_vocabulary = keys.has("vocab_size") ? keys.size("vocab_size") : metadata.texts("tokenizer.ggml.tokens").size();
  d.max_context = keys.size("context_length");
  d.norm_eps = static_cast<float>(keys.real("attention.layer_norm_rms_epsilon"));
  d.tied_head = true;  // a file with a head of its own has the tensor
  const bool gemma = family.scaled_embedding;
  if (gemma) d.embedding_scale = static_cast<float>(std::sqrt(static_cast<double>(d.d_model)));
  d.attention_scale = static_cast<float>(gemma ? gemma_scale(d) : 1.0 / std::sqrt(static_cast<double>(d.head_dim)));
  if (d.family == "gemma2") {
    d.attention_softcap = static_cast<float>(keys.real("attn_logit_softcapping", 50));
    d.logit_softcap = static_cast<float>(keys.real("final_logit_softcapping", 30));
  }
  d.ropes.push_back(read_rope(keys, d, metadata.name));
  if (d.family == "gemma3") {
    RopeDescription local;
    local.n_rotated = d.ropes[0].n_rotated;
    d.ropes.push_back(local);
  }
  read_layers(keys, family, d);
  check_description(d, metadata.name);
  return d;
}

}  // namespace kpd::llm
