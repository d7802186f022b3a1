// llm: what the two kinds of files call a tensor. Private.
#pragma once

#include <cstddef>
#include <string>

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

// Without ".weight" or ".bias". `post_norms`: the family that norms outputs calls its norms otherwise.
std::string tensor_name(TensorRole role, size_t layer, bool gguf, bool post_norms);

}  // namespace kpd::llm
