// tools: see client_files.h.
#include "client_files.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <unordered_map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "kpd/base/threads.h"
#include "kpd/gradient/file_decoder.h"
#include "kpd/gradient/stream_info.h"

namespace kpd::tool {
namespace {

constexpr size_t kMaxOpen = 1024;               // files at a time; a process has 65,530 mappings
constexpr size_t kPiece = size_t{1} << 20;      // numbers converted at a time
constexpr double kMaxExact = 9007199254740992;  // 2^53: doubles hold all integers up to here

bool is_stream(std::span<const uint8_t> bytes) { return bytes.size() >= 4 && std::memcmp(bytes.data(), "KPDG", 4) == 0; }

std::string shape_text(const gradient::TensorInfo& t) {
  return fmt::format("{} [{}]", dtype_name(t.dtype), fmt::join(t.shape, ", "));
}

}  // namespace

struct ClientFile::Stream {
  io::MappedFile file;
  gradient::StreamInfo info;
  std::string name;
};

ClientFile::ClientFile(const std::string& path, const FileOptions& options) {
  io::MappedFile file = map_input(path);
  if (is_stream(file.bytes())) {
    stream_ = std::make_unique<Stream>();
    stream_->name = path;
    stream_->file = std::move(file);
    stream_->info = gradient::read_stream_info(stream_->file.bytes(), path);
    if (!stream_->info.is_file)
      fail(ErrorCode::kUnsupported, path, ": byte 0: a message between machines, expected the file form");
    manifest_ = stream_->info.manifest;
  } else {
    if (path.ends_with(".kpdg"))
      fail(ErrorCode::kCorruptData, path, ": byte 0: expected the magic bytes of a compressed file ('KPDG')");
    tensors_ = open_tensors(std::move(file), path, options.input("FILE", path));
    manifest_ = tensors_.manifest;
  }
  if (manifest_.size() == 1 && manifest_[0].name.empty()) manifest_[0].name = "x";
}
ClientFile::~ClientFile() = default;
ClientFile::ClientFile(ClientFile&&) noexcept = default;

const gradient::StreamInfo& ClientFile::info() const { return stream_->info; }
uint64_t ClientFile::file_bytes() const {
  return compressed() ? stream_->file.bytes().size() : tensors_.file.file.bytes().size();
}
const io::Metadata& ClientFile::metadata() const { return compressed() ? stream_->info.metadata : tensors_.file.metadata; }

void ClientFile::floats(size_t i, std::span<float> dst, int threads) const {
  parallel_for((dst.size() + kPiece - 1) / kPiece, threads, [&](size_t piece, int) {
    const size_t begin = piece * kPiece;
    load_floats(tensors_.views[i], begin, dst.subspan(begin, std::min(kPiece, dst.size() - begin)));
  });
}

gradient::FileDecoder ClientFile::decoder(int threads) const {
  return {stream_->file.bytes(), stream_->info, threads, stream_->name};
}

std::span<const uint8_t> ClientFile::exact(size_t i) const {
  if (compressed()) return gradient::decode_file_exact(stream_->file.bytes(), stream_->info, i);
  const TensorView& view = tensors_.views[i];
  return {static_cast<const uint8_t*>(view.data), view.count * dtype_bytes(view.dtype)};
}

ClientFiles::ClientFiles(const std::vector<std::string>& paths, const FileOptions& options)
    : options_(options), places_(paths.size()), open_(paths.size()) {
  for (const std::string& path : paths) paths_.push_back(input_path(path));
  if (std::count_if(paths_.begin(), paths_.end(), is_stream_name) > 1) usage("-: standard input is one file, given twice");
  for (size_t i = 0; i < paths_.size(); ++i) {
    std::shared_ptr<const ClientFile> file = open(i);
    if (i == 0) {
      manifest_ = file->manifest();
      compressed_ = file->compressed();
    }
    if (file->compressed() != compressed_)
      usage(paths_[i], compressed_ ? ": is not compressed and " : ": is compressed and ", paths_[0],
            compressed_ ? " is" : " is not");
    match(i, file->manifest());
    // What is no file cannot be opened again.
    if (paths_.size() <= kMaxOpen || !std::filesystem::is_regular_file(paths_[i])) open_[i] = std::move(file);
  }
  for (const gradient::TensorInfo& t : manifest_) {
    if (dtype_is_exact(t.dtype)) {
      exact_elements_ += t.count();
    } else {
      float_manifest_.push_back(t);
    }
  }
  if (element_count(float_manifest_) == 0)
    fail(ErrorCode::kInvalidArgument, paths_[0], ": holds no floating-point numbers, expected some to average");
}

std::shared_ptr<const ClientFile> ClientFiles::open(size_t client) const {
  return std::make_shared<const ClientFile>(paths_[client], options_);
}

std::shared_ptr<const ClientFile> ClientFiles::file(size_t client) const {
  if (open_[client]) return open_[client];
  std::shared_ptr<const ClientFile> file = open(client);
  // It may have changed since.
  bool same = file->manifest().size() == manifest_.size();
  for (size_t i = 0; same && i < manifest_.size(); ++i) {
    const gradient::TensorInfo& t = file->manifest()[place_of(client, i)];
    same = t.name == manifest_[i].name && t.shape == manifest_[i].shape && t.dtype == manifest_[i].dtype;
  }
  if (!same) fail(ErrorCode::kMismatch, paths_[client], ": has changed while it was read");
  return file;
}

void ClientFiles::match(size_t client, const gradient::Manifest& other) {
  const std::string &path = paths_[client], &first = paths_[0];
  if (manifest_.size() != other.size()) {
    fail(ErrorCode::kMismatch, path, ": holds ", other.size(), " tensors, expected ", manifest_.size(), " as in ", first);
  }
  std::unordered_map<std::string_view, uint32_t> by_name;
  for (uint32_t i = 0; i < other.size(); ++i) by_name.emplace(other[i].name, i);
  std::vector<uint32_t> place(other.size());
  bool moved = false;
  for (size_t i = 0; i < manifest_.size(); ++i) {
    const auto found = by_name.find(manifest_[i].name);
    if (found == by_name.end()) {
      fail(ErrorCode::kMismatch, path, ": tensor ", i, " is named \"", other[i].name, "\", expected \"", manifest_[i].name,
           "\" as in ", first);
    }
    place[i] = found->second;
    moved = moved || place[i] != i;
    const gradient::TensorInfo& t = other[place[i]];
    if (t.shape != manifest_[i].shape || t.dtype != manifest_[i].dtype) {
      fail(ErrorCode::kMismatch, path, ": tensor \"", t.name, "\" is ", shape_text(t), ", expected ", shape_text(manifest_[i]),
           " as in ", first);
    }
  }
  if (moved) places_[client] = std::move(place);
}

void ClientFiles::load(size_t client, std::span<float> dst, int threads) const {
  const std::shared_ptr<const ClientFile> from = file(client);
  std::optional<gradient::FileDecoder> decoder;
  if (from->compressed()) decoder.emplace(from->decoder(threads));
  size_t offset = 0;
  for (size_t i = 0; i < manifest_.size(); ++i) {
    if (dtype_is_exact(manifest_[i].dtype)) continue;
    const size_t place = place_of(client, i);
    const std::span<float> values = dst.subspan(offset, manifest_[i].count());
    decoder ? decoder->decode(place, values) : from->floats(place, values, threads);
    offset += values.size();
  }
}

namespace {

// Sum of weight times element over the clients, rounded to the nearest integer.
template <class T>
void average(const std::vector<std::span<const uint8_t>>& clients, std::span<const double> weights, const std::string& name,
             std::span<uint8_t> dst) {
  for (size_t i = 0; i < dst.size() / sizeof(T); ++i) {
    double sum = 0;
    for (size_t c = 0; c < clients.size(); ++c) {
      T v;
      std::memcpy(&v, clients[c].data() + i * sizeof(T), sizeof(T));
      if (std::fabs(static_cast<double>(v)) > kMaxExact || (sizeof(T) == 8 && static_cast<double>(v) == kMaxExact)) {
        fail(ErrorCode::kUnsupported, "tensor '", name, "': element ", i, " is ", v,
             ", beyond 2^53, where a mean is not exact (--integers first takes the first file's)");
      }
      sum += weights[c] * static_cast<double>(v);
    }
    const T rounded = static_cast<T>(std::nearbyint(sum));
    std::memcpy(dst.data() + i * sizeof(T), &rounded, sizeof(T));
  }
}

}  // namespace

void ClientFiles::mean_of_integers(size_t tensor, std::span<const double> weights, std::span<uint8_t> dst) const {
  std::vector<std::shared_ptr<const ClientFile>> files;
  std::vector<std::span<const uint8_t>> parts;
  for (size_t c = 0; c < size(); ++c) {
    files.push_back(file(c));
    parts.push_back(files.back()->exact(place_of(c, tensor)));
  }
  const std::string& name = manifest_[tensor].name;
  switch (manifest_[tensor].dtype) {
    case DType::kInt8:
      return average<int8_t>(parts, weights, name, dst);
    case DType::kInt16:
      return average<int16_t>(parts, weights, name, dst);
    case DType::kInt32:
      return average<int32_t>(parts, weights, name, dst);
    case DType::kInt64:
      return average<int64_t>(parts, weights, name, dst);
    case DType::kUInt8:
    case DType::kBool:
      return average<uint8_t>(parts, weights, name, dst);
    case DType::kUInt16:
      return average<uint16_t>(parts, weights, name, dst);
    case DType::kUInt32:
      return average<uint32_t>(parts, weights, name, dst);
    case DType::kUInt64:
      return average<uint64_t>(parts, weights, name, dst);
    default:
      fail(ErrorCode::kUnsupported, "tensor '", name, "' is ", dtype_name(manifest_[tensor].dtype),
           ", which is not averaged (--integers first takes the first file's)");
  }
}

uint64_t ClientFiles::write_mean(const std::string& path, io::TensorFormat format, io::Existing existing,
                                 std::span<const double> mean, std::span<const double> weights, Integers integers) const {
  const std::shared_ptr<const ClientFile> first = file(0);
  TensorOutput output(path, format, manifest_, first->metadata(), existing);
  size_t offset = 0;
  for (size_t i = 0; i < manifest_.size(); ++i) {
    if (!dtype_is_exact(manifest_[i].dtype)) {
      const std::span<float> values = output.floats(i);
      for (size_t k = 0; k < values.size(); ++k) values[k] = static_cast<float>(mean[offset + k]);
      output.store(i);
      offset += values.size();
    } else if (integers == Integers::kFirst) {
      const std::span<const uint8_t> bytes = first->exact(i);
      std::copy(bytes.begin(), bytes.end(), output.bytes(i).begin());
    } else {
      mean_of_integers(i, weights, output.bytes(i));
    }
  }
  output.commit();
  return output.limited();
}

}  // namespace kpd::tool
