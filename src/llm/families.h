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
  kAlternate,  // Gemma 2: the first, the third ...
  kPattern,    // Gemma 3: all but every sliding_window_pattern-th
};

struct Family {
  const char* name;
  const char* architecture;  // in config.json
  const char* gguf;          // general.architecture
  bool qkv_bias = false;     // always there; where false, attention_bias of config.json says
  bool qk_norm = false;
  bool post_norms = false;
  bool norm_plus_one = false;     // in Hugging Face files; GGUF has the 1 added in
  bool scaled_embedding = false;  // by sqrt(d_model)
  bool fused = false;
  bool interleaved_gguf = false;
  bool unrotated_layers = false;  // every fourth layer is not rotated
  bool tied = false;              // tie_word_embeddings where config.json does not say: transformers leaves out what is usual
  WindowRule windows = WindowRule::kNone;
  Activation activation = Activation::kSilu;
};

// By config.json's architecture or GGUF's; throws Error(kUnsupported) that names `file` and lists what there is.
const Family& family_of_architecture(std::string_view architecture, std::string_view file);
const Family& family_of_gguf(std::string_view architecture, std::string_view file);

// What both readers share: the family's constants, before the file's values.
ModelDescription describe_family(const Family& family);
// Per-layer windows by the rule, given a window (0: none). `first` and `pattern` are used by the rules that need them.
void set_windows(ModelDescription& d, WindowRule rule, size_t window, size_t first, size_t pattern);
// Throws Error(kCorruptData) for sizes that are zero, too large, or do not divide one another.
void check_description(const ModelDescription& d, std::string_view file);

}  // namespace kpd::llm
