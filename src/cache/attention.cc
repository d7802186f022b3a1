// cache: see attention.h.
#include "cache/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/llm_ops.h"
#include "kpd/base/threads.h"

namespace kpd::cache {
namespace {

constexpr size_t kChunkBlocks = 8;
constexpr size_t kChunkTokens = kChunkBlocks * kBlockTokens;
constexpr size_t kTileRows = 48;  // query rows (queries times heads that share a KV head) worked on together
constexpr size_t kFewScores = 2048;
constexpr float kNothing = -std::numeric_limits<float>::infinity();

// Of scores [64] of a block, those in [begin, end) are seen: they become weights, the others 0, and sum and maximum follow.
// Returns the factor by which older sums shrink.
float weigh(float* row, size_t begin, size_t end, float& top, float& sum) {
  const float best = std::max(top, kernels::max_value(row + begin, end - begin));
  const float factor = top == kNothing ? 0.0f : std::exp(top - best);
  // Masked scores become exact zeros, whole vectors are worked on whatever the mask: the sum's order is the same for every
  // batch.
  std::fill(row, row + begin, kNothing);
  std::fill(row + end, row + kBlockTokens, kNothing);
  sum = sum * factor + kernels::exp_shifted(row, kBlockTokens, best);
  top = best;
  return factor;
}

}  // namespace

size_t Attention::Item::first_chunk() const { return first_token / kChunkTokens; }
size_t Attention::Item::end_chunk() const { return (end_token + kChunkTokens - 1) / kChunkTokens; }

void Attention::Partial::reset(size_t n_rows, size_t width) {
  top.assign(n_rows, kNothing);
  sum.assign(n_rows, 0);
  values.assign(n_rows * width, 0);
}

void Attention::Partial::merge(const Partial& other, size_t n_rows, size_t width) {
  for (size_t r = 0; r < n_rows; ++r) {
    if (other.top[r] == kNothing) continue;
    const float best = std::max(top[r], other.top[r]);
    const float mine = top[r] == kNothing ? 0.0f : std::exp(top[r] - best), its = std::exp(other.top[r] - best);
    sum[r] = sum[r] * mine + other.sum[r] * its;
    float* v = values.data() + r * width;
    const float* w = other.values.data() + r * width;
    for (size_t i = 0; i < width; ++i) v[i] = v[i] * mine + w[i] * its;
    top[r] = best;
  }
}

void Attention::store_rows(BlockStore& store, size_t layer, const float* k, const float* v) const {
  const StoreGroup& group = store.group(layer);
  const Layer& shape = group.shape;
  const std::vector<Sequences::Part>& parts = store.sequences.pending();
  size_t n_new = 0;
  for (const Sequences::Part& part : parts) n_new += part.n_rows;
  // What takes less time than another thread needs to join is done here.
  parallel_for(parts.size() * shape.n_kv_heads, n_new < 8 ? 1 : n_threads_, [&](size_t task, int) {
    const Sequences::Part& part = parts[task / shape.n_kv_heads];
    const Sequence& s = *part.sequence;
    const size_t head = task % shape.n_kv_heads;
    for (size_t r = 0; r < part.n_rows; ++r) {
      const size_t at = (part.first_row + r) * shape.n_kv_heads + head;
      store.append(s, layer, head, s.length + r, k + at * shape.key_width, v + at * shape.value_width);
    }
    if (!group.formats.sealing.seals()) return;
    for (size_t b = s.length / kBlockTokens; b < (s.length + part.n_rows) / kBlockTokens; ++b) store.seal(s, layer, head, b);
  });
}

// Queries ascend, so those that read block b open come first: this many rows.
size_t Attention::open_rows(const Call& call, const Item& item, size_t b) {
  const Sealing sealing = call.group.formats.sealing;
  if (!sealing.seals()) return item.n_rows();
  const Sequence& s = *item.part->sequence;
  if (s.tables[call.store.group_of(call.layer)].open[b] == kNoBlock) return 0;
  const size_t first = s.length + item.first_query, end = (b + sealing.exact_blocks) * kBlockTokens;
  return std::min(item.n_queries, end - std::min(end, first)) * item.n_group;
}

// Block b for the queries [n_rows, key_width] of an item.
void Attention::block(const Call& call, const Item& item, size_t b, bool last, const float* queries, Partial& partial) {
  const Sequence& s = *item.part->sequence;
  const LayerFormats& formats = call.group.formats;
  const size_t n_rows = item.n_rows(), key_width = call.group.shape.key_width, width = call.group.shape.value_width;
  const size_t n_open = open_rows(call, item, b), n_open_next = last ? 0 : open_rows(call, item, b + 1);
  const size_t n_sealed_next = last ? 0 : n_rows - n_open_next;
  // The rows that read the block in one state, and whether some read the next one so.
  struct Share {
    PartState state;
    size_t first, n;
    bool next;
  };
  const Share shares[] = {{PartState::kOpen, 0, n_open, n_open_next > 0},
                          {PartState::kSealed, n_open, n_rows - n_open, n_sealed_next > 0}};
  float* scores = partial.scores.data();
  for (const Share& share : shares) {
    if (share.n == 0) continue;
    const uint8_t* next = share.next ? call.store.keys(s, call.layer, item.head, b + 1, share.state).data : nullptr;
    formats.keys->scores(queries + share.first * key_width, share.n, call.store.keys(s, call.layer, item.head, b, share.state),
                         next, scores + share.first * kBlockTokens, partial.scratch);
  }
  if (call.options.softcap > 0) kernels::soft_cap(scores, n_rows * kBlockTokens, call.options.softcap);
  for (size_t r = 0; r < n_rows; ++r) {
    float* row = scores + r * kBlockTokens;
    const size_t token = s.length + item.first_query + r / item.n_group;  // the query's own
    const size_t base = b * kBlockTokens;
    const size_t end = token < base ? 0 : std::min(kBlockTokens, token + 1 - base);
    size_t begin = 0;
    if (call.options.window > 0) {
      while (begin < end && s.positions[token] - s.positions[base + begin] >= static_cast<int64_t>(call.options.window))
        ++begin;
    }
    if (begin >= end) {
      std::fill(row, row + kBlockTokens, 0.0f);
      continue;
    }
    const float factor = weigh(row, begin, end, partial.top[r], partial.sum[r]);
    if (factor != 1.0f) kernels::scale(partial.values.data() + r * width, width, factor);
  }
  for (const Share& share : shares) {
    if (share.n == 0) continue;
    const uint8_t* next = share.next ? call.store.values(s, call.layer, item.head, b + 1, share.state).data : nullptr;
    formats.values->add_weighted(scores + share.first * kBlockTokens, share.n,
                                 call.store.values(s, call.layer, item.head, b, share.state), next,
                                 partial.values.data() + share.first * width, partial.scratch);
  }
}

void Attention::chunk(const Call& call, const Item& item, size_t index, const float* queries, Partial& partial) {
  partial.reset(item.n_rows(), call.group.shape.value_width);
  partial.scores.resize(item.n_rows() * kBlockTokens);
  const size_t first = std::max(index * kChunkBlocks, item.first_token / kBlockTokens);
  const size_t end = std::min((index + 1) * kChunkBlocks, blocks_for(item.end_token));
  for (size_t b = first; b < end; ++b) block(call, item, b, b + 1 == end, queries, partial);
}

// q of the item's rows, query by query, its heads together, times the scale.
void Attention::gather(const Call& call, const Item& item, std::vector<float>& queries) {
  const size_t width = call.group.shape.key_width, n = item.n_group * width;
  queries.resize(item.n_queries * n);
  for (size_t i = 0; i < item.n_queries; ++i) {
    const float* from = call.q + ((item.first_row() + i) * call.options.n_heads + item.head * item.n_group) * width;
    for (size_t d = 0; d < n; ++d) queries[i * n + d] = from[d] * call.options.scale;
  }
  call.group.formats.keys->prepare(queries.data(), item.n_rows());
}

void Attention::put(const Call& call, const Item& item, Partial& total) {
  const size_t width = call.group.shape.value_width;
  call.group.formats.values->finish(total.values.data(), item.n_rows());
  for (size_t r = 0; r < item.n_rows(); ++r) {
    const size_t row = item.first_row() + r / item.n_group, head = item.head * item.n_group + r % item.n_group;
    float* to = call.out + (row * call.options.n_heads + head) * width;
    const float inverse = 1.0f / total.sum[r];
    for (size_t d = 0; d < width; ++d) to[d] = total.values[r * width + d] * inverse;
  }
}

void Attention::whole_item(const Call& call, const Item& item) {
  thread_local std::vector<float> queries;
  thread_local Partial total, partial;
  gather(call, item, queries);
  total.reset(item.n_rows(), call.group.shape.value_width);
  for (size_t index = item.first_chunk(); index < item.end_chunk(); ++index) {
    chunk(call, item, index, queries.data(), partial);
    total.merge(partial, item.n_rows(), call.group.shape.value_width);
  }
  put(call, item, total);
}

// The chunks of few items shared among threads: decoding at depth.
void Attention::split_items(const Call& call) {
  work_.clear();
  for (size_t i = 0; i < items_.size(); ++i) {
    for (size_t index = items_[i].first_chunk(); index < items_[i].end_chunk(); ++index) work_.emplace_back(i, index);
  }
  partials_.resize(std::max(partials_.size(), work_.size()));
  queries_.resize(std::max(queries_.size(), items_.size()));
  for (size_t i = 0; i < items_.size(); ++i) gather(call, items_[i], queries_[i]);
  parallel_for(work_.size(), n_threads_, [&](size_t task, int) {
    chunk(call, items_[work_[task].first], work_[task].second, queries_[work_[task].first].data(), partials_[task]);
  });
  size_t task = 0;
  for (size_t i = 0; i < items_.size(); ++i) {
    const Item& item = items_[i];
    total_.reset(item.n_rows(), call.group.shape.value_width);
    for (; task < work_.size() && work_[task].first == i; ++task)
      total_.merge(partials_[task], item.n_rows(), call.group.shape.value_width);
    put(call, item, total_);
  }
}

void Attention::make_items(const Call& call) {
  const size_t n_kv_heads = call.group.shape.n_kv_heads, n_group = call.options.n_heads / n_kv_heads;
  const size_t step = std::max<size_t>(1, kTileRows / n_group);
  items_.clear();
  for (const Sequences::Part& part : call.store.sequences.pending()) {
    const Sequence& s = *part.sequence;
    for (size_t first = 0; first < part.n_rows; first += step) {
      Item item{&part, 0, first, std::min(step, part.n_rows - first), n_group, 0, 0};
      item.end_token = s.length + first + item.n_queries;
      if (call.options.window > 0) {
        const int64_t oldest = static_cast<int64_t>(s.positions[s.length + first]) - static_cast<int64_t>(call.options.window);
        const auto it =
            std::upper_bound(s.positions.begin(), s.positions.begin() + static_cast<std::ptrdiff_t>(item.end_token), oldest);
        item.first_token = static_cast<size_t>(it - s.positions.begin());
      }
      for (item.head = 0; item.head < n_kv_heads; ++item.head) items_.push_back(item);
    }
  }
}

void Attention::run(BlockStore& store, size_t layer, const float* q, const float* k, const float* v, float* out,
                    const AttendOptions& options) {
  store_rows(store, layer, k, v);
  const Call call{store, store.group(layer), layer, q, out, options};
  make_items(call);
  size_t n_chunks = 0, n_scores = 0;
  for (const Item& item : items_) {
    n_chunks += item.end_chunk() - item.first_chunk();
    n_scores += item.n_rows() * (item.end_token - item.first_token);
  }
  const int n_threads = n_scores < kFewScores ? 1 : n_threads_;
  if (n_threads > 1 && items_.size() < 8 * static_cast<size_t>(n_threads) && n_chunks > items_.size()) {
    split_items(call);
    return;
  }
  // The longest first: the last ones to finish are short.
  std::sort(items_.begin(), items_.end(), [](const Item& a, const Item& b) {
    const size_t long_a = a.end_token - a.first_token, long_b = b.end_token - b.first_token;
    return long_a != long_b ? long_a > long_b : std::pair(a.first_row(), a.head) < std::pair(b.first_row(), b.head);
  });
  parallel_for(items_.size(), n_threads, [&](size_t task, int) { whole_item(call, items_[task]); });
}

}  // namespace kpd::cache
