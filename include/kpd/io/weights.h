// io: the weight tensors of a model, whatever files hold them: one GGUF file, one safetensors file, or a Hugging Face folder
// with model.safetensors or the shards of model.safetensors.index.json.
//
// Everything is mapped, nothing is copied. Names are those of the file.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kpd/base/block_type.h"
#include "kpd/base/limits.h"
#include "kpd/io/file.h"
#include "kpd/io/safetensors.h"

namespace kpd::io {

class GgufMetadata;

struct WeightEntry {
  std::string name;
  BlockType type = BlockType::kF32;
  std::vector<uint64_t> shape;     // outermost first: a matrix is [rows, columns], a block lies along the columns
  std::span<const uint8_t> bytes;  // in the mapping
  uint64_t count() const;          // product of the shape
};

// What to do with tensors of safetensors that no kernel can read where they lie: integers, float64, float8, or not aligned.
enum class OtherTensors { kRefuse, kKeep };

// Movable; thread-compatible.
class Weights {
 public:
  // Throws Error(kIo | kCorruptData | kUnsupported | kLimitExceeded) naming file, byte or tensor, and what was expected.
  static Weights open(const std::string& path, const Limits& limits = {}, OtherTensors others = OtherTensors::kRefuse);

  const std::string& name() const { return name_; }  // the path as given
  const std::vector<WeightEntry>& tensors() const { return tensors_; }
  const WeightEntry* find(std::string_view name) const;  // null if there is none
  uint64_t bytes() const;                                // of tensors()
  // With OtherTensors::kKeep, in the order of the files; names differ from those of tensors().
  const std::vector<SafetensorsRecord>& others() const { return others_; }

  // What a GGUF file says beside its tensors; null for other formats, and once it was released.
  const std::shared_ptr<const GgufMetadata>& gguf() const { return gguf_; }
  std::shared_ptr<const GgufMetadata> release_gguf() { return std::move(gguf_); }

  // Tells the system that the tensor's mapped pages will not be read again soon: what repacking a tensor costs in memory ends
  // here.
  void drop_pages(const WeightEntry& tensor) const;

  // Copies bytes of an entry. A file that has become shorter, or whose disk fails, is Error(kIo) and not the signal that
  // reading the mapping would raise. Thread-safe.
  void read(const uint8_t* from, std::span<uint8_t> to) const;

  // For the readers of the formats: a file whose bytes the entries point into.
  Weights(std::string name, std::vector<MappedFile> files, std::vector<WeightEntry> tensors,
          std::shared_ptr<const GgufMetadata> gguf = nullptr, std::vector<SafetensorsRecord> others = {});

 private:
  std::string name_;
  std::vector<MappedFile> files_;
  std::vector<WeightEntry> tensors_;
  std::unordered_map<std::string_view, size_t> by_name_;
  std::shared_ptr<const GgufMetadata> gguf_;
  std::vector<SafetensorsRecord> others_;
};

}  // namespace kpd::io
