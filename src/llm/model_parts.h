// llm: what a loaded model consists of. Private.
#pragma once

#include <string>
#include <vector>

#include "kpd/llm/model.h"
#include "llm/tensor_table.h"

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
  // Norm weights, 1 added where the family does so; empty: there is none.
  std::vector<float> attention_norm, query_norm, key_norm, post_attention_norm, mlp_norm, post_mlp_norm;
  LinearGroup qkv, output, gate_up, down;
};

// A rope's frequencies for the context that was asked for last.
struct RopeTable {
  size_t context = 0;  // 0: for none yet
  RopeFrequencies frequencies;
};

struct Model::Parts {
  explicit Parts(io::Weights w) : weights(std::move(w)) {}

  io::Weights weights;
  ModelDescription description;
  TensorTable table;
  bool on_demand = false;  // layers are laid out when they run
  Arithmetic arithmetic = Arithmetic::kFast;
  int n_threads = 1;
  WeightSource embedding;
  std::vector<uint8_t> embedding_bytes;  // in fast arithmetic, so that nothing of the file is read after loading
  std::vector<float> final_norm;
  std::vector<LayerParts> layers;
  LinearGroup head;
  std::string fingerprint;
  uint64_t n_parameters = 0, file_bytes = 0;        // of the tensors that are used
  size_t planned_context = 0, reached_context = 0;  // the second: by the longest sequence of the last batch
  Tap tap;
  Workspace workspace;
  // Of the last forward(), kept for their memory.
  BatchRows rows;
  std::vector<RopeTable> rope_tables;
};

bool is_loaded(const LayerParts& layer);
// The head of a model with layers on demand: as many rows at a time as the MLP is wide.
void run_stored_head(Model::Parts& parts, const float* normed, size_t n_rows, float* logits);

}  // namespace kpd::llm
