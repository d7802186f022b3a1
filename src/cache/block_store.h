// cache: sequences of blocks and the formats that say what lies in them. Private.
#pragma once

#include <string>
#include <vector>

#include "cache/format.h"
#include "cache/sequences.h"

namespace kpd::cache {

// What a group's layers have in common.
struct StoreGroup {
  Layer shape;
  std::string spec;
  LayerFormats formats;
};

class BlockStore {
 public:
  using Sequence = Sequences::Sequence;

  // group_of: the group of each layer.
  BlockStore(std::vector<StoreGroup> groups, std::vector<size_t> group_of, size_t n_blocks);

  Sequences sequences;

  size_t n_layers() const { return group_of_.size(); }
  size_t group_of(size_t layer) const { return group_of_[layer]; }
  const StoreGroup& group(size_t layer) const { return groups_[group_of_[layer]]; }
  const std::vector<StoreGroup>& groups() const { return groups_; }
  uint64_t bytes_for(size_t tokens) const;

  // Parts of KV head `head` in block b of the sequence.
  ConstPart keys(const Sequence& s, size_t layer, size_t head, size_t b, PartState state) const;
  ConstPart values(const Sequence& s, size_t layer, size_t head, size_t b, PartState state) const;
  uint8_t* keys_to_write(const Sequence& s, size_t layer, size_t head, size_t b, PartState state);
  uint8_t* values_to_write(const Sequence& s, size_t layer, size_t head, size_t b, PartState state);

  // Token `token` of a head: keys [key_width], values [value_width].
  void append(const Sequence& s, size_t layer, size_t head, size_t token, const float* key, const float* value);
  // Seals block b of a head, of a group that does so.
  void seal(const Sequence& s, size_t layer, size_t head, size_t b);
  void write_key(const Sequence& s, size_t layer, size_t head, size_t token, const float* key);
  // Token `from` of a head becomes token `to`, as it is stored, in open blocks.
  void move(const Sequence& s, size_t layer, size_t head, size_t from, size_t to);
  // Keys [n, key_width] of the tokens [first, first + n) of a head, from open blocks.
  void read_keys(const Sequence& s, size_t layer, size_t head, size_t first, size_t n, float* keys) const;
  // Makes the open blocks of block b, whose were given back, from its sealed ones: `n` tokens of it. False for want of room.
  bool reopen(Sequence& s, size_t b, size_t n);
  // Whether the sequence, cut to n tokens, has all open blocks that later queries read.
  bool exact_at(const Sequence& s, size_t n) const;

 private:
  // In a block of the group, layer after layer, head after head: keys, then values.
  struct Layout {
    size_t key_bytes = 0, head_bytes = 0;  // of a head's keys; of both
  };
  size_t offset(size_t layer, size_t head, PartState state) const;
  const uint8_t* head_at(const Sequence& s, size_t layer, size_t head, size_t b, PartState state) const;

  std::vector<StoreGroup> groups_;
  std::vector<size_t> group_of_, index_in_group_;
  std::vector<Layout> open_, sealed_;  // of each group
};

}  // namespace kpd::cache
