// llm: tensors of a new file as parts of a checkpoint's. Private.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "llm/checkpoint_parts.h"

namespace kpd::llm {

// Rows of heads: as they lie, or from one order to the other.
enum class HeadOrder { kSame, kToInterleaved, kToHalves };

struct TensorPiece {
  const io::WeightEntry* from = nullptr;
  uint64_t first = 0, rows = 0;
  HeadOrder order = HeadOrder::kSame;
};

// A tensor to be written: pieces one below the other, or values that follow from the configuration, or bytes as they are.
struct TensorCopy {
  std::string name;
  std::vector<uint64_t> shape;
  BlockType type = BlockType::kF32;
  std::vector<TensorPiece> pieces{};
  float add = 0;
  std::vector<float> values{};
  const io::SafetensorsRecord* record = nullptr;
};

// The copies that make a file of `table`, which is that of `target`, from the checkpoint. Types are F32; the caller chooses.
// Throws Error(kUnsupported) for a tensor of the checkpoint that would be left out, and for one that the new file needs and the
// checkpoint lacks; `what` is the new kind of file, for these errors.
std::vector<TensorCopy> plan_copies(const Checkpoint::Parts& from, const ModelDescription& target, const TensorTable& table,
                                    std::string_view what);

uint64_t copied_bytes(const TensorCopy& copy);

// Gives `write` the bytes of the copy, piece after piece.
void copy_tensor(const Checkpoint::Parts& from, const TensorCopy& copy,
                 const std::function<void(std::span<const uint8_t>)>& write);

}  // namespace kpd::llm
