// io: what a GGUF file says beside its tensors (ggml, docs/gguf.md): typed metadata.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

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

}  // namespace kpd::io
