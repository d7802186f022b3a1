// gradient: a model cut into shards of nearly equal size, one a rank. Private.
//
// The tensors stand back to back; shard s is elements [d s / n, d (s + 1) / n) of all d, its parts are the pieces of the
// tensors that lie there. A part's name says shard, number of shards, tensor and elements, "3/8:0[0:100]": no two shards have
// one manifest, whose hash is in the keys of their messages, so that each is rotated in its own way.
#pragma once

#include <vector>

#include "kpd/gradient/message.h"

namespace kpd::gradient {

class Shards {
 public:
  Shards(const Manifest& manifest, uint64_t n_shards);

  const Manifest& manifest(size_t shard) const { return shards_[shard].manifest; }
  uint64_t elements(size_t shard) const { return shards_[shard].elements; }
  std::vector<TensorView> views(size_t shard, std::span<const TensorView> tensors) const;
  std::vector<std::span<float>> spans(size_t shard, std::span<const std::span<float>> tensors) const;

 private:
  struct Part {
    size_t tensor = 0;
    uint64_t first = 0, count = 0;
  };
  struct Shard {
    Manifest manifest;
    std::vector<Part> parts;
    uint64_t elements = 0;
  };
  std::vector<Shard> shards_;
};

}  // namespace kpd::gradient
