// tools: the files that commands read and write: tensors by the extension of their name, and streams. Adapts kpd::io to the
// program's errors: a directory is wrong content, Ctrl-C waits until an output is whole.
#pragma once

#include <cstdint>
#include <cstdio>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli.h"
#include "kpd/gradient/message.h"
#include "kpd/io/file.h"
#include "kpd/io/tensors.h"

namespace kpd::tool {

// The options --force and --as, which every command that reads or writes tensors has for names that say nothing of a format.
struct FileOptions {
  bool force = false;
  std::string as;

  void add_force(CLI::App& app);
  io::Existing existing() const { return force ? io::Existing::kReplace : io::Existing::kKeep; }
  void add_as(CLI::App& app, const char* of_what);
  // The format of a file to be written: by the extension .npy, .safetensors or .f32, else by --as. Throws UsageError naming
  // `what`
  // ("OUT", "--out") where neither says it, or both.
  io::TensorFormat output(std::string_view what, const std::string& path) const;
  // Of a file to be read; none where the content has to tell, which only --as can say for a raw one. A file whose name has
  // another extension is refused.
  std::optional<io::TensorFormat> input(std::string_view what, const std::string& path) const;
};

// "-" for standard input or output by any of its names, /dev/stdin, /dev/fd/0, ...; else the path itself.
std::string input_path(const std::string& path);
std::string output_path(const std::string& path);
inline bool is_stream_name(const std::string& path) { return path == "-"; }
// Where a command says what it did: stdout, unless the output goes there.
FILE* report_stream(const std::string& out);
// Before the work. Throws UsageError where OUT is a file and `force` does not let it be replaced, or a terminal.
void check_output(std::string_view what, const std::string& path, bool force);
// Where large copies go: $TMPDIR, or /var/tmp.
std::string scratch_folder();

// A file of tensors as it lies there; what io says of it stands on stderr. Throws as io::load_tensors(), and
// Error(kCorruptData) for a directory.
struct TensorInput {
  io::TensorFile file;
  gradient::Manifest manifest;  // types as in the file
  std::vector<TensorView> views;
};
TensorInput open_tensors(const std::string& path, std::optional<io::TensorFormat> format);
TensorInput open_tensors(io::MappedFile file, const std::string& path, std::optional<io::TensorFormat> format);
// From now on what the program says on stdout stands on stderr: the output has gone to stdout.
void send_reports_to_stderr();

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

// Throws Error(kIo) if the path cannot be read, Error(kCorruptData) if it is a directory or its content is wrong,
// Error(kUnsupported) naming a tensor of an exact type.
Tensors read_tensors(const std::string& path);
// A file, a pipe or "-".
io::MappedFile map_input(const std::string& path);
// The same of a text, which may be typed at a terminal too.
io::MappedFile map_text(const std::string& path);

// Throws UsageError if the format cannot hold the manifest: only .safetensors holds more than one tensor and every type.
void check_holds(std::string_view what, const std::string& path, io::TensorFormat format, const gradient::Manifest& manifest);
void check_holds(std::string_view what, const std::string& path, const gradient::Manifest& manifest);  // by the extension

// Tensors on their way into a file: written beside the target and renamed when complete, so that neither a full disk
// (Error(kIo)) nor Ctrl-C leaves half a file. Types are those of the manifest as far as the format has them, else float32.
class TensorOutput {
 public:
  TensorOutput(const std::string& path, io::TensorFormat format, const gradient::Manifest& manifest,
               const io::Metadata& metadata, io::Existing existing = io::Existing::kReplace);
  // Where the values of tensor i, of no exact type, are to be put; then store() makes them what the file holds. One tensor at a
  // time.
  std::span<float> floats(size_t i);
  void store(size_t i);
  // Of a tensor of an exact type.
  std::span<uint8_t> bytes(size_t i) { return writer_.bytes(i); }
  void commit();
  // Finite values that were limited to the range of their type.
  uint64_t limited() const { return limited_; }

 private:
  std::vector<io::TensorEntry> entries_;
  io::TensorWriter writer_;
  io::ScratchMemory scratch_;
  uint64_t limited_ = 0;
};
// All at once, the format by the extension. Returns limited().
uint64_t write_tensors(const std::string& path, const gradient::Manifest& manifest, std::span<const float> values,
                       io::Existing existing);
// Says on stderr what write_tensors() returned, if it is not 0.
void note_limited(const std::string& path, uint64_t limited);
// Throws UsageError where `out` and `in` are one file, by whatever name: writing it would take the only copy of what it holds.
void refuse_same_file(std::string_view what, const std::string& out, const std::string& in);
// Throws Error(kIo) naming the option if no file can be made there: said before the work, not after it.
void check_writable(std::string_view what, const std::string& path);
}  // namespace kpd::tool
