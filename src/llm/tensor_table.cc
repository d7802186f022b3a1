// llm: the table of tensors. A tensor of a new family is a row here.
#include "llm/tensor_table.h"

#include <array>
#include <utility>

#include "kpd/base/error.h"

namespace kpd::llm {
namespace {

using Test = bool (*)(const ModelDescription&);

// Extents, by what they follow from.
enum class Extent { kNone, kModel, kHead, kRotated, kQueries, kKeys, kQkv, kQueryNorm, kKeyNorm, kFf, kGateUp, kVocabulary };

uint64_t value_of(Extent extent, const ModelDescription& d, const LayerDescription& layer) {
  const uint64_t queries = layer.query_width(), keys = layer.key_width();
  switch (extent) {
    case Extent::kNone:
      return 0;
    case Extent::kModel:
      return d.d_model;
    case Extent::kHead:
      return layer.key_dim;
    case Extent::kRotated:
      return d.ropes.empty() ? 0 : d.ropes[0].n_rotated / 2;
    case Extent::kQueries:
      return queries;
    case Extent::kKeys:
      return keys;
    case Extent::kQkv:
      return queries + keys + layer.value_width();
    case Extent::kQueryNorm:
      return d.qk_norm_whole ? queries : layer.key_dim;
    case Extent::kKeyNorm:
      return d.qk_norm_whole ? keys : layer.key_dim;
    case Extent::kFf:
      return layer.d_ff;
    case Extent::kGateUp:
      return 2 * layer.d_ff;
    case Extent::kVocabulary:
      return d.n_vocabulary;
  }
  return 0;
}

enum class Kind { kMatrix, kHeads, kNorm, kFactors };

struct Row {
  TensorRole role;
  const char* hf;    // "": no tensor there
  const char* gguf;  // behind "blk.N." for those of layers
  Kind kind;
  Extent rows, columns;  // columns kNone: a vector
  Test there;            // null: always
  Test biased;           // in a Hugging Face checkpoint; null: never
  // Another name in a Hugging Face checkpoint, and when.
  const char* other = nullptr;
  Test renamed = nullptr;
};

using D = ModelDescription;
constexpr bool shared(const D& d) { return d.shared_mlp; }
constexpr bool qkv_bias(const D& d) { return d.qkv_bias; }
constexpr bool o_bias(const D& d) { return d.o_bias; }
constexpr bool mlp_bias(const D& d) { return d.mlp_bias; }
constexpr bool split_qkv(const D& d) { return !d.fused_qkv; }
constexpr bool fused_qkv(const D& d) { return d.fused_qkv; }
constexpr bool split_gate_up(const D& d) { return !d.fused_gate_up; }
constexpr bool fused_gate_up(const D& d) { return d.fused_gate_up; }
constexpr bool pre_norms(const D& d) { return d.pre_norms; }
constexpr bool post_norms(const D& d) { return d.post_norms; }
constexpr bool qk_norm(const D& d) { return d.qk_norm; }

using R = TensorRole;
using E = Extent;

constexpr auto kModelRows = std::to_array<Row>({
    {R::kRopeFactors, "", "rope_freqs", Kind::kFactors, E::kRotated, E::kNone, nullptr, nullptr},
    {R::kRopeLong, "", "rope_factors_long", Kind::kFactors, E::kRotated, E::kNone, nullptr, nullptr},
    {R::kRopeShort, "", "rope_factors_short", Kind::kFactors, E::kRotated, E::kNone, nullptr, nullptr},
    {R::kEmbedding, "embed_tokens", "token_embd", Kind::kMatrix, E::kVocabulary, E::kModel, nullptr, nullptr},
    {R::kFinalNorm, "norm", "output_norm", Kind::kNorm, E::kModel, E::kNone, nullptr, nullptr},
    {R::kHead, "lm_head", "output", Kind::kMatrix, E::kVocabulary, E::kModel, nullptr, nullptr},
});

constexpr auto kLayerRows = std::to_array<Row>({
    {R::kAttentionNorm, "input_layernorm", "attn_norm", Kind::kNorm, E::kModel, E::kNone, pre_norms, nullptr},
    {R::kMlpNorm, "post_attention_layernorm", "ffn_norm", Kind::kNorm, E::kModel, E::kNone, pre_norms, nullptr,
     "pre_feedforward_layernorm", post_norms},
    {R::kQueryNorm, "self_attn.q_norm", "attn_q_norm", Kind::kNorm, E::kQueryNorm, E::kNone, qk_norm, nullptr},
    {R::kKeyNorm, "self_attn.k_norm", "attn_k_norm", Kind::kNorm, E::kKeyNorm, E::kNone, qk_norm, nullptr},
    {R::kPostAttentionNorm, "post_attention_layernorm", "post_attention_norm", Kind::kNorm, E::kModel, E::kNone, post_norms,
     nullptr},
    {R::kPostMlpNorm, "post_feedforward_layernorm", "post_ffw_norm", Kind::kNorm, E::kModel, E::kNone, post_norms, nullptr},
    {R::kQkv, "self_attn.qkv_proj", "attn_qkv", Kind::kMatrix, E::kQkv, E::kModel, fused_qkv, nullptr},
    {R::kQuery, "self_attn.q_proj", "attn_q", Kind::kHeads, E::kQueries, E::kModel, split_qkv, qkv_bias},
    {R::kKey, "self_attn.k_proj", "attn_k", Kind::kHeads, E::kKeys, E::kModel, split_qkv, qkv_bias},
    {R::kValue, "self_attn.v_proj", "attn_v", Kind::kMatrix, E::kKeys, E::kModel, split_qkv, qkv_bias},
    {R::kOutput, "self_attn.o_proj", "attn_output", Kind::kMatrix, E::kModel, E::kQueries, nullptr, o_bias},
    {R::kGateUp, "mlp.gate_up_proj", "ffn_up", Kind::kMatrix, E::kGateUp, E::kModel, fused_gate_up, nullptr,
     "shared_mlp.input_linear", shared},
    {R::kGate, "mlp.gate_proj", "ffn_gate", Kind::kMatrix, E::kFf, E::kModel, split_gate_up, mlp_bias},
    {R::kUp, "mlp.up_proj", "ffn_up", Kind::kMatrix, E::kFf, E::kModel, split_gate_up, mlp_bias},
    {R::kDown, "mlp.down_proj", "ffn_down", Kind::kMatrix, E::kModel, E::kFf, nullptr, mlp_bias, "shared_mlp.output_linear",
     shared},
});

// Of a tensor that such a model has; layers are numbered in the file.
bool is_needed(const Row& row, const ModelDescription& d) {
  switch (row.role) {
    case R::kHead:
      return !d.tied_head;
    case R::kRopeFactors:
      return false;
    case R::kRopeShort:
    case R::kRopeLong:
      return !d.ropes.empty() && d.ropes[0].kind == RopeKind::kLongRope;
    default:
      return true;
  }
}

std::string name_of(const Row& row, const ModelDescription& d, const NamingScheme& scheme, const std::string& layer) {
  if (scheme.gguf) return str(layer.empty() ? "" : "blk.", layer, layer.empty() ? "" : ".", row.gguf);
  const char* name = row.renamed != nullptr && row.renamed(d) ? row.other : row.hf;
  if (!layer.empty()) return str(scheme.model, "layers.", layer, ".", name);
  return str(row.role == R::kHead ? scheme.head : scheme.model, name);
}

uint64_t key_of(TensorRole role, size_t layer, TensorPart part) {
  return (static_cast<uint64_t>(layer) * 64 + static_cast<uint64_t>(role)) * 2 + (part == TensorPart::kBias ? 1 : 0);
}

}  // namespace

TensorTable::TensorTable(const ModelDescription& d, const NamingScheme& scheme) : scheme_(scheme) {
  const auto add_row = [&](const Row& row, size_t layer, const std::string& file_layer) {
    const LayerDescription& shape = d.layers[layer];
    if (row.there != nullptr && !row.there(d)) return;
    if (!scheme.gguf && *row.hf == 0) return;
    const std::string name = name_of(row, d, scheme, file_layer);
    TensorSpec spec{row.role,
                    TensorPart::kWeight,
                    layer,
                    name + ".weight",
                    {value_of(row.rows, d, shape)},
                    is_needed(row, d),
                    row.kind == Kind::kHeads,
                    row.kind == Kind::kNorm};
    if (row.columns != Extent::kNone) spec.shape.push_back(value_of(row.columns, d, shape));
    add(spec);
    // GGUF has no key that says whether there is one.
    const bool of_model = row.biased != nullptr && row.biased(d);
    if (!of_model && (!scheme.gguf || row.biased == nullptr)) return;
    add({row.role, TensorPart::kBias, layer, name + ".bias", {value_of(row.rows, d, shape)}, of_model, spec.heads, false});
  };
  for (const Row& row : kModelRows) add_row(row, 0, "");
  for (size_t i = 0; i < d.layers.size(); ++i) {
    for (const Row& row : kLayerRows) {
      const bool of_mlp = row.role >= TensorRole::kMlpNorm;
      if (of_mlp ? d.layers[i].has_mlp() : d.layers[i].has_attention()) add_row(row, i, str(d.layers[i].source));
    }
  }
}

void TensorTable::add(const TensorSpec& spec) {
  by_role_.emplace(key_of(spec.role, spec.layer, spec.part), specs_.size());
  specs_.push_back(spec);
}

const TensorSpec* TensorTable::find(TensorRole role, size_t layer, TensorPart part) const {
  const auto it = by_role_.find(key_of(role, layer, part));
  return it == by_role_.end() ? nullptr : &specs_[it->second];
}

const TensorSpec& TensorTable::at(TensorRole role, size_t layer, TensorPart part) const {
  const TensorSpec* spec = find(role, layer, part);
  if (spec == nullptr) fail(ErrorCode::kInternal, "a tensor that the table of tensors lacks");
  return *spec;
}

NamingScheme find_naming(const io::Weights& weights, bool gguf) {
  NamingScheme scheme{.gguf = gguf};
  if (gguf) return scheme;
  // As transformers 4 and 5 write the text half of a model.
  for (const auto& [model, head] :
       {std::pair{"model.", ""}, {"language_model.model.", "language_model."}, {"model.language_model.", ""}}) {
    if (weights.find(str(model, "embed_tokens.weight")) == nullptr) continue;
    scheme.model = model;
    scheme.head = head;
    return scheme;
  }
  return scheme;
}

}  // namespace kpd::llm
