// llm: what a checkpoint's configuration says about the network, in plain data. One forward pass (model.h) is driven by it; a
// family of models is a row in the table of src/llm/families.cc that fills it in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kpd::io {
class GgufMetadata;
class Weights;
}  // namespace kpd::io

namespace kpd::llm {

// How rotary angles are stretched for long contexts (transformers, modeling_rope_utils).
enum class RopeKind { kDefault, kLinear, kDynamic, kLlama3, kYarn, kLongRope };
const char* rope_kind_name(RopeKind kind);  // "default", "linear", ...

struct RopeDescription {
  RopeKind kind = RopeKind::kDefault;
  double theta = 10000;
  size_t n_rotated = 0;                              // leading values of a head that are rotated; even
  double factor = 1;                                 // linear, dynamic, llama3, yarn, longrope
  size_t original_context = 0;                       // llama3, yarn, longrope, dynamic: context before stretching
  double low_freq_factor = 1, high_freq_factor = 4;  // llama3
  double beta_fast = 32, beta_slow = 1;              // yarn
  bool truncate = true;                              // yarn: bounds of the ramp are integers
  double attention_factor = 1;                       // yarn, longrope: cos and sin are multiplied by it
  std::vector<float> short_factor, long_factor;      // longrope, [n_rotated / 2]; GGUF's rope_freqs too
};

enum class Activation { kSilu, kGeluTanh };

// What a layer consists of. Each half adds its output to the hidden state.
enum class LayerKind { kAttentionAndMlp, kAttention, kMlp };

struct LayerDescription {
  LayerKind kind = LayerKind::kAttentionAndMlp;
  size_t source = 0;  // index of the layer in the file whose tensors these are
  size_t n_heads = 0, n_kv_heads = 0;
  size_t key_dim = 0, value_dim = 0;  // of a head: queries and keys, values
  size_t d_ff = 0;                    // width of the MLP
  size_t window = 0;                  // a token sees itself and the window - 1 before it; 0: all before it
  int rope = 0;                       // index into ropes; -1: not rotated

  friend bool operator==(const LayerDescription&, const LayerDescription&) = default;
  bool has_attention() const { return kind != LayerKind::kMlp; }
  bool has_mlp() const { return kind != LayerKind::kAttention; }
  size_t query_width() const { return n_heads * key_dim; }  // of a token, all heads
  size_t key_width() const { return n_kv_heads * key_dim; }
  size_t value_width() const { return n_kv_heads * value_dim; }
  size_t attended_width() const { return n_heads * value_dim; }
};

inline constexpr size_t kMaxContext = size_t{1} << 30;

struct ModelDescription {
  std::string family;  // "llama", "qwen2", ...
  size_t d_model = 0, n_vocabulary = 0;
  size_t max_context = 0;  // at most kMaxContext
  float norm_eps = 1e-5f;
  bool text_half = false;      // of a model for images too, whose other tensors stand beside
  bool norm_plus_one = false;  // the stored norm weight w means 1 + w
  bool tied_head = false;      // the head is the embedding, if the file has no head of its own
  bool qkv_bias = false, o_bias = false, mlp_bias = false;
  bool qk_norm = false;         // RMS norm of each head's query and key before the rotation
  bool qk_norm_whole = false;   // that norm is one of all heads together
  bool pre_norms = true;        // attention and the MLP read normed values
  bool post_norms = false;      // the outputs of attention and of the MLP are normed before they are added
  bool fused_qkv = false;       // the file holds q, k, v in one matrix
  bool fused_gate_up = false;   // gate and up in one
  bool shared_mlp = false;      // the file calls the MLP shared_mlp
  bool interleaved_qk = false;  // the file's q and k rows are permuted for a rotation of neighbours (GGUF's llama)
  float embedding_scale = 1;
  float residual_scale = 1;  // of what attention and the MLP add
  float logit_scale = 1;
  float attention_scale = 0;    // of q k
  float attention_softcap = 0;  // 0: none; else s -> cap tanh(s / cap)
  float temperature_scale = 0;  // queries at position p are multiplied by 1 + it * ln(1 + floor(p / temperature_length))
  size_t temperature_length = 0;
  float logit_softcap = 0;
  Activation activation = Activation::kSilu;
  // In the order in which they run. The readers below describe all layers of a file, layer i from source i; who leaves some
  // out, moves or repeats them edits this list (LoadOptions::edit_layers), while n_file_layers stays.
  std::vector<LayerDescription> layers;
  size_t n_file_layers = 0;
  std::vector<RopeDescription> ropes;
};

// Three numbers name a layer: its index in ModelDescription::layers ("layer"), in the file (LayerDescription::source), and in
// the cache, which knows only the layers with attention. This is the layer index of each layer of the cache, ascending.
std::vector<size_t> layers_of_cache(const ModelDescription& description);

// From the text of a Hugging Face config.json, in its old and its transformers-5 spelling; of a model for text and images its
// text half. `name` is the file, for errors. Throws Error(kUnsupported) for an architecture, an activation or a rope kind that
// kpd does not know, listing those it knows, and for a key that nothing reads and that may change results; Error(kCorruptData)
// for missing or impossible values.
ModelDescription describe_config(std::string_view json, std::string_view name);

// From a GGUF file's metadata; the same errors. tied_head: unless the file has a head of its own.
ModelDescription describe_gguf(const io::GgufMetadata& metadata);

// Of opened weights: their GGUF metadata, or the config.json of their folder; none if there is neither. tied_head is what the
// tensors say. Throws as the two above, Error(kIo).
std::optional<ModelDescription> describe_weights(const io::Weights& weights);

// Names of the families, sorted as in the table.
std::vector<std::string> family_names();

// [n_rotated / 2] radians per position, and the factor on cos and sin, for a context of n_positions (dynamic and longrope
// depend on it).
struct RopeFrequencies {
  std::vector<float> radians;
  float attention_factor = 1;
};
RopeFrequencies rope_frequencies(const RopeDescription& rope, size_t n_positions);
// The context of those that have the same frequencies as n_positions.
size_t rope_context(const RopeDescription& rope, size_t n_positions);

}  // namespace kpd::llm
