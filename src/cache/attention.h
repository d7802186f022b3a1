// cache: attention over a store of blocks, whatever their formats: softmax on the fly over blocks of 64 keys (Milakov &
// Gimelshein, arXiv:1805.02867), the queries that share a KV head together. Private.
//
// Keys are taken in chunks of 512 tokens counted from the sequence's start. Each chunk gives a partial result (maximum, sum,
// weighted values) and partial results are merged in order. Whether a query reads a block open or sealed follows from their
// distance alone. Neither depends on how queries are batched or threads share the work, so neither does a result, bit for bit.
#pragma once

#include <utility>
#include <vector>

#include "cache/block_store.h"

namespace kpd::cache {

class Attention {
 public:
  explicit Attention(int n_threads) : n_threads_(n_threads) {}

  // Of the pending rows of the store's sequences: stores their keys and values, seals what is complete, and attends. As
  // KvCache::attend().
  void run(BlockStore& store, size_t layer, const float* q, const float* k, const float* v, float* out,
           const AttendOptions& options);

 private:
  using Sequence = Sequences::Sequence;
  // A tile of queries of one part and KV head.
  struct Item {
    const Sequences::Part* part;
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
    std::vector<float> top, sum, values, scores;
    FormatScratch scratch;
    void reset(size_t n_rows, size_t width);
    void merge(const Partial& other, size_t n_rows, size_t width);
  };
  // One attend().
  struct Call {
    const BlockStore& store;
    const StoreGroup& group;
    size_t layer;
    const float* q;
    float* out;
    const AttendOptions& options;
  };

  void store_rows(BlockStore& store, size_t layer, const float* k, const float* v) const;
  void make_items(const Call& call);
  static size_t open_rows(const Call& call, const Item& item, size_t b);
  static void block(const Call& call, const Item& item, size_t b, bool last, const float* queries, Partial& partial);
  static void chunk(const Call& call, const Item& item, size_t index, const float* queries, Partial& partial);
  static void whole_item(const Call& call, const Item& item);
  void split_items(const Call& call);
  static void gather(const Call& call, const Item& item, std::vector<float>& queries);
  static void put(const Call& call, const Item& item, Partial& total);

  int n_threads_;
  // Of the last run, kept for its memory.
  std::vector<Item> items_;
  std::vector<std::pair<size_t, size_t>> work_;  // item, chunk
  std::vector<Partial> partials_;                // of each
  std::vector<std::vector<float>> queries_;      // of each item
  Partial total_;
};

}  // namespace kpd::cache
