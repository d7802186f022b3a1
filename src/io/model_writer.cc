// io: writing models a tensor at a time.
#include "kpd/io/model_writer.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "kpd/base/bytes.h"
#include "kpd/base/error.h"
#include "kpd/io/safetensors.h"
#include "io/gguf_format.h"
#include "io/gguf_header.h"
#include "io/text.h"

namespace kpd::io {

GgufWriter::GgufWriter(const std::string& path, const GgufMetadata& metadata, std::vector<GgufTensor> tensors,
                       Existing existing)
    : path_(printable_path(path)), tensors_(std::move(tensors)), file_(path, existing) {
  file_.write(gguf_header(metadata, tensors_));
  left_ = tensors_.empty() ? 0 : gguf_tensor_bytes(tensors_[0]);
  if (left_ == 0) next();
}

// From a tensor that is complete to one that is not.
void GgufWriter::next() {
  constexpr uint8_t kZeros[kDefaultAlignment] = {};
  while (left_ == 0 && at_ < tensors_.size()) {
    const uint64_t over = gguf_tensor_bytes(tensors_[at_]) % kDefaultAlignment;
    if (over != 0) file_.write(std::span<const uint8_t>(kZeros).first(kDefaultAlignment - over));
    if (++at_ < tensors_.size()) left_ = gguf_tensor_bytes(tensors_[at_]);
  }
}

void GgufWriter::write(std::span<const uint8_t> bytes) {
  while (!bytes.empty()) {
    if (left_ == 0) fail(ErrorCode::kInvalidArgument, path_, ": more bytes than its tensors have");
    const auto n = static_cast<size_t>(std::min<uint64_t>(left_, bytes.size()));
    file_.write(bytes.first(n));
    bytes = bytes.subspan(n);
    left_ -= n;
    next();
  }
}

void GgufWriter::commit() {
  if (at_ < tensors_.size())
    fail(ErrorCode::kInvalidArgument, path_, ": '", printable(tensors_[at_].name), "' is not complete");
  file_.commit();
}

SafetensorsWriter::SafetensorsWriter(const std::string& folder, std::vector<TensorEntry> tensors, const Metadata& metadata,
                                     uint64_t shard_bytes)
    : folder_(folder), tensors_(std::move(tensors)) {
  Limits limits;
  limits.max_elements = UINT64_MAX / 16;
  uint64_t in_shard = 0;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const TensorEntry& t = tensors_[i];
    if (element_count(t.shape, limits, printable(t.name)) != t.count) {
      fail(ErrorCode::kInvalidArgument, "tensor '", printable(t.name), "' has ", t.count,
           " elements, expected the product of its shape");
    }
    if (shards_.empty() || (in_shard != 0 && bytes_of(i) > shard_bytes - std::min(shard_bytes, in_shard))) {
      shards_.emplace_back();
      in_shard = 0;
    }
    shards_.back().tensors.push_back(i);
    in_shard += bytes_of(i);
  }
  if (shards_.empty()) shards_.emplace_back();
  const auto number = [](size_t n) {
    const std::string digits = std::to_string(n);
    return std::string(digits.size() < 5 ? 5 - digits.size() : 0, '0') + digits;
  };
  for (size_t s = 0; s < shards_.size(); ++s) {
    Shard& shard = shards_[s];
    shard.name = shards_.size() == 1 ? "model.safetensors"
                                     : str("model-", number(s + 1), "-of-", number(shards_.size()), ".safetensors");
    std::vector<TensorEntry> entries;
    for (const size_t i : shard.tensors) entries.push_back(tensors_[i]);
    std::vector<size_t> order;
    shard.header = safetensors_header(entries, metadata, order);
    for (const size_t i : order) order_.push_back(shard.tensors[i]);
  }
  shard_left_ = shards_[0].tensors.size();
  left_ = order_.empty() ? 0 : bytes_of(order_[0]);
  next();
}

SafetensorsWriter::~SafetensorsWriter() = default;

uint64_t SafetensorsWriter::bytes_of(size_t tensor) const {
  return tensors_[tensor].count * dtype_bytes(tensors_[tensor].dtype);
}

// From a tensor that is complete to one that is not, through the ends of shards.
void SafetensorsWriter::next() {
  while (shard_ < shards_.size()) {
    if (file_ == nullptr) {
      file_ = std::make_unique<AtomicFile>((std::filesystem::path(folder_) / shards_[shard_].name).string());
      file_->write(shards_[shard_].header);
    }
    if (left_ != 0) return;
    if (shard_left_ > 0) {
      --shard_left_;
      if (++at_ < order_.size()) left_ = bytes_of(order_[at_]);
    }
    if (shard_left_ > 0) continue;
    file_->commit();
    file_.reset();
    if (++shard_ < shards_.size()) shard_left_ = shards_[shard_].tensors.size();
  }
}

void SafetensorsWriter::write(std::span<const uint8_t> bytes) {
  while (!bytes.empty()) {
    if (left_ == 0 || file_ == nullptr)
      fail(ErrorCode::kInvalidArgument, printable_path(folder_), ": more bytes than its tensors have");
    const auto n = static_cast<size_t>(std::min<uint64_t>(left_, bytes.size()));
    file_->write(bytes.first(n));
    bytes = bytes.subspan(n);
    left_ -= n;
    next();
  }
}

std::string SafetensorsWriter::index_text() const {
  nlohmann::json map = nlohmann::json::object();
  uint64_t total = 0;
  for (const Shard& shard : shards_) {
    for (const size_t i : shard.tensors) {
      map[tensors_[i].name] = shard.name;
      total += bytes_of(i);
    }
  }
  return nlohmann::json({{"metadata", {{"total_size", total}}}, {"weight_map", map}}).dump(2) + "\n";
}

void SafetensorsWriter::commit() {
  if (shard_ < shards_.size())
    fail(ErrorCode::kInvalidArgument, printable_path(folder_), ": '", printable(tensors_[order_[at_]].name),
         "' is not complete");
  if (shards_.size() == 1) return;
  const std::string text = index_text();
  write_file((std::filesystem::path(folder_) / "model.safetensors.index.json").string(), text_bytes(text));
}

std::vector<std::string> SafetensorsWriter::files() const {
  std::vector<std::string> names;
  for (const Shard& shard : shards_) names.push_back(shard.name);
  if (names.size() > 1) names.emplace_back("model.safetensors.index.json");
  return names;
}

}  // namespace kpd::io
