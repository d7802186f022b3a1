// tools: see files.h.
#include "files.h"

#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
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

void note_limited(const std::string& path, uint64_t limited) {
  if (limited != 0)
    std::fprintf(stderr, "note: %s: %llu numbers beyond the range of their type were clamped\n", path.c_str(),
                 static_cast<unsigned long long>(limited));
}

void refuse_same_file(std::string_view what, const std::string& out, const std::string& in) {
  std::error_code ignored;
  if (std::filesystem::equivalent(out, in, ignored)) usage(what, " ", out, ": is the same file as ", in);
}

void check_writable(std::string_view what, const std::string& path) {
  std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (folder.empty()) folder = ".";
  std::error_code ignored;
  if (!std::filesystem::is_directory(folder, ignored))
    fail(ErrorCode::kIo, what, " ", path, ": there is no folder ", folder.string());
  if (std::filesystem::is_directory(path, ignored)) fail(ErrorCode::kIo, what, " ", path, ": is a folder, expected a file");
  // A device is written directly, a file beside its place.
  const bool exists = std::filesystem::exists(path, ignored) && !std::filesystem::is_regular_file(path, ignored);
  if (access(exists ? path.c_str() : folder.c_str(), W_OK) != 0)
    fail(ErrorCode::kIo, what, " ", path, ": ", std::strerror(errno));
}

namespace {

// Values that would be rounded to infinity become the largest of the type; those that are infinite stay so.
uint64_t limit_to(DType dtype, std::span<float> values) {
  const float most = dtype == DType::kFloat16 ? 65504.0f : std::bit_cast<float>(0x7f7f0000u);
  uint64_t limited = 0;
  for (float& v : values) {
    if (std::fabs(v) <= most || !std::isfinite(v)) continue;
    v = std::copysign(most, v);
    ++limited;
  }
  return limited;
}

}  // namespace

uint64_t write_tensors(const std::string& path, const gradient::Manifest& manifest, std::span<const float> values) {
  const bool keeps_dtypes = io::tensor_format_of(path) == io::TensorFormat::kSafetensors;
  const auto spans = tensor_spans(manifest, values);
  std::vector<std::vector<uint8_t>> converted(manifest.size());
  std::vector<io::TensorEntry> entries;
  uint64_t limited = 0;
  for (size_t i = 0; i < manifest.size(); ++i) {
    const DType dtype = keeps_dtypes ? manifest[i].dtype : DType::kFloat32;
    const void* data = spans[i].data();
    if (dtype != DType::kFloat32) {
      converted[i].resize(spans[i].size() * dtype_bytes(dtype));
      std::vector<float> in_range(spans[i].begin(), spans[i].end());
      limited += limit_to(dtype, in_range);
      store_floats(in_range, dtype, converted[i].data());
      data = converted[i].data();
    }
    entries.push_back({manifest[i].name, dtype, manifest[i].shape, data, spans[i].size()});
  }
  const DeferInterrupt defer;
  io::save_tensors(path, entries);
  check_interrupted();
  return limited;
}

void write_bytes(const std::string& path, std::span<const uint8_t> bytes) {
  const DeferInterrupt defer;
  io::AtomicFile file(path);
  file.write(bytes);
  check_interrupted();
  file.commit();
}

}  // namespace kpd::tool
