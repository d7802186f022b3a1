// cache: what every method shares.
#include "kpd/cache/kv_cache.h"

#include "kpd/base/error.h"

namespace kpd::cache {

size_t Batch::n_rows() const {
  size_t n = 0;
  for (const Part& part : parts) n += part.positions.size();
  return n;
}

void KvCache::attend(size_t layer, const float* q, const float* k, const float* v, float* out, const AttendOptions& options) {
  const std::span<const Layer> all = layers();
  if (layer >= all.size()) fail(ErrorCode::kInvalidArgument, "layer ", layer, ", the cache has ", all.size());
  const size_t n_kv_heads = all[layer].n_kv_heads;
  if (options.n_heads == 0 || options.n_heads % n_kv_heads != 0)
    fail(ErrorCode::kInvalidArgument, options.n_heads, " heads cannot share ", n_kv_heads, " key-value heads evenly");
  if (hook_) hook_({layer, pending_rows(), q, k, v}, options);
  attend_rows(layer, q, k, v, out, options);
}

}  // namespace kpd::cache
