// io: GGUF versions 2 and 3 (ggml, docs/gguf.md): typed metadata, tensor table, aligned data. Little-endian only.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "kpd/base/limits.h"
#include "kpd/io/weights.h"

namespace kpd::io {

// A metadata value. Numbers are widened to 64 bits; arrays are of one kind, flat (arrays of arrays are refused as unsupported).
using GgufValue = std::variant<uint64_t, int64_t, double, bool, std::string, std::vector<uint64_t>, std::vector<int64_t>,
                               std::vector<double>, std::vector<bool>, std::vector<std::string>>;

// Metadata in file order with typed access. `name` is the file, for errors.
class GgufMetadata {
 public:
  std::string name;
  std::vector<std::pair<std::string, GgufValue>> values;

  const GgufValue* find(std::string_view key) const;  // null if there is none
  // The value as the type asked for; a number of another width or sign is converted if it fits. Throws Error(kCorruptData)
  // naming file and key if the key is absent or of another type.
  uint64_t number(std::string_view key) const;
  double real(std::string_view key) const;
  bool boolean(std::string_view key) const;
  const std::string& text(std::string_view key) const;
  const std::vector<std::string>& texts(std::string_view key) const;
  std::vector<double> reals(std::string_view key) const;
  std::vector<int64_t> integers(std::string_view key) const;
};

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
