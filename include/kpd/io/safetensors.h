// io: safetensors (huggingface/safetensors, README "Format"): u64 length, JSON header, data. Floats of 8 to 64 bits, integers
// and bools.
//
// Stricter than needed for reading, as the reference is: data must be covered exactly, without gap, overlap or duplicate name.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kpd/base/limits.h"
#include "kpd/io/tensor_entry.h"

namespace kpd::io {

using Metadata = std::vector<std::pair<std::string, std::string>>;

struct SafetensorsFile {
  std::vector<TensorEntry> tensors;  // in the header's order
  Metadata metadata;                 // of the key __metadata__
};

bool looks_like_safetensors(std::span<const uint8_t> bytes);

// Entries point into `bytes`; the format does not align them to their elements. Throws Error(kCorruptData | kUnsupported |
// kLimitExceeded) naming file, byte and tensor.
SafetensorsFile parse_safetensors(std::span<const uint8_t> bytes, std::string_view name, const Limits& limits = {});

// A tensor as the header has it, of any type: also of those that nothing here computes with.
struct SafetensorsRecord {
  std::string name, type;      // the type by the format's name, e.g. "F8_E8M0"
  std::optional<DType> dtype;  // none if we have no such type
  std::vector<uint64_t> shape;
  std::span<const uint8_t> bytes;  // of the data; where there is a dtype, as many as the shape needs
  uint64_t count() const;          // product of the shape
};

// What a file holds, for those who show it; in the header's order. Errors as of parse_safetensors() but for types.
std::vector<SafetensorsRecord> list_safetensors(std::span<const uint8_t> bytes, std::string_view name,
                                                const Limits& limits = {});

// The header's bytes (length field included) for these tensors, and the order in which their data follows: larger elements
// first, so that all are aligned. Throws Error(kInvalidArgument) for duplicate or unprintable (not UTF-8) names.
std::vector<uint8_t> safetensors_header(std::span<const TensorEntry> tensors, const Metadata& metadata,
                                        std::vector<size_t>& data_order);

// Throws Error(kInvalidArgument) where a count is not the product of its shape, and as safetensors_header().
void save_safetensors(const std::string& path, std::span<const TensorEntry> tensors, const Metadata& metadata = {});

}  // namespace kpd::io
