// tools: the clients of `kpd mean`, synthetic or files; see mean.h.
#include "mean.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "files.h"
#include "kpd/base/error.h"

namespace kpd::tool {
namespace {

class SyntheticReader final : public ClientReader {
 public:
  SyntheticReader(const gradient::SyntheticSpec& spec, uint64_t dim) : clients_(spec, dim) {}
  void start_trial(uint64_t trial, int threads) override { clients_.start_trial(trial, threads); }
  void load(uint64_t client, std::span<float> dst, int threads) override { clients_.client(client, dst, threads); }

 private:
  gradient::SyntheticClients clients_;
};

class SyntheticSource final : public ClientSource {
 public:
  SyntheticSource(const gradient::SyntheticSpec& spec, const std::string& text, uint64_t dim, uint64_t clients)
      : spec_(spec), text_(text), clients_(clients), manifest_{{"x", DType::kFloat32, {dim}}} {}
  const gradient::Manifest& manifest() const override { return manifest_; }
  uint64_t clients() const override { return clients_; }
  std::string client_name(uint64_t client) const override { return fmt::format("client {}", client); }
  std::string description() const override {
    return spec_.correlation > 0 ? fmt::format("{}, correlation {:g}", text_, spec_.correlation) : text_;
  }
  std::unique_ptr<ClientReader> reader() const override {
    return std::make_unique<SyntheticReader>(spec_, manifest_[0].shape[0]);
  }

 private:
  gradient::SyntheticSpec spec_;
  std::string text_;
  uint64_t clients_;
  gradient::Manifest manifest_;
};

// Files stay in memory up to this size together; beyond it they are read again for every use.
constexpr uint64_t kCacheBytes = uint64_t{1} << 30;

void check_same(const gradient::Manifest& first, const std::string& first_path, const gradient::Manifest& other,
                const std::string& path) {
  if (first.size() != other.size()) {
    fail(ErrorCode::kMismatch, path, ": holds ", other.size(), " tensors, expected ", first.size(), " as in ", first_path);
  }
  for (size_t i = 0; i < first.size(); ++i) {
    if (other[i].name != first[i].name) {
      fail(ErrorCode::kMismatch, path, ": tensor ", i, " is named \"", other[i].name, "\", expected \"", first[i].name,
           "\" as in ", first_path);
    }
    if (other[i].shape != first[i].shape || other[i].dtype != first[i].dtype) {
      fail(ErrorCode::kMismatch, path, ": tensor \"", other[i].name, "\" is ", dtype_name(other[i].dtype),
           fmt::format(" [{}]", fmt::join(other[i].shape, ", ")), ", expected ", dtype_name(first[i].dtype),
           fmt::format(" [{}]", fmt::join(first[i].shape, ", ")), " as in ", first_path);
    }
  }
}

class FileSource final : public ClientSource {
 public:
  explicit FileSource(const std::vector<std::string>& paths) : paths_(paths), cache_(paths.size()) {
    uint64_t held = 0;
    for (size_t i = 0; i < paths_.size(); ++i) {
      Tensors tensors = read_named(i);
      if (i == 0) manifest_ = tensors.manifest;
      check_same(manifest_, paths_[0], tensors.manifest, paths_[i]);
      held += tensors.values.size() * sizeof(float);
      if (held <= kCacheBytes) cache_[i] = std::move(tensors.values);
    }
    if (element_count(manifest_) == 0) fail(ErrorCode::kInvalidArgument, paths_[0], ": holds no numbers");
  }
  const gradient::Manifest& manifest() const override { return manifest_; }
  uint64_t clients() const override { return paths_.size(); }
  std::string client_name(uint64_t client) const override { return paths_[client]; }
  std::string description() const override { return fmt::format("{} file{}", paths_.size(), paths_.size() == 1 ? "" : "s"); }
  std::unique_ptr<ClientReader> reader() const override;
  void load(uint64_t client, std::span<float> dst) const {
    if (!cache_[client].empty()) {
      std::copy(cache_[client].begin(), cache_[client].end(), dst.begin());
      return;
    }
    const Tensors tensors = read_named(client);
    check_same(manifest_, paths_[0], tensors.manifest, paths_[client]);  // it may have changed since
    std::copy(tensors.values.begin(), tensors.values.end(), dst.begin());
  }

 private:
  // A .npy or .f32 file names no tensor: all clients' are called x.
  Tensors read_named(size_t i) const {
    Tensors tensors = read_tensors(paths_[i]);
    if (io::tensor_format_of(paths_[i]) != io::TensorFormat::kSafetensors) tensors.manifest.at(0).name = "x";
    return tensors;
  }

  std::vector<std::string> paths_;
  std::vector<std::vector<float>> cache_;
  gradient::Manifest manifest_;
};

class FileReader final : public ClientReader {
 public:
  explicit FileReader(const FileSource& source) : source_(source) {}
  void start_trial(uint64_t, int) override {}
  void load(uint64_t client, std::span<float> dst, int) override { source_.load(client, dst); }

 private:
  const FileSource& source_;
};

std::unique_ptr<ClientReader> FileSource::reader() const { return std::make_unique<FileReader>(*this); }

}  // namespace

std::unique_ptr<ClientSource> synthetic_source(const gradient::SyntheticSpec& spec, const std::string& text, uint64_t dim,
                                               uint64_t clients) {
  return std::make_unique<SyntheticSource>(spec, text, dim, clients);
}

std::unique_ptr<ClientSource> file_source(const std::vector<std::string>& paths) { return std::make_unique<FileSource>(paths); }

}  // namespace kpd::tool
