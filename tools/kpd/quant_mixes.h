// tools: how many bytes a language model's weights take in the formats that GGUF files come in. What is called Q4_K_M is a mix:
// llama-quantize gives some matrices more bits than the name says, and other types where rows are no whole blocks.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kpd/base/block_type.h"
#include "kpd/llm/model_description.h"

namespace kpd::tool {

enum class MatrixRole : uint8_t { kEmbedding, kHead, kQkv, kQuery, kKey, kValue, kOutput, kGateUp, kDown };

struct WeightShape {
  MatrixRole role;
  uint32_t layer;  // 0 where there is none
  uint64_t rows, columns;
};

// All matrices of the network; a head that is the embedding is no matrix of its own. `other_values`: norms and biases.
struct NetworkShape {
  std::vector<WeightShape> matrices;
  uint64_t other_values = 0;
  uint32_t n_layers = 0, heads_per_kv_head = 1;
  bool tied_head = false;

  uint64_t matrix_values() const;
};
NetworkShape network_shape(const llm::ModelDescription& description);

// By the names that people know: "F32", "BF16", "F16", "Q8_0", "Q6_K", "Q5_K_M", ... in falling order of bits.
std::span<const std::string_view> mix_names();
// The type that llama-quantize (2025) gives the matrix in the mix; no importance matrix. `name` is one of mix_names().
BlockType mix_type(std::string_view name, const NetworkShape& network, const WeightShape& matrix);
// Of all weights; norms and biases are F32.
uint64_t mix_bytes(std::string_view name, const NetworkShape& network);

}  // namespace kpd::tool
