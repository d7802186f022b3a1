// gradient: where the shards of a model lie (shards.h).
#include "gradient/aggregate/shards.h"

#include <algorithm>

#include "kpd/base/error.h"

namespace kpd::gradient {

Shards::Shards(const Manifest& manifest, uint64_t n_shards) : shards_(n_shards) {
  uint64_t total = 0;
  for (const TensorInfo& t : manifest) total += t.count();
  // d s / n without overflow
  const auto edge = [&](uint64_t s) { return total / n_shards * s + total % n_shards * s / n_shards; };
  uint64_t start = 0;
  for (size_t i = 0; i < manifest.size(); ++i) {
    const uint64_t count = manifest[i].count();
    for (uint64_t s = 0; s < n_shards; ++s) {
      const uint64_t first = std::max(edge(s), start), last = std::min(edge(s + 1), start + count);
      if (first >= last) continue;
      Shard& shard = shards_[s];
      shard.parts.push_back({i, first - start, last - first});
      shard.manifest.push_back(
          {str(s, "/", n_shards, ":", i, "[", first - start, ":", last - start, "]"), manifest[i].dtype, {last - first}});
      shard.elements += last - first;
    }
    start += count;
  }
}

std::vector<TensorView> Shards::views(size_t shard, std::span<const TensorView> tensors) const {
  std::vector<TensorView> result;
  for (const Part& p : shards_[shard].parts) {
    const TensorView& t = tensors[p.tensor];
    const auto* bytes = static_cast<const uint8_t*>(t.data) + p.first * dtype_bytes(t.dtype);
    result.emplace_back(bytes, p.count, t.dtype);
  }
  return result;
}

std::vector<std::span<float>> Shards::spans(size_t shard, std::span<const std::span<float>> tensors) const {
  std::vector<std::span<float>> result;
  for (const Part& p : shards_[shard].parts) result.push_back(tensors[p.tensor].subspan(p.first, p.count));
  return result;
}

}  // namespace kpd::gradient
