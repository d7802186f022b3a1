// io: the files of a model, written a tensor at a time: what is written must be known before, what it holds comes later, in
// pieces of any size. Nothing of it is kept in memory.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kpd/base/block_type.h"
#include "kpd/io/file.h"
#include "kpd/io/gguf.h"
#include "kpd/io/tensor_entry.h"

namespace kpd::io {

// What a GGUF file says of a tensor. A block lies along the last dimension.
struct GgufTensor {
  std::string name;
  BlockType type = BlockType::kF32;
  std::vector<uint64_t> shape;
};

// A GGUF file, version 3, alignment 32, written beside the target and renamed by commit(). Throws Error(kInvalidArgument) for
// names or shapes that the format cannot hold and for bytes too few or too many, Error(kIo). Thread-compatible.
class GgufWriter {
 public:
  GgufWriter(const std::string& path, const GgufMetadata& metadata, std::vector<GgufTensor> tensors,
             Existing existing = Existing::kReplace);
  // The next bytes of the tensors, one after the other in the order given.
  void write(std::span<const uint8_t> bytes);
  void commit();

 private:
  std::string path_;
  std::vector<GgufTensor> tensors_;
  AtomicFile file_;
  size_t at_ = 0;      // the tensor that is written
  uint64_t left_ = 0;  // bytes of it that are not there yet
  void next();
};

// model.safetensors in `folder`, or the shards of model.safetensors.index.json where the data is more than shard_bytes: then no
// shard has more, unless a single tensor does. Entries have no data yet; any element type. Thread-compatible.
class SafetensorsWriter {
 public:
  // Throws Error(kInvalidArgument) as safetensors_header(), and where a count is not the product of its shape.
  SafetensorsWriter(const std::string& folder, std::vector<TensorEntry> tensors, const Metadata& metadata,
                    uint64_t shard_bytes);
  ~SafetensorsWriter();
  // The order in which write() takes the tensors, as indices: within a shard larger elements come first.
  std::span<const size_t> order() const { return order_; }
  void write(std::span<const uint8_t> bytes);
  void commit();
  std::vector<std::string> files() const;  // names in the folder, the index last

 private:
  struct Shard {
    std::string name;
    std::vector<size_t> tensors;
    std::vector<uint8_t> header;
  };
  uint64_t bytes_of(size_t tensor) const;
  void next();
  std::string index_text() const;

  std::string folder_;
  std::vector<TensorEntry> tensors_;
  std::vector<Shard> shards_;
  std::vector<size_t> order_;
  std::unique_ptr<AtomicFile> file_;
  size_t shard_ = 0, at_ = 0;  // of order_
  uint64_t left_ = 0, shard_left_ = 0;
};

}  // namespace kpd::io
