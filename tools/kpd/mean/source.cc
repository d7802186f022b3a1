// tools: the clients of `kpd mean`, synthetic or files; see mean.h.
#include "mean/mean.h"

#include <fmt/format.h>

#include "client_files.h"
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

class FileSource final : public ClientSource {
 public:
  explicit FileSource(std::shared_ptr<const ClientFiles> files) : files_(std::move(files)) {}
  const gradient::Manifest& manifest() const override { return files_->float_manifest(); }
  uint64_t clients() const override { return files_->size(); }
  std::string client_name(uint64_t client) const override { return files_->path(client); }
  std::string description() const override { return fmt::format("{} file{}", files_->size(), files_->size() == 1 ? "" : "s"); }
  std::unique_ptr<ClientReader> reader() const override;
  const ClientFiles& files() const { return *files_; }

 private:
  std::shared_ptr<const ClientFiles> files_;
};

class FileReader final : public ClientReader {
 public:
  explicit FileReader(const ClientFiles& files) : files_(files) {}
  void start_trial(uint64_t, int) override {}
  void load(uint64_t client, std::span<float> dst, int threads) override { files_.load(client, dst, threads); }

 private:
  const ClientFiles& files_;
};

std::unique_ptr<ClientReader> FileSource::reader() const { return std::make_unique<FileReader>(*files_); }

}  // namespace

std::unique_ptr<ClientSource> synthetic_source(const gradient::SyntheticSpec& spec, const std::string& text, uint64_t dim,
                                               uint64_t clients) {
  return std::make_unique<SyntheticSource>(spec, text, dim, clients);
}

std::unique_ptr<ClientSource> file_source(std::shared_ptr<const ClientFiles> files) {
  return std::make_unique<FileSource>(std::move(files));
}

std::unique_ptr<ClientSource> file_source(const std::vector<std::string>& paths) {
  auto files = std::make_shared<const ClientFiles>(paths, FileOptions{});
  for (const gradient::TensorInfo& t : files->manifest()) {
    if (dtype_is_exact(t.dtype))
      fail(ErrorCode::kUnsupported, paths[0], ": tensor \"", t.name, "\" is ", dtype_name(t.dtype),
           ", expected floating point with --comm");
  }
  return file_source(std::move(files));
}

}  // namespace kpd::tool
