// llm: what the two kinds of files call a tensor. Private.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "kpd/io/weights.h"

namespace kpd::llm {

enum class TensorRole {
  kEmbedding,
  kFinalNorm,
  kHead,
  kRopeFactors,
  kRopeShort,
  kRopeLong,
  kAttentionNorm,
  kQuery,
  kKey,
  kValue,
  kQkv,
  kOutput,
  kQueryNorm,
  kKeyNorm,
  kPostAttentionNorm,
  kMlpNorm,
  kGate,
  kUp,
  kGateUp,
  kDown,
  kPostMlpNorm,
};

// What decides the names beside the role.
struct NamingScheme {
  bool gguf = false;
  bool post_norms = false;  // the families that norm outputs call their norms otherwise
  bool shared_mlp = false;
  // Before the layers' and the head's names in a Hugging Face checkpoint; the text half of another model has its own.
  std::string_view model = "model.", head = "";
};

// Without ".weight" or ".bias".
std::string tensor_name(TensorRole role, size_t layer, const NamingScheme& scheme);

// The prefixes of `scheme`, by the tensors that there are: those of a plain model where none fits.
void find_prefixes(const io::Weights& weights, NamingScheme& scheme);

}  // namespace kpd::llm
