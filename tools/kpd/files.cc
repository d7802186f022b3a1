// tools: see files.h.
#include "files.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "cli.h"
#include "kpd/io/npy.h"
#include "progress.h"
#include "signals.h"

namespace kpd::tool {
namespace {

// A directory is readable, so it counts as wrong content, not as an unreadable path.
void refuse_directory(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    fail(ErrorCode::kCorruptData, path, ": is a directory, expected a file");
  }
}

}  // namespace

namespace {

constexpr std::string_view kFormats[] = {"npy", "safetensors", "f32"};
constexpr io::TensorFormat kFormatOf[] = {io::TensorFormat::kNpy, io::TensorFormat::kSafetensors, io::TensorFormat::kRawF32};

// None where the name has no extension. One that is no format's is an Error(kInvalidArgument), unless `any`.
std::optional<io::TensorFormat> format_by_name(const std::string& path, bool any) {
  if (is_stream_name(path) || std::filesystem::path(path).extension().empty()) return std::nullopt;
  try {
    return io::tensor_format_of(path);
  } catch (const Error&) {
    if (any) return std::nullopt;
    throw;
  }
}

// A pipe or a device may have any name.
bool is_special(const std::string& path) {
  std::error_code ignored;
  const auto type = std::filesystem::status(path, ignored).type();
  return is_stream_name(path) || type == std::filesystem::file_type::fifo || type == std::filesystem::file_type::character ||
         type == std::filesystem::file_type::socket;
}

}  // namespace

void FileOptions::add_force(CLI::App& app) { add(app, "--force", force, "replace a file that is there already"); }
void FileOptions::add_as(CLI::App& app, const char* of_what) {
  add(app, "--as", as, "npy|safetensors|f32", str("the format of ", of_what, ", where its name does not say it (a pipe, -)"));
}

io::TensorFormat FileOptions::output(std::string_view what, const std::string& path) const {
  std::optional<io::TensorFormat> wanted;
  if (!as.empty()) wanted = kFormatOf[parse_choice("--as", as, kFormats)];
  const auto named = as_usage(what, [&] { return format_by_name(path, wanted || is_special(path)); });
  if (named && wanted && *named != *wanted) usage("--as ", as, ": ", what, " ", path, " is named otherwise");
  if (!named && !wanted) usage(what, " ", path, ": its name does not say the format; give --as npy, safetensors or f32");
  return named ? *named : *wanted;
}

std::optional<io::TensorFormat> FileOptions::input(std::string_view what, const std::string& path) const {
  if (!as.empty()) return output(what, path);
  return as_usage(what, [&] { return format_by_name(path, is_special(path)); });
}

std::string input_path(const std::string& path) {
  return path == "/dev/stdin" || path == "/dev/fd/0" || path == "/proc/self/fd/0" ? "-" : path;
}

std::string output_path(const std::string& path) {
  return path == "/dev/stdout" || path == "/dev/fd/1" || path == "/proc/self/fd/1" ? "-" : path;
}

FILE* report_stream(const std::string& out) { return is_stream_name(out) ? stderr : stdout; }

