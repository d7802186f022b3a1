// llm: what a loaded model consists of. Private.
#pragma once

#include <string>
#include <vector>

#include "kpd/llm/model.h"
#include "llm/tensor_table.h"
#include "weight/linear.h"

namespace kpd::llm {

// Slots of the workspace.
enum WorkspaceSlot : size_t {
  kHidden,
  kNormed,
  kQuerySlot,
  kKeySlot,
  kValueSlot,
  kAttended,
  kGateSlot,
  kUpSlot,
  kResult,
  kLogits
};

struct LayerParts {
  size_t cache_layer = 0;  // the layer's index in the cache; of one with attention
  // Norm weights, 1 added where the family does so; empty: there is none.
  std::vector<float> attention_norm, query_norm, key_norm, post_attention_norm, mlp_norm, post_mlp_norm;
  weight::Linear qkv, output, gate_up, down;
};

// A rope's frequencies for the contexts that were asked for last: sequences of one batch may have planned different ones.
class RopeTable {
 public:
  // Valid until the next call.
  const RopeFrequencies& at(const RopeDescription& rope, size_t context);

 private:
  static constexpr size_t kEntries = 8;
  struct Entry {
    size_t context = 0;
    RopeFrequencies frequencies;
  };
  std::vector<Entry> entries_;
  size_t next_ = 0;  // to be replaced
};

// The fingerprint of a model that differs from one of `fingerprint` by what `text` says.
std::string changed_fingerprint(const std::string& fingerprint, std::string_view text);

struct Model::Parts {
  explicit Parts(io::Weights w) : weights(std::move(w)) {}

  io::Weights weights;
  ModelDescription description;
  TensorTable table;
  WeightFormat weight_format;
  bool on_demand = false;  // layers are laid out when they run
  Arithmetic arithmetic = Arithmetic::kFast;
  int n_threads = 1;
  weight::MatrixSource embedding;
  std::vector<uint8_t> embedding_bytes;  // in fast arithmetic, so that nothing of the file is read after loading
  std::vector<float> final_norm;
  std::vector<LayerParts> layers;
  std::vector<size_t> layers_of_cache;  // layer indices, by the index in the cache
  weight::Linear head;
  std::string fingerprint;
  uint64_t n_parameters = 0, file_bytes = 0;  // of the tensors that are used
  Tap tap;
  weight::Workspace workspace;
  // Of the last forward(), kept for their memory.
  BatchRows rows;
  std::vector<RopeTable> rope_tables;
};

bool is_loaded(const LayerParts& layer);
// The head of a model with layers on demand: as many rows at a time as the MLP is wide.
void run_stored_head(Model::Parts& parts, const float* normed, size_t n_rows, float* logits);

}  // namespace kpd::llm
