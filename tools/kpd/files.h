// tools: the files that commands read and write: tensors by the extension of their name, and streams. Adapts kpd::io to the
// program's errors: a directory is wrong content, Ctrl-C waits until an output is whole.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kpd/gradient/message.h"
#include "kpd/io/file.h"
#include "kpd/io/tensors.h"

namespace kpd::tool {

// By the extension .npy, .safetensors or .f32. Throws UsageError naming `what` ("IN", "--out") otherwise.
io::TensorFormat tensor_format(std::string_view what, const std::string& path);

// Tensors of one file as floats, back to back in one buffer (exact for bfloat16 and float16).
struct Tensors {
  gradient::Manifest manifest;  // dtypes as in the file
  std::vector<float> values;
};

uint64_t element_count(const gradient::Manifest& manifest);
// Tensor i's part of a buffer that holds all of them back to back.
template <class T>
std::vector<std::span<T>> tensor_spans(const gradient::Manifest& manifest, std::span<T> values) {
  std::vector<std::span<T>> spans;
  size_t offset = 0;
  for (const gradient::TensorInfo& info : manifest) {
    spans.push_back(values.subspan(offset, info.count()));
    offset += info.count();
  }
  return spans;
}
std::vector<TensorView> tensor_views(const gradient::Manifest& manifest, std::span<const float> values);

// Throws Error(kIo) if the path cannot be read, Error(kCorruptData) if it is a directory or its content is wrong.
Tensors read_tensors(const std::string& path);
io::MappedFile map_input(const std::string& path);

// Throws UsageError if the format of `path` cannot hold the manifest: only .safetensors holds more than one tensor.
void check_holds(std::string_view what, const std::string& path, const gradient::Manifest& manifest);
// Written beside the target and renamed when complete, so that neither a full disk (Error(kIo)) nor Ctrl-C leaves half a file.
// safetensors keep the dtypes of the manifest, the others are float32. Returns how many finite values were limited to the range
// of their type.
uint64_t write_tensors(const std::string& path, const gradient::Manifest& manifest, std::span<const float> values);
// Says on stderr what write_tensors() returned, if it is not 0.
void note_limited(const std::string& path, uint64_t limited);
// Throws UsageError where `out` and `in` are one file, by whatever name: writing it would take the only copy of what it holds.
void refuse_same_file(std::string_view what, const std::string& out, const std::string& in);
// Throws Error(kIo) naming the option if no file can be made there: said before the work, not after it.
void check_writable(std::string_view what, const std::string& path);
void write_bytes(const std::string& path, std::span<const uint8_t> bytes);

}  // namespace kpd::tool
