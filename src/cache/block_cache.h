// cache: the cache of every method that keeps its tokens in blocks: sequences, formats and attention put together. Private.
#pragma once

#include <string>
#include <vector>

#include "cache/attention.h"
#include "cache/block_store.h"
#include "kpd/cache/kv_cache.h"

namespace kpd::cache {

class BlockCache final : public KvCache {
 public:
  // group_of: of each layer.
  BlockCache(std::vector<StoreGroup> groups, std::vector<size_t> group_of, std::span<const Layer> layers, size_t capacity,
             int n_threads)
      : layers_(layers.begin(), layers.end()),
        n_blocks_(blocks_for(capacity)),
        store_(std::move(groups), std::move(group_of), n_blocks_),
        attention_(n_threads) {}

  void begin(const Batch& batch) override { store_.sequences.begin(batch); }
  void commit() override { store_.sequences.commit(); }
  size_t length(SequenceId sequence) const override { return store_.sequences.length(sequence); }
  int32_t next_position(SequenceId sequence) const override { return store_.sequences.next_position(sequence); }
  Cut crop(SequenceId sequence, size_t length) override;
  Cut fork(SequenceId from, SequenceId to, size_t length) override;
  size_t reusable(SequenceId sequence, size_t n) const override;
  void evict(SequenceId sequence, size_t first, size_t n, const KeyRotation* rotation) override;
  Plan plan(SequenceId sequence) const override;
  void set_plan(SequenceId sequence, const Plan& plan) override { store_.sequences.set_plan(sequence, plan); }
  std::vector<uint8_t> save(SequenceId sequence, std::string_view fingerprint) const override;
  void load(SequenceId sequence, std::span<const uint8_t> bytes, std::string_view fingerprint, std::string_view name) override;
  std::span<const Layer> layers() const override { return layers_; }
  std::string spec(size_t layer) const override { return store_.group(layer).spec; }
  uint64_t bytes() const override;
  uint64_t capacity_bytes() const override;
  uint64_t bytes_for(size_t tokens) const override { return store_.bytes_for(tokens); }
  size_t capacity() const override { return n_blocks_ * kBlockTokens; }

 protected:
  void attend_rows(size_t layer, const float* q, const float* k, const float* v, float* out,
                   const AttendOptions& options) override {
    attention_.run(store_, layer, q, k, v, out, options);
  }
  size_t pending_rows() const override;

 private:
  Cut cut(SequenceId sequence, size_t length, bool exact);
  bool exact_at(SequenceId sequence, size_t length) const;

  std::vector<Layer> layers_;
  size_t n_blocks_;
  BlockStore store_;
  Attention attention_;
};

}  // namespace kpd::cache
