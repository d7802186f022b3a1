// llm: the one table of a checkpoint's tensors: for each role its name in the two kinds of files, its shape, whether a model of
// a description has it and needs it. Reading, checking and writing go by it. Private.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "kpd/io/weights.h"
#include "kpd/llm/model_description.h"

namespace kpd::llm {

// Those of layers behind those of none, those of the MLP last.
enum class TensorRole {
  kEmbedding,
  kFinalNorm,
  kHead,
  kRopeFactors,
  kRopeShort,
  kRopeLong,
  kAttentionNorm,
  kQueryNorm,
  kKeyNorm,
  kPostAttentionNorm,
  kQuery,
  kKey,
  kValue,
  kQkv,
  kOutput,
  kMlpNorm,
  kPostMlpNorm,
  kGate,
  kUp,
  kGateUp,
  kDown,
};

enum class TensorPart { kWeight, kBias };

// How a kind of files names tensors.
struct NamingScheme {
  bool gguf = false;
  // Before the layers' and the head's names in a Hugging Face checkpoint; the text half of another model has its own.
  std::string_view model = "model.", head = "";
};

// The scheme of these weights: its prefixes are those of the tensors that there are, of a plain model where none fits.
NamingScheme find_naming(const io::Weights& weights, bool gguf);

struct TensorSpec {
  TensorRole role;
  TensorPart part;
  size_t layer;  // index in the description, not in the file; 0 for tensors of no layer
  std::string name;
  std::vector<uint64_t> shape;
  bool needed;  // else the model is one without it
  // Rows of heads, which some GGUF files have in another order; norm weights, which some families store less 1.
  bool heads, norm;
};

// The tensors of a model of `description` in files of a scheme, layer after layer. Immutable; the description's fused_qkv,
// fused_gate_up and the like are those of the file.
class TensorTable {
 public:
  TensorTable() = default;
  TensorTable(const ModelDescription& description, const NamingScheme& scheme);
  std::span<const TensorSpec> specs() const { return specs_; }
  // Null if such a model has none.
  const TensorSpec* find(TensorRole role, size_t layer, TensorPart part = TensorPart::kWeight) const;
  const TensorSpec& at(TensorRole role, size_t layer, TensorPart part = TensorPart::kWeight) const;  // Error(kInternal)
  // What the file's names begin with.
  const NamingScheme& scheme() const { return scheme_; }

 private:
  void add(const TensorSpec& spec);

  NamingScheme scheme_;
  std::vector<TensorSpec> specs_;
  std::unordered_map<uint64_t, size_t> by_role_;
};

}  // namespace kpd::llm
