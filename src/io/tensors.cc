// io: choice of the format, raw .f32, and what is checked for all formats alike.
#include "kpd/io/tensors.h"

#include <algorithm>
#include <bit>

#include "kpd/base/ascii.h"
#include "kpd/base/error.h"
#include "kpd/io/npy.h"
#include "io/saving.h"
#include "io/text.h"

namespace kpd::io {
namespace {

static_assert(std::endian::native == std::endian::little,
              "mapped tensors are little-endian; other machines need a byte swap here");

constexpr const char* kKnown = ".npy, .safetensors or .f32";

std::string extension_of(const std::string& path) {
  const size_t dot = path.rfind('.');
  const size_t slash = path.rfind('/');
  if (dot == std::string::npos || (slash != std::string::npos && dot < slash)) return "";
  return ascii_lower(path.substr(dot));
}

bool format_by_extension(const std::string& path, TensorFormat& format) {
  const std::string extension = extension_of(path);
  if (extension == ".npy") {
    format = TensorFormat::kNpy;
  } else if (extension == ".safetensors") {
    format = TensorFormat::kSafetensors;
  } else if (extension == ".f32") {
    format = TensorFormat::kRawF32;
  } else {
    return false;
  }
  return true;
}

TensorFormat detect(const std::string& path, std::span<const uint8_t> bytes) {
  TensorFormat format;
  const bool known = format_by_extension(path, format);
  if (looks_like_npy(bytes)) {
    if (known && format != TensorFormat::kNpy) {
      fail_at(ErrorCode::kCorruptData, printable_path(path), 0, "the content is .npy, expected .", tensor_format_name(format),
              " from the file's name");
    }
    return TensorFormat::kNpy;
  }
  if (known) return format;
  if (looks_like_safetensors(bytes)) return TensorFormat::kSafetensors;
  fail_at(ErrorCode::kUnsupported, printable_path(path), 0, "neither name nor content is one of ", kKnown);
}

TensorEntry parse_raw_f32(std::span<const uint8_t> bytes, const std::string& path, const Limits& limits) {
  if (bytes.size() % sizeof(float) != 0) {
    fail_at(ErrorCode::kCorruptData, printable_path(path), bytes.size(),
            "the file ends, expected a multiple of 4 bytes (float32)");
  }
  TensorEntry entry;
  entry.shape = {bytes.size() / sizeof(float)};
  entry.count = element_count(entry.shape, limits, printable_path(path));
  entry.data = bytes.data();
  return entry;
}

void check_format(const std::string& path, TensorFormat format, std::span<const TensorEntry> tensors) {
  if (format == TensorFormat::kSafetensors) return;
  if (tensors.size() != 1) {
    fail(ErrorCode::kInvalidArgument, printable_path(path), ": ", tensors.size(), " tensors, expected one for .",
         tensor_format_name(format), "; use .safetensors");
  }
  const DType dtype = tensors[0].dtype;
  if (format == TensorFormat::kRawF32 && dtype != DType::kFloat32) {
    fail(ErrorCode::kInvalidArgument, printable_path(path), ": elements of type ", dtype_name(dtype),
         ", expected float32 for .f32");
  }
}

}  // namespace

const char* tensor_format_name(TensorFormat format) {
  switch (format) {
    case TensorFormat::kNpy:
      return "npy";
    case TensorFormat::kSafetensors:
      return "safetensors";
    case TensorFormat::kRawF32:
      return "f32";
  }
  return "unknown";
}

TensorFormat tensor_format_of(const std::string& path) {
  TensorFormat format;
  if (!format_by_extension(path, format)) {
    fail(ErrorCode::kInvalidArgument, printable_path(path), ": extension '", printable(extension_of(path)), "', expected ",
         kKnown);
  }
  return format;
}

namespace {

void load_npy(TensorFile& result, const LoadOptions& options) {
  NpyArray array = read_npy(result.file.bytes(), result.file.name(), options.limits);
  if (const std::string note = npy_note(array); !note.empty()) result.notes.push_back(note);
  if (array.swapped || array.fortran_order) {
    result.copy = ScratchMemory(array.entry.count * dtype_bytes(array.entry.dtype), options.scratch_folder);
    copy_native(array, result.copy.bytes());
    array.entry.data = result.copy.bytes().data();
  }
  result.tensors.push_back(std::move(array.entry));
}

}  // namespace

TensorFile load_tensors(MappedFile file, const LoadOptions& options) {
  TensorFile result;
  result.file = std::move(file);
  const auto bytes = result.file.bytes();
  const std::string& path = result.file.name();
  result.format = options.format ? *options.format : detect(path, bytes);
  switch (result.format) {
    case TensorFormat::kNpy:
      load_npy(result, options);
      break;
    case TensorFormat::kSafetensors: {
      SafetensorsFile parsed = parse_safetensors(bytes, path, options.limits);
      result.tensors = std::move(parsed.tensors);
      result.metadata = std::move(parsed.metadata);
      break;
    }
    case TensorFormat::kRawF32:
      result.tensors.push_back(parse_raw_f32(bytes, path, options.limits));
      break;
  }
  return result;
}

TensorFile load_tensors(const std::string& path, const Limits& limits) {
  LoadOptions options;
  options.limits = limits;
  return load_tensors(map_file(path), options);
}

TensorWriter::TensorWriter(const std::string& path, TensorFormat format, std::vector<TensorEntry> tensors,
                           const Metadata& metadata, const std::string& scratch_folder, Existing existing) {
  check_format(path, format, tensors);
  std::vector<size_t> order = {0};
  std::vector<uint8_t> header;
  if (format == TensorFormat::kNpy) header = npy_header(tensors[0].dtype, tensors[0].shape);
  if (format == TensorFormat::kSafetensors) header = safetensors_header(tensors, metadata, order);
  uint64_t size = header.size();
  for (const TensorEntry& tensor : tensors) {
    const std::string where = str(printable_path(path), ": tensor '", printable(tensor.name), "'");
    if (__builtin_add_overflow(size, tensor.count * dtype_bytes(tensor.dtype), &size)) {
      fail(ErrorCode::kLimitExceeded, where, ": more than 2^64 bytes");
    }
  }
  output_.emplace(path, size, scratch_folder, existing);
  std::span<uint8_t> rest = output_->bytes();
  std::copy(header.begin(), header.end(), rest.begin());
  rest = rest.subspan(header.size());
  parts_.resize(tensors.size());
  for (const size_t i : order) {
    const uint64_t n = tensors[i].count * dtype_bytes(tensors[i].dtype);
    parts_[i] = rest.first(n);
    rest = rest.subspan(n);
  }
}

void save_tensors(const std::string& path, std::span<const TensorEntry> tensors, const Metadata& metadata) {
  const TensorFormat format = tensor_format_of(path);
  check_format(path, format, tensors);
  switch (format) {
    case TensorFormat::kNpy:
      save_npy(path, tensors[0]);
      return;
    case TensorFormat::kSafetensors:
      save_safetensors(path, tensors, metadata);
      return;
    case TensorFormat::kRawF32:
      check_for_saving(path, tensors[0]);
      write_file(path, {static_cast<const uint8_t*>(tensors[0].data), tensors[0].count * sizeof(float)});
      return;
  }
}

}  // namespace kpd::io