void check_output(std::string_view what, const std::string& path, bool force) {
  // Only a device is opened to see: the reader of a pipe would take the end of that for the end of the data.
  std::error_code ignored;
  bool to_terminal = is_stream_name(path) && isatty(STDOUT_FILENO) == 1;
  if (std::filesystem::is_character_file(path, ignored)) {
    const int device = open(path.c_str(), O_WRONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
    to_terminal = device >= 0 && isatty(device) == 1;
    if (device >= 0) close(device);
  }
  if (to_terminal) usage(what, " ", path, ": is a terminal, which cannot show binary data; redirect it or name a file");
  if (!force && !is_stream_name(path) && std::filesystem::is_regular_file(path, ignored)) {
    usage(what, " ", path, ": is there already; --force replaces it");
  }
}

std::string scratch_folder() {
  const char* folder = std::getenv("TMPDIR");
  return folder != nullptr && *folder != 0 ? folder : "/var/tmp";
}

TensorInput open_tensors(const std::string& path, std::optional<io::TensorFormat> format) {
  return open_tensors(map_input(path), path, format);
}

void send_reports_to_stderr() {
  std::fflush(stdout);
  if (dup2(STDERR_FILENO, STDOUT_FILENO) < 0) fail(ErrorCode::kIo, "standard error: ", std::strerror(errno));
}

TensorInput open_tensors(io::MappedFile file, const std::string& path, std::optional<io::TensorFormat> format) {
  io::LoadOptions options;
  options.format = format;
  options.scratch_folder = scratch_folder();
  TensorInput input;
  try {
    input.file = io::load_tensors(std::move(file), options);
  } catch (const Error& e) {
    const bool unknown = std::string_view(e.what()).find("neither name nor content") != std::string_view::npos;
    if (unknown) fail(e.code(), e.what(), "; --as npy, safetensors or f32 says it");
    throw;
  }
  for (const std::string& note : input.file.notes) std::fprintf(stderr, "note: %s: %s\n", path.c_str(), note.c_str());
  for (const io::TensorEntry& entry : input.file.tensors) {
    input.manifest.push_back({entry.name, entry.dtype, entry.shape});
    input.views.push_back(entry.view());
  }
  return input;
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
  const TensorInput input = open_tensors(path, std::nullopt);
  Tensors tensors;
  tensors.manifest = input.manifest;
  for (const gradient::TensorInfo& info : input.manifest) {
    if (dtype_is_exact(info.dtype))
      fail(ErrorCode::kUnsupported, path, ": tensor '", info.name, "' is ", dtype_name(info.dtype),
           ", expected floating point here");
  }
  tensors.values.resize(element_count(tensors.manifest));
  size_t offset = 0;
  for (const TensorView& view : input.views) {
    load_floats(view, 0, std::span(tensors.values).subspan(offset, view.count));
    offset += view.count;
  }
  return tensors;
}

io::MappedFile map_input(const std::string& path) {
  refuse_directory(path);
  if (is_stream_name(path) && isatty(STDIN_FILENO) == 1)
    usage("-: standard input is a terminal, which brings no binary data; redirect it or name a file");
  return io::map_input(path, scratch_folder());
}

io::MappedFile map_text(const std::string& path) {
  refuse_directory(path);
  const std::string input = input_path(path);
  const Progress progress(is_stream_name(input) ? "standard input" : "read", 0, "");  // who is slow is whoever writes a pipe
  return io::map_input(input, scratch_folder());
}

namespace {

// What a file of the format holds of the type; none if it cannot.
std::optional<DType> stored_type(io::TensorFormat format, DType dtype) {
  if (format == io::TensorFormat::kSafetensors) return dtype;
  const bool exact = dtype_is_exact(dtype), float8 = dtype == DType::kFloat8E4M3 || dtype == DType::kFloat8E5M2;
  if (exact && (float8 || format == io::TensorFormat::kRawF32)) return std::nullopt;
  return format == io::TensorFormat::kRawF32 || dtype == DType::kBFloat16 ? DType::kFloat32 : dtype;
}

std::vector<io::TensorEntry> entries_of(io::TensorFormat format, const gradient::Manifest& manifest) {
  std::vector<io::TensorEntry> entries;
  for (const gradient::TensorInfo& info : manifest) {
    entries.push_back({info.name, stored_type(format, info.dtype).value_or(info.dtype), info.shape, nullptr, info.count()});
  }
  return entries;
}

// Values that would be rounded to infinity become the largest of the type; those that are infinite stay so.
uint64_t limit_to(DType dtype, std::span<float> values) {
  if (dtype != DType::kFloat16 && dtype != DType::kBFloat16) return 0;
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

void check_holds(std::string_view what, const std::string& path, io::TensorFormat format, const gradient::Manifest& manifest) {
  if (format == io::TensorFormat::kSafetensors) return;
  if (manifest.size() != 1) {
    usage(what, " ", path, ": .", io::tensor_format_name(format), " holds one tensor and there are ", manifest.size(),
          "; use .safetensors");
  }
  if (!stored_type(format, manifest[0].dtype)) {
    usage(what, " ", path, ": .", io::tensor_format_name(format), " has no ", dtype_name(manifest[0].dtype),
          "; use .safetensors");
  }
}

void check_holds(std::string_view what, const std::string& path, const gradient::Manifest& manifest) {
  check_holds(what, path, as_usage(what, [&] { return io::tensor_format_of(path); }), manifest);
}

TensorOutput::TensorOutput(const std::string& path, io::TensorFormat format, const gradient::Manifest& manifest,
                           const io::Metadata& metadata, io::Existing existing)
    : entries_(entries_of(format, manifest)), writer_(path, format, entries_, metadata, scratch_folder(), existing) {}

std::span<float> TensorOutput::floats(size_t i) {
  const std::span<uint8_t> bytes = writer_.bytes(i);
  if (entries_[i].dtype == DType::kFloat32) return {reinterpret_cast<float*>(bytes.data()), entries_[i].count};
  if (scratch_.as<float>().size() < entries_[i].count) {
    scratch_ = {};
    scratch_ = io::ScratchMemory(entries_[i].count * sizeof(float), scratch_folder());
  }
  return scratch_.as<float>().first(entries_[i].count);
}

void TensorOutput::store(size_t i) {
  const DType dtype = entries_[i].dtype;
  if (dtype == DType::kFloat32) return;
  const std::span<float> values = floats(i);
  limited_ += limit_to(dtype, values);
  store_floats(values, dtype, writer_.bytes(i).data());
}

void TensorOutput::commit() {
  const DeferInterrupt defer;
  check_interrupted();
  writer_.commit();
}

uint64_t write_tensors(const std::string& path, const gradient::Manifest& manifest, std::span<const float> values,
                       io::Existing existing) {
  TensorOutput output(path, io::tensor_format_of(path), manifest, {}, existing);
  const auto spans = tensor_spans(manifest, values);
  for (size_t i = 0; i < manifest.size(); ++i) {
    std::copy(spans[i].begin(), spans[i].end(), output.floats(i).begin());
    output.store(i);
  }
  output.commit();
  return output.limited();
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

}  // namespace kpd::tool
