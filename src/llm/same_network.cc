// llm: comparing descriptions by what the forward pass does with them.
#include "llm/same_network.h"

#include <algorithm>
#include <array>
#include <utility>

#include "kpd/base/error.h"

namespace kpd::llm {
namespace {

// One that is as long as the context leaves nothing out.
size_t window_of(const ModelDescription& d, size_t layer) {
  const size_t window = d.layers[layer].window;
  return window >= d.max_context ? 0 : window;
}

std::string rotation_difference(const ModelDescription& a, const ModelDescription& b) {
  for (size_t i = 0; i < a.layers.size(); ++i) {
    const int x = a.layers[i].rope, y = b.layers[i].rope;
    if ((x < 0) != (y < 0)) return str("that layer ", i, x < 0 ? " is not rotated" : " is rotated");
    if (x < 0) continue;
    const RopeDescription &p = a.ropes[static_cast<size_t>(x)], &q = b.ropes[static_cast<size_t>(y)];
    if (!same_rotation(p, q, a.max_context)) return str("the rotation of layer ", i, " (", rope_kind_name(p.kind), ")");
  }
  return "";
}

}  // namespace

bool same_rotation(const RopeDescription& a, const RopeDescription& b, size_t max_context) {
  if (a.n_rotated != b.n_rotated) return false;
  std::array<size_t, 6> contexts = {1, max_context, 2 * max_context, 0, 0, 0};
  contexts[3] = a.original_context + 1;
  contexts[4] = b.original_context + 1;
  contexts[5] = std::max<size_t>(a.original_context, 1);
  return std::all_of(contexts.begin(), contexts.end(), [&](size_t context) {
    const RopeFrequencies x = rope_frequencies(a, context), y = rope_frequencies(b, context);
    return x.radians == y.radians && x.attention_factor == y.attention_factor;
  });
}

std::string network_difference(const ModelDescription& a, const ModelDescription& b) {
  if (a.layers.size() != b.layers.size()) return "the number of layers";
  const std::pair<const char*, bool> all[] = {
      {"the width of the model", a.d_model == b.d_model},
      {"the number of heads", a.layers.front().n_heads == b.layers.front().n_heads},
      {"the number of key-value heads", a.layers.front().n_kv_heads == b.layers.front().n_kv_heads},
      {"the width of a head", a.layers.front().key_dim == b.layers.front().key_dim},
      {"the width of the MLP", a.layers.front().d_ff == b.layers.front().d_ff},
      {"the size of the vocabulary", a.n_vocabulary == b.n_vocabulary},
      {"the context", a.max_context == b.max_context},
      {"the norm's epsilon", a.norm_eps == b.norm_eps},
      {"norms of queries and keys", a.qk_norm == b.qk_norm && a.qk_norm_whole == b.qk_norm_whole},
      {"norms before attention and the MLP", a.pre_norms == b.pre_norms},
      {"norms behind attention and the MLP", a.post_norms == b.post_norms},
      {"the scale of the embedding", a.embedding_scale == b.embedding_scale},
      {"the scale of the residual stream", a.residual_scale == b.residual_scale},
      {"the scale of the logits", a.logit_scale == b.logit_scale},
      {"the scale of attention", a.attention_scale == b.attention_scale},
      {"the cap on attention", a.attention_softcap == b.attention_softcap},
      {"the cap on logits", a.logit_softcap == b.logit_softcap},
      {"queries that grow with their position", a.temperature_scale == b.temperature_scale &&
                                                    (a.temperature_scale == 0 || a.temperature_length == b.temperature_length)},
      {"the activation", a.activation == b.activation},
  };
  for (const auto& [what, same] : all) {
    if (!same) return what;
  }
  for (size_t i = 0; i < a.layers.size(); ++i) {
    if (window_of(a, i) != window_of(b, i)) return str("the window of layer ", i);
  }
  return rotation_difference(a, b);
}

}  // namespace kpd::llm
