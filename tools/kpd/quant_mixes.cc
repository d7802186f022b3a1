// tools: see quant_mixes.h. The mixes as llama.cpp's llama-quantize makes them (its src/llama-quant.cpp, 2025), told as a
// table: a base, and which layers of which matrices have another type. tests/cli/plan_test.py holds the sums against the bits
// that llama.cpp states for Llama 3.1 8B.
#include "quant_mixes.h"

#include <algorithm>
#include <array>
#include <optional>

#include "kpd/base/error.h"

namespace kpd::tool {
namespace {

// Which layers of a model have the other type.
enum class Layers : uint8_t { kNone, kAll, kFirst2, kFirst4, kFirst8th, kFirst16th, kOuterAndThirds };

bool among(Layers layers, uint32_t i, uint32_t n) {
  switch (layers) {
    case Layers::kNone:
      return false;
    case Layers::kAll:
      return true;
    case Layers::kFirst2:
      return i < 2;
    case Layers::kFirst4:
      return i < 4;
    case Layers::kFirst8th:
      return i < n / 8;
    case Layers::kFirst16th:
      return i < n / 16;
    case Layers::kOuterAndThirds:  // the first and the last eighth, and every third between
      return i < n / 8 || i >= 7 * n / 8 || (i - n / 8) % 3 == 2;
  }
  return false;
}

// In `layers` the type `chosen`, in the others `otherwise`.
struct Rule {
  Layers layers = Layers::kNone;
  BlockType chosen = BlockType::kF32, otherwise = BlockType::kF32;
};

struct Mix {
  std::string_view name;
  BlockType base;
  Rule value{}, down{}, output{};  // with kNone: the base
};

using enum BlockType;

constexpr Rule all(BlockType type) { return {Layers::kAll, type, type}; }

constexpr std::array<Mix, 17> kMixes = {{
    {"F32", kF32},
    {"BF16", kBF16},
    {"F16", kF16},
    {"Q8_0", kQ8_0},
    {"Q6_K", kQ6_K},
    {"Q5_K_M", kQ5_K, {Layers::kOuterAndThirds, kQ6_K, kQ5_K}, {Layers::kOuterAndThirds, kQ6_K, kQ5_K}},
    {"Q5_K_S", kQ5_K},
    {"Q4_1", kQ4_1},
    {"Q4_K_M", kQ4_K, {Layers::kOuterAndThirds, kQ6_K, kQ4_K}, {Layers::kOuterAndThirds, kQ6_K, kQ4_K}},
    {"Q4_K_S", kQ4_K, {Layers::kFirst4, kQ5_K, kQ4_K}, {Layers::kFirst8th, kQ5_K, kQ4_K}},
    {"Q4_0", kQ4_0},
    {"IQ4_XS", kIQ4_XS, {}, {Layers::kFirst8th, kQ5_K, kIQ4_XS}},
    {"Q3_K_L", kQ3_K, all(kQ5_K), all(kQ5_K), all(kQ5_K)},
    {"Q3_K_M", kQ3_K, {Layers::kFirst2, kQ5_K, kQ4_K}, {Layers::kFirst16th, kQ5_K, kQ4_K}, all(kQ4_K)},
    {"Q3_K_S", kQ3_K},
    {"Q2_K", kQ2_K, all(kQ3_K), all(kQ3_K), all(kQ3_K)},
    {"Q2_K_S", kQ2_K, {}, {Layers::kFirst8th, kQ4_K, kQ2_K}},
}};

const Mix& find_mix(std::string_view name) {
  const auto found = std::find_if(kMixes.begin(), kMixes.end(), [&](const Mix& mix) { return mix.name == name; });
  if (found == kMixes.end()) fail(ErrorCode::kInternal, "no mix ", name);
  return *found;
}

bool is_plain(BlockType type) { return block_type_info(type).block_values == 1; }

// Rows that are no whole blocks get a type of shorter blocks and as many bits or more.
BlockType fallback(BlockType type, uint64_t columns) {
  if (columns % block_type_info(type).block_values == 0) return type;
  BlockType shorter = kF16;
  switch (type) {
    case kQ2_K:
    case kQ3_K:
      shorter = kQ4_0;
      break;
    case kIQ4_XS:
      shorter = kIQ4_NL;
      break;
    case kQ4_K:
      shorter = kQ5_0;
      break;
    case kQ5_K:
      shorter = kQ5_1;
      break;
    case kQ6_K:
      shorter = kQ8_0;
      break;
    default:
      break;
  }
  return columns % block_type_info(shorter).block_values == 0 ? shorter : kF16;
}

BlockType apply(const Rule& rule, BlockType base, uint32_t layer, uint32_t n_layers) {
  if (rule.layers == Layers::kNone) return base;
  return among(rule.layers, layer, n_layers) ? rule.chosen : rule.otherwise;
}

// Values have more bits where several heads share them.
BlockType value_type(const Mix& mix, const NetworkShape& network, uint32_t layer) {
  BlockType type = apply(mix.value, mix.base, layer, network.n_layers);
  const bool shared = network.heads_per_kv_head >= 4;
  if (shared && mix.base == kQ2_K) type = kQ4_K;
  if (shared && mix.base == kIQ4_XS) type = kQ5_K;
  // Models of 70 billion parameters, which llama.cpp tells by their layers.
  if (network.n_layers == 80 && (type == kQ3_K || type == kQ4_K)) type = kQ5_K;
  return type;
}

BlockType head_type(const Mix& mix, uint64_t columns) {
  if (columns % block_type_info(mix.base).block_values != 0) return kQ8_0;
  return mix.base == kQ8_0 ? kQ8_0 : kQ6_K;
}

}  // namespace

uint64_t NetworkShape::matrix_values() const {
  uint64_t n = 0;
  for (const WeightShape& matrix : matrices) n += matrix.rows * matrix.columns;
  return n;
}

NetworkShape network_shape(const llm::ModelDescription& d) {
  NetworkShape n;
  n.n_layers = static_cast<uint32_t>(d.layers.size());
  n.tied_head = d.tied_head;
  const uint64_t width = d.d_model;
  n.matrices.push_back({MatrixRole::kEmbedding, 0, d.n_vocabulary, width});
  if (!d.tied_head) n.matrices.push_back({MatrixRole::kHead, 0, d.n_vocabulary, width});
  n.other_values = width;
  for (uint32_t i = 0; i < n.n_layers; ++i) {
    const llm::LayerDescription& layer = d.layers[i];
    const uint64_t q = layer.query_width(), kv = layer.key_width(), mlp = layer.d_ff;
    n.heads_per_kv_head = static_cast<uint32_t>(layer.n_heads / std::max<size_t>(layer.n_kv_heads, 1));
    if (d.fused_qkv) {
      n.matrices.push_back({MatrixRole::kQkv, i, q + 2 * kv, width});
    } else {
      n.matrices.push_back({MatrixRole::kQuery, i, q, width});
      n.matrices.push_back({MatrixRole::kKey, i, kv, width});
      n.matrices.push_back({MatrixRole::kValue, i, kv, width});
    }
    n.matrices.push_back({MatrixRole::kGateUp, i, 2 * mlp, width});  // one or two, of the same types
    n.matrices.push_back({MatrixRole::kOutput, i, width, q});
    n.matrices.push_back({MatrixRole::kDown, i, width, mlp});
    n.other_values += width * ((d.pre_norms ? 2 : 0) + (d.post_norms ? 2 : 0));
    if (d.qk_norm) n.other_values += d.qk_norm_whole ? q + kv : 2 * layer.key_dim;
    if (d.qkv_bias) n.other_values += q + 2 * kv;
    if (d.o_bias) n.other_values += width;
    if (d.mlp_bias) n.other_values += 2 * mlp + width;
  }
  return n;
}

std::span<const std::string_view> mix_names() {
  static const std::array<std::string_view, kMixes.size()> names = [] {
    std::array<std::string_view, kMixes.size()> all_names{};
    std::transform(kMixes.begin(), kMixes.end(), all_names.begin(), [](const Mix& mix) { return mix.name; });
    return all_names;
  }();
  return names;
}

BlockType mix_type(std::string_view name, const NetworkShape& network, const WeightShape& matrix) {
  const Mix& mix = find_mix(name);
  if (is_plain(mix.base)) return mix.base;
  BlockType type = mix.base;
  switch (matrix.role) {
    case MatrixRole::kHead:
      type = head_type(mix, matrix.columns);
      break;
    case MatrixRole::kEmbedding:  // what is the head too is treated as one
      if (network.tied_head) type = head_type(mix, matrix.columns);
      break;
    case MatrixRole::kQkv:
    case MatrixRole::kValue:
      type = value_type(mix, network, matrix.layer);
      break;
    case MatrixRole::kDown:
      type = apply(mix.down, mix.base, matrix.layer, network.n_layers);
      break;
    case MatrixRole::kOutput:
      type = apply(mix.output, mix.base, matrix.layer, network.n_layers);
      break;
    case MatrixRole::kQuery:
    case MatrixRole::kKey:
    case MatrixRole::kGateUp:
      break;
  }
  return fallback(type, matrix.columns);
}

uint64_t mix_bytes(std::string_view name, const NetworkShape& network) {
  uint64_t bytes = 4 * network.other_values;
  for (const WeightShape& matrix : network.matrices) {
    const BlockTypeInfo& info = block_type_info(mix_type(name, network, matrix));
    bytes += matrix.rows * matrix.columns / info.block_values * info.block_bytes;
  }
  return bytes;
}

}  // namespace kpd::tool
