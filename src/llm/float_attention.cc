// llm: attention over the plain caches: softmax on the fly over blocks of 64 keys (Milakov & Gimelshein, arXiv:1805.02867), the
// queries that share a KV head together.
//
// Keys are taken in chunks of 512 tokens counted from the sequence's start. Each chunk gives a partial result (maximum, sum,
// weighted values) and partial results are merged in order. The chunks do not depend on how queries are batched or threads
// share the work, so neither does a result, bit for bit.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/llm_ops.h"
#include "kernels/matmul.h"
#include "kpd/base/error.h"
#include "kpd/base/threads.h"
#include "llm/float_cache.h"

namespace kpd::llm {
namespace {

constexpr size_t kChunkBlocks = 8;
constexpr size_t kChunkTokens = kChunkBlocks * kBlockTokens;
constexpr size_t kTileRows = 48;  // query rows (queries times heads that share a KV head) worked on together
constexpr size_t kFewScores = 2048;
constexpr size_t kFewRows = 6;  // so many read 16-bit floats as they are; for more it pays to widen a block once
constexpr float kNothing = -std::numeric_limits<float>::infinity();

// Whole blocks of a head as floats: a pointer into the cache, or into a buffer they were widened to.
const float* widen(DType dtype, const uint8_t* src, size_t n, std::vector<float>& buffer) {
  if (dtype == DType::kFloat32) return reinterpret_cast<const float*>(src);
  buffer.resize(n);
  const auto* halves = reinterpret_cast<const uint16_t*>(src);
  dtype == DType::kFloat16 ? kernels::widen_fp16(halves, n, buffer.data()) : kernels::widen_bf16(halves, n, buffer.data());
  return buffer.data();
}

// matmul with keys or values as a block holds them. `next` is the same part of the block that comes next, or null; few rows of
// 16-bit values ask for it.
void multiply(DType dtype, const float* a, const uint8_t* block, float* c, const kernels::MatmulShape& shape,
              const uint8_t* next, std::vector<float>& buffer) {
  if (dtype == DType::kFloat32 || shape.n_rows > kFewRows) {
    kernels::matmul(a, widen(dtype, block, shape.depth * shape.n, buffer), c, shape);
  } else {
    const auto* halves = reinterpret_cast<const uint16_t*>(block);
    const auto* ahead = reinterpret_cast<const uint16_t*>(next);
    dtype == DType::kFloat16 ? kernels::matmul_fp16(a, halves, c, shape, ahead)
                             : kernels::matmul_bf16(a, halves, c, shape, ahead);
  }
}

}  // namespace

size_t FloatCache::Item::first_chunk() const { return first_token / kChunkTokens; }
size_t FloatCache::Item::end_chunk() const { return (end_token + kChunkTokens - 1) / kChunkTokens; }

void FloatCache::Partial::reset(size_t n_rows, size_t head_dim) {
  top.assign(n_rows, kNothing);
  sum.assign(n_rows, 0);
  values.assign(n_rows * head_dim, 0);
}

void FloatCache::Partial::merge(const Partial& other, size_t n_rows, size_t head_dim) {
  for (size_t r = 0; r < n_rows; ++r) {
    if (other.top[r] == kNothing) continue;
    const float best = std::max(top[r], other.top[r]);
    const float mine = top[r] == kNothing ? 0.0f : std::exp(top[r] - best), its = std::exp(other.top[r] - best);
    sum[r] = sum[r] * mine + other.sum[r] * its;
    float* v = values.data() + r * head_dim;
    const float* w = other.values.data() + r * head_dim;
    for (size_t i = 0; i < head_dim; ++i) v[i] = v[i] * mine + w[i] * its;
    top[r] = best;
  }
}

// Tokens are written one by one: keys into columns, values into rows.
void FloatCache::write_tokens(Sequence& s, size_t layer, size_t head, size_t first, size_t n, const float* keys,
                              const float* values) {
  const size_t dim = layers_[layer].head_dim, width = dtype_bytes(dtype_);
  thread_local std::vector<uint8_t> narrow;
  narrow.resize(dim * width);
  for (size_t i = 0; i < n; ++i) {
    const size_t token = first + i, slot = token % kBlockTokens;
    uint8_t* block = pool_.data(s.blocks[token / kBlockTokens]) + head_offset(layer, head);
    store_floats({keys + i * dim, dim}, dtype_, narrow.data());
    for (size_t d = 0; d < dim; ++d) std::copy_n(narrow.data() + d * width, width, block + (d * kBlockTokens + slot) * width);
    store_floats({values + i * dim, dim}, dtype_, block + (dim * kBlockTokens + slot * dim) * width);
  }
}

void FloatCache::read_tokens(const Sequence& s, size_t layer, size_t head, size_t first, size_t n, float* keys,
                             float* values) const {
  const size_t dim = layers_[layer].head_dim;
  std::vector<float> block_keys(dim * kBlockTokens), block_values(dim * kBlockTokens);
  for (size_t i = 0; i < n; ++i) {
    const size_t token = first + i, slot = token % kBlockTokens;
    if (i == 0 || slot == 0) {
      const uint8_t* block = pool_.data(s.blocks[token / kBlockTokens]) + head_offset(layer, head);
      load_floats({block, block_keys.size(), dtype_}, 0, block_keys);
      load_floats({block + block_keys.size() * dtype_bytes(dtype_), block_values.size(), dtype_}, 0, block_values);
    }
    for (size_t d = 0; d < dim; ++d) keys[i * dim + d] = block_keys[d * kBlockTokens + slot];
    std::copy_n(block_values.data() + slot * dim, dim, values + i * dim);
  }
}

void FloatCache::write_rows(size_t layer, const Part& part, size_t head, const float* k, const float* v) {
  const size_t dim = layers_[layer].head_dim, stride = layers_[layer].n_kv_heads * dim;
  Sequence& s = *part.sequence;
  for (size_t r = 0; r < part.n_rows; ++r) {
    const size_t offset = (part.first_row + r) * stride + head * dim;
    write_tokens(s, layer, head, s.length + r, 1, k + offset, v + offset);
  }
}

// One chunk of keys for the queries [n_rows, head_dim] (scaled) of an item.
void FloatCache::attend_chunk(size_t layer, const Item& item, size_t chunk, const float* queries, const AttendOptions& options,
                              Partial& partial) const {
  const Sequence& s = *item.part->sequence;
  const size_t dim = layers_[layer].head_dim, n_rows = item.n_rows(), part_bytes = dim * kBlockTokens * dtype_bytes(dtype_);
  partial.reset(n_rows, dim);
  partial.scores.resize(n_rows * kBlockTokens);
  const size_t first_block = std::max(chunk * kChunkBlocks, item.first_token / kBlockTokens);
  const size_t end_block = std::min((chunk + 1) * kChunkBlocks, (item.end_token + kBlockTokens - 1) / kBlockTokens);
  const auto block_at = [&](size_t b) { return pool_.data(s.blocks[b]) + head_offset(layer, item.head); };
  for (size_t b = first_block; b < end_block; ++b) {
    const uint8_t* block = block_at(b);
    const uint8_t* next = b + 1 < end_block ? block_at(b + 1) : nullptr;
    float* scores = partial.scores.data();
    multiply(dtype_, queries, block, scores,
             {.n_rows = n_rows, .depth = dim, .n = kBlockTokens, .lda = dim, .ldb = kBlockTokens, .ldc = kBlockTokens}, next,
             partial.widened);
    if (options.softcap > 0) kernels::soft_cap(scores, n_rows * kBlockTokens, options.softcap);
    for (size_t r = 0; r < n_rows; ++r) {
      float* row = scores + r * kBlockTokens;
      const size_t token = s.length + item.first_query + r / item.n_group;  // the query's own
      const size_t base = b * kBlockTokens;
      const size_t end = token < base ? 0 : std::min(kBlockTokens, token + 1 - base);
      size_t begin = 0;
      if (options.window > 0) {
        while (begin < end && s.positions[token] - s.positions[base + begin] >= static_cast<int64_t>(options.window)) ++begin;
      }
      std::fill(row, row + begin, 0.0f);
      std::fill(row + end, row + kBlockTokens, 0.0f);
      if (begin >= end) continue;
      const float best = std::max(partial.top[r], kernels::max_value(row + begin, end - begin));
      const float factor = partial.top[r] == kNothing ? 0.0f : std::exp(partial.top[r] - best);
      // Masked scores become exact zeros, whole vectors are worked on whatever the mask: the sum's order is the same for every
      // batch.
      std::fill(row, row + begin, kNothing);
      std::fill(row + end, row + kBlockTokens, kNothing);
      partial.sum[r] = partial.sum[r] * factor + kernels::exp_shifted(row, kBlockTokens, best);
      if (factor != 1.0f) kernels::scale(partial.values.data() + r * dim, dim, factor);
      partial.top[r] = best;
    }
    multiply(
        dtype_, scores, block + part_bytes, partial.values.data(),
        {.n_rows = n_rows, .depth = kBlockTokens, .n = dim, .lda = kBlockTokens, .ldb = dim, .ldc = dim, .accumulate = true},
        next == nullptr ? nullptr : next + part_bytes, partial.widened);
  }
}

namespace {

// q of the item's rows, query by query, its heads together, times the scale.
void gather_queries(const float* q, size_t first_row, size_t n_queries, size_t head, size_t n_group, size_t dim,
                    const AttendOptions& options, std::vector<float>& queries) {
  queries.resize(n_queries * n_group * dim);
  for (size_t i = 0; i < n_queries; ++i) {
    const float* from = q + ((first_row + i) * options.n_heads + head * n_group) * dim;
    for (size_t d = 0; d < n_group * dim; ++d) queries[i * n_group * dim + d] = from[d] * options.scale;
  }
}

void put_result(const float* values, const float* sums, size_t first_row, size_t n_queries, size_t head, size_t n_group,
                size_t dim, size_t n_heads, float* out) {
  for (size_t r = 0; r < n_queries * n_group; ++r) {
    float* to = out + ((first_row + r / n_group) * n_heads + head * n_group + r % n_group) * dim;
    const float inverse = 1.0f / sums[r];
    for (size_t d = 0; d < dim; ++d) to[d] = values[r * dim + d] * inverse;
  }
}

}  // namespace

void FloatCache::attend_item(size_t layer, const Item& item, const float* q, float* out, const AttendOptions& options) const {
  thread_local std::vector<float> queries;
  thread_local Partial total, partial;
  const size_t dim = layers_[layer].head_dim, row = item.first_row();
  gather_queries(q, row, item.n_queries, item.head, item.n_group, dim, options, queries);
  total.reset(item.n_rows(), dim);
  for (size_t chunk = item.first_chunk(); chunk < item.end_chunk(); ++chunk) {
    attend_chunk(layer, item, chunk, queries.data(), options, partial);
    total.merge(partial, item.n_rows(), dim);
  }
  put_result(total.values.data(), total.sum.data(), row, item.n_queries, item.head, item.n_group, dim, options.n_heads, out);
}

// The chunks of few items shared among threads: decoding at depth.
void FloatCache::attend_split(size_t layer, const float* q, float* out, const AttendOptions& options) {
  const size_t dim = layers_[layer].head_dim;
  const std::vector<Item>& items = scratch_.items;
  std::vector<std::pair<size_t, size_t>>& work = scratch_.work;
  work.clear();
  for (size_t i = 0; i < items.size(); ++i) {
    for (size_t chunk = items[i].first_chunk(); chunk < items[i].end_chunk(); ++chunk) work.emplace_back(i, chunk);
  }
  std::vector<Partial>& partials = scratch_.partials;
  std::vector<std::vector<float>>& queries = scratch_.queries;
  partials.resize(std::max(partials.size(), work.size()));
  queries.resize(std::max(queries.size(), items.size()));
  for (size_t i = 0; i < items.size(); ++i) {
    gather_queries(q, items[i].first_row(), items[i].n_queries, items[i].head, items[i].n_group, dim, options, queries[i]);
  }
  parallel_for(work.size(), n_threads_, [&](size_t task, int) {
    attend_chunk(layer, items[work[task].first], work[task].second, queries[work[task].first].data(), options, partials[task]);
  });
  size_t task = 0;
  Partial& total = scratch_.total;
  for (size_t i = 0; i < items.size(); ++i) {
    const Item& item = items[i];
    total.reset(item.n_rows(), dim);
    for (; task < work.size() && work[task].first == i; ++task) total.merge(partials[task], item.n_rows(), dim);
    put_result(total.values.data(), total.sum.data(), item.first_row(), item.n_queries, item.head, item.n_group, dim,
               options.n_heads, out);
  }
}

void FloatCache::make_items(size_t layer, const AttendOptions& options) {
  const size_t n_group = options.n_heads / layers_[layer].n_kv_heads;
  const size_t step = std::max<size_t>(1, kTileRows / n_group);
  std::vector<Item>& items = scratch_.items;
  items.clear();
  for (const Part& part : pending_) {
    const Sequence& s = *part.sequence;
    for (size_t first = 0; first < part.n_rows; first += step) {
      Item item{&part, 0, first, std::min(step, part.n_rows - first), n_group, 0, 0};
      item.end_token = s.length + first + item.n_queries;
      if (options.window > 0) {
        const int64_t oldest = static_cast<int64_t>(s.positions[s.length + first]) - static_cast<int64_t>(options.window);
        const auto it =
            std::upper_bound(s.positions.begin(), s.positions.begin() + static_cast<std::ptrdiff_t>(item.end_token), oldest);
        item.first_token = static_cast<size_t>(it - s.positions.begin());
      }
      for (item.head = 0; item.head < layers_[layer].n_kv_heads; ++item.head) items.push_back(item);
    }
  }
}

void FloatCache::attend(size_t layer, const float* q, const float* k, const float* v, float* out,
                        const AttendOptions& options) {
  const CacheLayer& shape = layers_[layer];
  if (options.n_heads == 0 || options.n_heads % shape.n_kv_heads != 0) {
    fail(ErrorCode::kInvalidArgument, options.n_heads, " heads cannot share ", shape.n_kv_heads, " key-value heads evenly");
  }
  size_t n_new = 0;
  for (const Part& part : pending_) n_new += part.n_rows;
  // What takes less time than another thread needs to join is done here.
  parallel_for(pending_.size() * shape.n_kv_heads, n_new < 8 ? 1 : n_threads_,
               [&](size_t task, int) { write_rows(layer, pending_[task / shape.n_kv_heads], task % shape.n_kv_heads, k, v); });
  make_items(layer, options);
  std::vector<Item>& items = scratch_.items;
  size_t n_chunks = 0, n_scores = 0;
  for (const Item& item : items) {
    n_chunks += item.end_chunk() - item.first_chunk();
    n_scores += item.n_rows() * (item.end_token - item.first_token);
  }
  const int n_threads = n_scores < kFewScores ? 1 : n_threads_;
  if (n_threads > 1 && items.size() < 8 * static_cast<size_t>(n_threads) && n_chunks > items.size()) {
    attend_split(layer, q, out, options);
    return;
  }
  // The longest first: the last ones to finish are short.
  std::sort(items.begin(), items.end(), [](const Item& a, const Item& b) {
    const size_t long_a = a.end_token - a.first_token, long_b = b.end_token - b.first_token;
    return long_a != long_b ? long_a > long_b : std::pair(a.first_row(), a.head) < std::pair(b.first_row(), b.head);
  });
  parallel_for(items.size(), n_threads, [&](size_t task, int) { attend_item(layer, items[task], q, out, options); });
}

}  // namespace kpd::llm
