// llm: the table of model families: what a family's code in transformers does that its configuration file does not say.
// Private.
#pragma once

#include <span>
#include <string_view>

#include "kpd/llm/model_description.h"

namespace kpd::llm {

// How a family chooses the layers with a window, where the file has no list of layer types.
enum class WindowRule {
  kNone,       // no layer
  kAll,        // all, if a window is given
  kOptional,   // Qwen: those from max_window_layers on, if use_sliding_window
  kUnrotated,  // SmolLM3: those without a rotation, if use_sliding_window
  kAlternate,  // Gemma 2: the first, the third ...
  kPattern,    // Gemma 3: all but every sliding_window_pattern-th
};

// What transformers' class takes where config.json has no such key. It writes every key of its own at the top of the file, but
// leaves the usual ones out of a text_config; the sizes are for those. 0: the key is needed.
struct FamilyDefaults {
  double norm_eps = 1e-6;
  double theta = 10000;
  size_t head_dim = 0;  // 0: the width by the heads
  size_t window = 0;
  size_t context = 2048;
  double query_scalar = 0;  // the scale of attention is 1 / sqrt of it; 0: of the head's width
  double attention_softcap = 0, logit_softcap = 0;
  size_t n_layers = 0, d_model = 0, n_heads = 0, n_kv_heads = 0, d_ff = 0, n_vocabulary = 0;  // of a text_config
  const char* rope = "";                                                                      // JSON of rope_parameters
};

// Whether a GGUF file has a head beside the embedding.
enum class HeadInGguf { kOptional, kNeeded, kNever };

struct Family {
  const char* name;
  const char* architecture;     // in config.json
  const char* gguf;             // general.architecture; "": llama.cpp has another name for such models
  const char* model_type = "";  // in config.json, or in the text_config of a model whose text half it is
  bool qkv_bias = false;        // always there; where false, attention_bias of config.json says
  bool qk_norm = false;
  bool qk_norm_whole = false;
  bool pre_norms = true;
  bool post_norms = false;
  bool norm_plus_one = false;     // in Hugging Face files; GGUF has the 1 added in
  bool scaled_embedding = false;  // by sqrt(d_model)
  bool multipliers = false;       // Granite's, of embedding, attention, residuals and logits
  bool fused_qkv = false;
  bool fused_gate_up = false;
  bool shared_mlp = false;  // Granite 4's names of the MLP; position_embedding_type says whether it rotates
  bool interleaved_gguf = false;
  bool unrotated_layers = false;  // every fourth layer is not rotated
  bool two_ropes = false;         // layers with a window have a rotation of their own
  bool temperature = false;       // queries grow with their position
  bool tied = false;              // tie_word_embeddings where config.json does not say
  WindowRule windows = WindowRule::kNone;
  size_t pattern = 6;  // of WindowRule::kPattern
  Activation activation = Activation::kSilu;
  FamilyDefaults defaults = {};
  // What the files of such a model can say when it is written.
  const char* written_gguf = "";  // general.architecture, where `gguf` is empty or no name of llama.cpp's
  bool gguf_like_llama = false;   // llama.cpp reads biases of output and MLP, and factors of the rotation
  bool gguf_plain_heads = false;  // and takes a head's width to be the model's by the heads
  bool gguf_windows = false;      // and reads a window
  bool gguf_window_list = false;  // of which the file lists the layers
  HeadInGguf gguf_head = HeadInGguf::kOptional;
  bool attention_bias = false, mlp_bias = false, layer_types = false;  // keys that transformers' class has
};

// By config.json's architecture or GGUF's; throws Error(kUnsupported) that names `file` and says what such a model is (a
// mixture of experts, a hybrid ...) or lists what there is.
const Family& family_of_architecture(std::string_view architecture, std::string_view file);
const Family& family_of_gguf(std::string_view architecture, std::string_view file);
// Architectures of text and images whose text half is one of the families: text_config tells which, `usual` where it does not.
bool is_composite(std::string_view architecture, std::string_view& usual);
// By the model_type of a text_config, or of a file that names no class.
const Family& family_of_model_type(std::string_view model_type, std::string_view file);
// By its name here; Error(kInternal) for another.
const Family& family_by_name(std::string_view name);
// general.architecture of a GGUF file that is written of such a model.
const char* gguf_architecture(const Family& family);
// Throws Error(kUnsupported) if there are experts to choose from.
void refuse_experts(uint64_t n_experts, std::string_view file);

// What both readers share: the family's constants, before the file's values.
ModelDescription describe_family(const Family& family);
// Per-layer windows by the rule, given a window (0: none). `first` and `pattern` are used by the rules that need them.
void set_windows(ModelDescription& d, WindowRule rule, size_t window, size_t first, size_t pattern);
// By what YaRN scales cosines and sines of a context that is stretched by `factor`: m = 1 (arXiv:2309.00071, 3.4); DeepSeek's
// files divide those of two m.
double yarn_magnitude(double factor, double m);
// d.layers becomes n layers like `layer`, from the sources 0 to n - 1.
void set_layers(ModelDescription& d, size_t n, const LayerDescription& layer);
// Throws Error(kCorruptData) for sizes that are zero, too large, or do not divide one another; Error(kInvalidArgument) for a
// layer of a source or with a rope that there is not.
void check_description(const ModelDescription& d, std::string_view file);

}  // namespace kpd::llm
