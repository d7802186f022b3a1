// tools: see files.h.
#include "files.h"

#include <filesystem>

#include "cli.h"
#include "kpd/io/npy.h"
#include "signals.h"

namespace kpd::tool {
namespace {

// A directory is readable, so it counts as wrong content, not as an unreadable path.
void refuse_directory(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    fail(ErrorCode::kCorruptData, path, ": byte 0: is a directory, expected a file");
  }
}

}  // namespace

io::TensorFormat tensor_format(std::string_view what, const std::string& path) {
  return as_usage(what, [&] { return io::tensor_format_of(path); });
}

uint64_t element_count(const gradient::Manifest& manifest) {
  uint64_t total = 0;
  for (const gradient::TensorInfo& info : manifest) {
    if (__builtin_add_overflow(total, info.count(), &total)) fail(ErrorCode::kLimitExceeded, "more than 2^64 elements");
  }
  return total;
}

std::vector<TensorView> tensor_views(const gradient::Manifest& manifest, std::span<const float> values) {
  std::vector<TensorView> views;
  for (const std::span<const float> part : tensor_spans(manifest, values)) views.emplace_back(part);
  return views;
}

Tensors read_tensors(const std::string& path) {
  refuse_directory(path);
  const io::TensorFile file = io::load_tensors(path);
  Tensors tensors;
  for (const io::TensorEntry& entry : file.tensors) tensors.manifest.push_back({entry.name, entry.dtype, entry.shape});
  tensors.values.resize(element_count(tensors.manifest));
  size_t offset = 0;
  for (const io::TensorEntry& entry : file.tensors) {
    load_floats(entry.view(), 0, std::span(tensors.values).subspan(offset, entry.count));
    offset += entry.count;
  }
  return tensors;
}

io::MappedFile map_input(const std::string& path) {
  refuse_directory(path);
  return io::map_file(path);
}

void check_holds(std::string_view what, const std::string& path, const gradient::Manifest& manifest) {
  const io::TensorFormat format = tensor_format(what, path);
  if (format == io::TensorFormat::kSafetensors || manifest.size() == 1) return;
  usage(what, " ", path, ": .", io::tensor_format_name(format), " holds one tensor and there are ", manifest.size(),
        "; use .safetensors");
}

void write_tensors(const std::string& path, const gradient::Manifest& manifest, std::span<const float> values) {
  const bool keeps_dtypes = io::tensor_format_of(path) == io::TensorFormat::kSafetensors;
  const auto spans = tensor_spans(manifest, values);
  std::vector<std::vector<uint8_t>> converted(manifest.size());
  std::vector<io::TensorEntry> entries;
  for (size_t i = 0; i < manifest.size(); ++i) {
    const DType dtype = keeps_dtypes ? manifest[i].dtype : DType::kFloat32;
    const void* data = spans[i].data();
    if (dtype != DType::kFloat32) {
      converted[i].resize(spans[i].size() * dtype_bytes(dtype));
      store_floats(spans[i], dtype, converted[i].data());
      data = converted[i].data();
    }
    entries.push_back({manifest[i].name, dtype, manifest[i].shape, data, spans[i].size()});
  }
  const DeferInterrupt defer;
  io::save_tensors(path, entries);
  check_interrupted();
}

void write_bytes(const std::string& path, std::span<const uint8_t> bytes) {
  const DeferInterrupt defer;
  io::AtomicFile file(path);
  file.write(bytes);
  check_interrupted();
  file.commit();
}

}  // namespace kpd::tool
