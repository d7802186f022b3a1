// llm: what a checkpoint consists of, and reading its tensors. Private.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kpd/io/gguf.h"
#include "kpd/llm/checkpoint.h"
#include "llm/tensor_table.h"

namespace kpd::llm {

struct Checkpoint::Parts {
  explicit Parts(io::Weights w) : weights(std::move(w)) {}

  io::Weights weights;
  ModelDescription description;
  TensorTable table;
  bool gguf = false;
  std::shared_ptr<const io::GgufMetadata> metadata;
  std::string configuration;
};

// "[32, 64]"
std::string shape_text(std::span<const uint64_t> shape);
// Throws Error(kCorruptData) naming tensor and both shapes.
void check_shape(const io::Weights& weights, const io::WeightEntry& entry, const TensorSpec& spec);
// Values of a small tensor; throws Error(kCorruptData) if it is not whole blocks.
std::vector<float> read_floats(const io::Weights& weights, const io::WeightEntry& entry);

}  // namespace kpd::llm
