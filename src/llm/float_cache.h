// llm: the plain caches f32, f16 and bf16: pooled blocks of 64 tokens, a table of blocks per sequence, reference counts.
// Private.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kpd/base/dtype.h"
#include "kpd/base/memory.h"
#include "kpd/llm/kv_cache.h"

namespace kpd::llm {

inline constexpr size_t kBlockTokens = 64;
static_assert(kMaxCacheTokens / kBlockTokens <= uint64_t{1} << 32);  // a block's number is a uint32_t

// Blocks of raw memory, 64-byte aligned, with reference counts.
class BlockPool {
 public:
  BlockPool(size_t block_bytes, size_t capacity)
      : block_bytes_(block_bytes), capacity_(capacity), arena_(std::min(capacity * block_bytes, kArenaBytes)) {}
  // Throws Error(kLimitExceeded) if fewer than n are left.
  void require(size_t n) const;
  uint32_t take();  // count 1; zeros
  void share(uint32_t block) { ++counts_[block]; }
  void release(uint32_t block);
  bool shared(uint32_t block) const { return counts_[block] > 1; }
  size_t n_holders(uint32_t block) const { return counts_[block]; }
  uint8_t* data(uint32_t block) { return blocks_[block]; }
  const uint8_t* data(uint32_t block) const { return blocks_[block]; }
  size_t block_bytes() const { return block_bytes_; }
  size_t capacity() const { return capacity_; }
  uint64_t bytes() const { return blocks_.size() * block_bytes_; }

 private:
  static constexpr size_t kArenaBytes = 8 * kHugePageBytes;
  void grow();  // by one free block
  size_t block_bytes_, capacity_;
  Arena arena_;
  std::vector<uint8_t*> blocks_;
  std::vector<uint32_t> counts_, free_;
};

// In a block, layer after layer, KV head after KV head: keys [head_dim][64] (a matrix product reads them so), values
// [64][head_dim].
class FloatCache final : public KvCache {
 public:
  FloatCache(DType dtype, std::span<const CacheLayer> layers, size_t capacity, int n_threads);

  void begin(const CacheBatch& batch) override;
  void attend(size_t layer, const float* q, const float* k, const float* v, float* out, const AttendOptions& options) override;
  void commit() override;
  Plan plan(SequenceId sequence) const override;
  void set_plan(SequenceId sequence, const Plan& plan) override;
  size_t length(SequenceId sequence) const override;
  int32_t next_position(SequenceId sequence) const override;
  void crop(SequenceId sequence, size_t length) override;
  void fork(SequenceId from, SequenceId to, size_t length) override;
  void evict(SequenceId sequence, size_t first, size_t n, Rerotate rerotate, const void* model) override;
  std::vector<uint8_t> save(SequenceId sequence, std::string_view fingerprint) const override;
  void load(SequenceId sequence, std::span<const uint8_t> bytes, std::string_view fingerprint, std::string_view name) override;
  std::span<const CacheLayer> layers() const override { return layers_; }
  uint64_t bytes() const override { return pool_.bytes(); }
  uint64_t capacity_bytes() const override { return uint64_t{pool_.capacity()} * pool_.block_bytes(); }
  uint64_t bytes_for(size_t tokens) const override;
  std::string spec() const override;
  size_t capacity() const override { return pool_.capacity() * kBlockTokens; }

 private:
  struct Sequence {
    std::vector<uint32_t> blocks;
    std::vector<int32_t> positions;  // of the tokens held, then of those that begin() announced
    size_t length = 0;
    Plan plan;
  };
  struct Part {
    Sequence* sequence;
    size_t first_row, n_rows;
  };
  // A tile of queries of one part and KV head.
  struct Item {
    const Part* part;
    size_t head;                    // KV head
    size_t first_query, n_queries;  // within the part
    size_t n_group;                 // heads that share the KV head
    size_t first_token;             // of the sequence that any of its queries may see
    size_t end_token;
    size_t first_chunk() const;
    size_t end_chunk() const;
    size_t n_rows() const { return n_queries * n_group; }
    size_t first_row() const { return part->first_row + first_query; }
  };
  // Of every row of an item: running maximum, sum of exponentials, sum of weighted values.
  struct Partial {
    std::vector<float> top, sum, values, scores, widened;
    void reset(size_t n_rows, size_t head_dim);
    void merge(const Partial& other, size_t n_rows, size_t head_dim);
  };
  // Of the last attend() and begin(), kept for its memory.
  struct Scratch {
    std::vector<Item> items;
    std::vector<std::pair<size_t, size_t>> work;  // item, chunk
    std::vector<Partial> partials;                // of each
    std::vector<std::vector<float>> queries;      // of each item
    Partial total;
    std::vector<uint32_t> written;  // shared blocks, once a writer
    std::vector<SequenceId> seen;
  };

  size_t head_offset(size_t layer, size_t head) const;  // bytes, of keys and then values, in a block
  void write_rows(size_t layer, const Part& part, size_t head, const float* k, const float* v);
  void attend_chunk(size_t layer, const Item& item, size_t chunk, const float* queries, const AttendOptions& options,
                    Partial& partial) const;
  void attend_item(size_t layer, const Item& item, const float* q, float* out, const AttendOptions& options) const;
  void attend_split(size_t layer, const float* q, float* out, const AttendOptions& options);
  void make_items(size_t layer, const AttendOptions& options);
  size_t n_copies(std::vector<uint32_t>& written) const;
  void own_block(Sequence& sequence, size_t index);
  void drop_pending();
  void forget_if_empty(SequenceId sequence);
  void read_tokens(const Sequence& s, size_t layer, size_t head, size_t first, size_t n, float* keys, float* values) const;
  void write_tokens(Sequence& s, size_t layer, size_t head, size_t first, size_t n, const float* keys, const float* values);

  DType dtype_;
  std::vector<CacheLayer> layers_;
  std::vector<size_t> layer_offsets_;
  int n_threads_;
  BlockPool pool_;
  std::map<SequenceId, Sequence> sequences_;
  std::vector<Part> pending_;
  Scratch scratch_;
};

}  // namespace kpd::llm
