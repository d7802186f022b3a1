// io: one way in and out for all tensor files: .npy (one tensor), .safetensors (many), .f32 (raw little-endian floats).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kpd/base/limits.h"
#include "kpd/io/file.h"
#include "kpd/io/safetensors.h"
#include "kpd/io/scratch.h"
#include "kpd/io/tensor_entry.h"

namespace kpd::io {

enum class TensorFormat { kNpy, kSafetensors, kRawF32 };
const char* tensor_format_name(TensorFormat format);  // "npy", "safetensors", "f32"

// Which format a path's extension means; throws Error(kInvalidArgument) listing the known ones.
TensorFormat tensor_format_of(const std::string& path);

// A mapped file and its tensors, whose data lies in the mapping. Movable; thread-compatible.
struct TensorFile {
  MappedFile file;
  TensorFormat format = TensorFormat::kRawF32;
  std::vector<TensorEntry> tensors;
  Metadata metadata;               // of safetensors
  ScratchMemory copy;              // of an array that had to be reordered
  std::vector<std::string> notes;  // what a reader should be told, a line each, without the file's name
};

// Recognised by extension, and by content where the extension is unknown. A name and a content that contradict each other are
// an error. Throws Error(kIo | kCorruptData | kUnsupported | kLimitExceeded).
TensorFile load_tensors(const std::string& path, const Limits& limits = {});

struct LoadOptions {
  std::optional<TensorFormat> format;   // instead of what name and content say
  std::string scratch_folder = "/tmp";  // for copies of large arrays
  Limits limits{};
};
// The same of a file that is mapped already, whatever its name.
TensorFile load_tensors(MappedFile file, const LoadOptions& options);

// A file of these tensors (their data does not count yet), whose bytes are put in place before commit(). What a format cannot
// hold is Error(kInvalidArgument), as in save_tensors().
class TensorWriter {
 public:
  TensorWriter(const std::string& path, TensorFormat format, std::vector<TensorEntry> tensors, const Metadata& metadata,
               const std::string& scratch_folder, Existing existing = Existing::kReplace);
  // Of tensor i, aligned to its elements, zeros at first.
  std::span<uint8_t> bytes(size_t i) const { return parts_[i]; }
  void commit() { output_->commit(); }

 private:
  std::optional<MappedOutput> output_;
  std::vector<std::span<uint8_t>> parts_;
};

// Format by extension. .npy and .f32 take exactly one tensor; .f32 float32 only; .npy no bfloat16. Written beside and renamed.
void save_tensors(const std::string& path, std::span<const TensorEntry> tensors, const Metadata& metadata = {});

}  // namespace kpd::io
