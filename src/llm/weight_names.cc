// llm: tensor names of Hugging Face checkpoints and of GGUF files.
#include "llm/weight_names.h"

#include <utility>

#include "kpd/base/error.h"

namespace kpd::llm {
namespace {

struct Names {
  const char* hf;
  const char* gguf;
};

Names names_of(TensorRole role, const NamingScheme& scheme) {
  switch (role) {
    case TensorRole::kEmbedding:
      return {"embed_tokens", "token_embd"};
    case TensorRole::kFinalNorm:
      return {"norm", "output_norm"};
    case TensorRole::kHead:
      return {"lm_head", "output"};
    case TensorRole::kRopeFactors:
      return {"", "rope_freqs"};
    case TensorRole::kRopeShort:
      return {"", "rope_factors_short"};
    case TensorRole::kRopeLong:
      return {"", "rope_factors_long"};
    case TensorRole::kAttentionNorm:
      return {"input_layernorm", "attn_norm"};
    case TensorRole::kQuery:
      return {"self_attn.q_proj", "attn_q"};
    case TensorRole::kKey:
      return {"self_attn.k_proj", "attn_k"};
    case TensorRole::kValue:
      return {"self_attn.v_proj", "attn_v"};
    case TensorRole::kQkv:
      return {"self_attn.qkv_proj", "attn_qkv"};
    case TensorRole::kOutput:
      return {"self_attn.o_proj", "attn_output"};
    case TensorRole::kQueryNorm:
      return {"self_attn.q_norm", "attn_q_norm"};
    case TensorRole::kKeyNorm:
      return {"self_attn.k_norm", "attn_k_norm"};
    case TensorRole::kPostAttentionNorm:
      return {"post_attention_layernorm", "post_attention_norm"};
    case TensorRole::kMlpNorm:
      return {scheme.post_norms ? "pre_feedforward_layernorm" : "post_attention_layernorm", "ffn_norm"};
    case TensorRole::kGate:
      return {"mlp.gate_proj", "ffn_gate"};
    case TensorRole::kUp:
      return {"mlp.up_proj", "ffn_up"};
    case TensorRole::kGateUp:
      return {scheme.shared_mlp ? "shared_mlp.input_linear" : "mlp.gate_up_proj", "ffn_up"};
    case TensorRole::kDown:
      return {scheme.shared_mlp ? "shared_mlp.output_linear" : "mlp.down_proj", "ffn_down"};
    case TensorRole::kPostMlpNorm:
      return {"post_feedforward_layernorm", "post_ffw_norm"};
  }
  fail(ErrorCode::kInternal, "a tensor without a name");
}

}  // namespace

std::string tensor_name(TensorRole role, size_t layer, const NamingScheme& scheme) {
  const Names names = names_of(role, scheme);
  const bool of_layer = role >= TensorRole::kAttentionNorm;
  if (scheme.gguf) return of_layer ? str("blk.", layer, ".", names.gguf) : names.gguf;
  if (of_layer) return str(scheme.model, "layers.", layer, ".", names.hf);
  return str(role == TensorRole::kHead ? scheme.head : scheme.model, names.hf);
}

void find_prefixes(const io::Weights& weights, NamingScheme& scheme) {
  if (scheme.gguf) return;
  // As transformers 4 and 5 write the text half of a model.
  for (const auto& [model, head] :
       {std::pair{"model.", ""}, {"language_model.model.", "language_model."}, {"model.language_model.", ""}}) {
    if (weights.find(str(model, "embed_tokens.weight")) == nullptr) continue;
    scheme.model = model;
    scheme.head = head;
    return;
  }
}

}  // namespace kpd::llm
