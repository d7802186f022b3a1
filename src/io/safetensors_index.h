// io: model.safetensors.index.json, by which Hugging Face's libraries say which shard holds which tensor.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kpd/base/limits.h"

namespace kpd::io {

struct ShardOfTensor {
  std::string tensor, shard;
};

// The entries of "weight_map" in file order; whatever else the object holds is skipped. A shard is a plain file name. Throws
// Error(kCorruptData | kLimitExceeded) naming file and byte.
std::vector<ShardOfTensor> parse_safetensors_index(std::span<const uint8_t> bytes, std::string_view name, const Limits& limits);

}  // namespace kpd::io
