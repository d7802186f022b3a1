// llm: a checkpoint written anew: as a Hugging Face folder or as a GGUF file, in floats of 32 or 16 bits.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kpd/base/block_type.h"
#include "kpd/io/file.h"
#include "kpd/llm/checkpoint.h"

namespace kpd::llm {

enum class CheckpointFormat { kSafetensors, kGguf };

struct ExportOptions {
  CheckpointFormat format = CheckpointFormat::kSafetensors;
  BlockType type = BlockType::kF32;                // of matrices: F32, F16 or BF16; vectors of GGUF files are F32
  uint64_t shard_bytes = uint64_t{5'000'000'000};  // of data in one safetensors file
};

// What is to be written, planned and checked: configuration or metadata, tokenizer, and where every tensor comes from. The
// checkpoint must outlive it. Thread-compatible.
//
// A model read from what is written computes what this one computes, bit for bit in F32; the configuration is read again to
// make sure, and what the other kind of files has no name for is refused by the constructor: Error(kUnsupported) naming file
// and part. The one exception is a GGUF norm weight below 0.5 that no weight of a family with "1 + w" makes: it is rounded.
class CheckpointExport {
 public:
  CheckpointExport(const Checkpoint& checkpoint, const ExportOptions& options);
  ~CheckpointExport();

  uint64_t bytes() const;                         // of all tensors, as written
  const std::vector<std::string>& notes() const;  // what a reader of the new files should know, a sentence each

  // Writes the GGUF file `out`, or the folder `out`. The tensors are streamed: no more than one is in memory. on_progress,
  // which may be empty, is called with bytes that have been written; what it throws ends the writing. Whatever ends it early,
  // nothing is left behind, and what stood there stays. Throws Error(kIo), Error(kInvalidArgument) for an `out` that may not be
  // replaced, Error(kUnsupported) for a value beyond F16's range.
  void write(const std::string& out, io::Existing existing, const std::function<void(uint64_t bytes)>& on_progress = {}) const;

 private:
  struct Plan;
  std::unique_ptr<Plan> plan_;
};

// Whether a file of this name may stand in a folder that write() replaces.
bool is_checkpoint_file(std::string_view name);

}  // namespace kpd::llm
