// tools: the files of `kpd mean`, one a client, tensors or compressed; and the file that their mean becomes.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "files.h"
#include "kpd/gradient/message.h"
#include "kpd/gradient/stream_info.h"
#include "kpd/gradient/file_decoder.h"

namespace kpd::tool {

// One client's file, mapped. Thread-compatible.
class ClientFile {
 public:
  ClientFile(const std::string& path, const FileOptions& options);
  ~ClientFile();
  ClientFile(ClientFile&&) noexcept;

  bool compressed() const { return stream_ != nullptr; }
  const gradient::StreamInfo& info() const;  // of a compressed one
  uint64_t file_bytes() const;
  const gradient::Manifest& manifest() const { return manifest_; }
  const io::Metadata& metadata() const;
  // The values of tensor i, of no exact type, of a file that is not compressed.
  void floats(size_t i, std::span<float> dst, int threads) const;
  // Of a compressed one; the file must outlive it.
  gradient::FileDecoder decoder(int threads) const;
  // The elements of tensor i, of an exact type.
  std::span<const uint8_t> exact(size_t i) const;

 private:
  struct Stream;
  TensorInput tensors_;
  std::unique_ptr<Stream> stream_;
  gradient::Manifest manifest_;  // a tensor without a name is called x
};

enum class Integers : uint8_t { kFirst, kMean };

// Files that hold the same tensors, in whatever order. Thread-safe but for opening.
class ClientFiles {
 public:
  // Opens all of them; throws Error(kMismatch) naming the file and the tensor that differs from the first file's, UsageError
  // where some are compressed and some are not.
  ClientFiles(const std::vector<std::string>& paths, const FileOptions& options);

  size_t size() const { return paths_.size(); }
  const std::string& path(size_t client) const { return paths_[client]; }
  bool compressed() const { return compressed_; }
  // All tensors in the first file's order, and those of them that hold floating point.
  const gradient::Manifest& manifest() const { return manifest_; }
  const gradient::Manifest& float_manifest() const { return float_manifest_; }
  uint64_t exact_elements() const { return exact_elements_; }
  // A client's file; kept open as long as there are few of them.
  std::shared_ptr<const ClientFile> file(size_t client) const;
  // A client's floating-point tensors back to back.
  void load(size_t client, std::span<float> dst, int threads) const;
  // Writes the mean: floating point from `mean` (float_manifest() back to back), the rest by `integers`. Weights sum to 1.
  // Returns how many values were limited. Throws Error(kUnsupported) for an integer beyond 2^53 that is to be averaged.
  uint64_t write_mean(const std::string& path, io::TensorFormat format, io::Existing existing, std::span<const double> mean,
                      std::span<const double> weights, Integers integers) const;

 private:
  std::shared_ptr<const ClientFile> open(size_t client) const;
  void match(size_t client, const gradient::Manifest& other);
  // Where a client's file has that tensor.
  size_t place_of(size_t client, size_t tensor) const { return places_[client].empty() ? tensor : places_[client][tensor]; }
  void mean_of_integers(size_t tensor, std::span<const double> weights, std::span<uint8_t> dst) const;

  std::vector<std::string> paths_;
  FileOptions options_;
  bool compressed_ = false;
  gradient::Manifest manifest_, float_manifest_;
  uint64_t exact_elements_ = 0;
  std::vector<std::vector<uint32_t>> places_;  // of a client in another order, else empty
  std::vector<std::shared_ptr<const ClientFile>> open_;
};

}  // namespace kpd::tool
