// io: GGUF versions 2 and 3 (ggml, docs/gguf.md): typed metadata, tensor table, aligned data. Little-endian only.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kpd/base/limits.h"
#include "kpd/io/gguf_metadata.h"
#include "kpd/io/weights.h"

namespace kpd::io {

struct GgufFile {
  uint32_t version = 3;
  GgufMetadata metadata;
  std::vector<WeightEntry> tensors;  // bytes point into the span that was parsed
  uint32_t alignment = 32;
};

bool looks_like_gguf(std::span<const uint8_t> bytes);

// Throws Error(kCorruptData | kUnsupported | kLimitExceeded) naming file, byte, key or tensor.
GgufFile parse_gguf(std::span<const uint8_t> bytes, std::string_view name, const Limits& limits = {});
// The metadata alone of the file at `path`.
GgufMetadata load_gguf_metadata(const std::string& path, const Limits& limits = {});

// Writes version 3, alignment 32, beside the target and renamed. Throws Error(kInvalidArgument) for names or shapes that the
// format cannot hold, Error(kIo).
void save_gguf(const std::string& path, const GgufMetadata& metadata, std::span<const WeightEntry> tensors);

}  // namespace kpd::io
