// cache: what changes the sequences of a block cache. Saved sequences are in block_cache_file.cc.
#include "cache/block_cache.h"

#include <algorithm>

#include "kpd/base/error.h"

namespace kpd::cache {

size_t BlockCache::pending_rows() const {
  size_t n = 0;
  for (const Sequences::Part& part : store_.sequences.pending()) n += part.n_rows;
  return n;
}

Plan BlockCache::plan(SequenceId sequence) const {
  const Sequences::Sequence* s = store_.sequences.find(sequence);
  return s == nullptr ? Plan{} : s->plan;
}

uint64_t BlockCache::bytes() const {
  uint64_t sum = 0;
  for (const GroupBlocks& group : store_.sequences.groups()) sum += group.open.bytes() + group.sealed.bytes();
  return sum;
}

uint64_t BlockCache::capacity_bytes() const {
  uint64_t sum = 0;
  for (const GroupBlocks& group : store_.sequences.groups())
    sum += uint64_t{n_blocks_} * (group.open.block_bytes() + group.sealed.block_bytes());
  return sum;
}

// Cuts the sequence to `length` tokens, which it holds. exact: nothing that later queries read open was given back.
Cut BlockCache::cut(SequenceId sequence, size_t length, bool exact) {
  Sequences::Sequence* s = store_.sequences.find(sequence);
  if (s == nullptr) return {};
  // A tail whose open block was given back is read from its sealed one; without room for that the whole block goes.
  if (length % kBlockTokens != 0 && !store_.reopen(*s, length / kBlockTokens, length % kBlockTokens))
    length = length / kBlockTokens * kBlockTokens;
  s->exact = s->exact && exact;
  const Cut left{length, length == 0 || s->exact};
  store_.sequences.truncate(sequence, length);
  return left;
}

bool BlockCache::exact_at(SequenceId sequence, size_t length) const {
  const Sequences::Sequence* s = store_.sequences.find(sequence);
  return s == nullptr || length == 0 || length >= s->length || store_.exact_at(*s, length);
}

Cut BlockCache::crop(SequenceId sequence, size_t length) {
  store_.sequences.drop_pending();
  const size_t held = this->length(sequence);
  if (held == 0 && length > 0) return {};  // it may have a plan, which stays
  return cut(sequence, std::min(length, held), exact_at(sequence, length));
}

Cut BlockCache::fork(SequenceId from, SequenceId to, size_t length) {
  store_.sequences.drop_pending();
  if (from == to) return {this->length(from), reusable(from, this->length(from)) == this->length(from)};
  const bool exact = exact_at(from, length);
  // Whole blocks first: what is done to one that is not whole, cut() does to the copy alone.
  const size_t whole = blocks_for(length) * kBlockTokens;
  store_.sequences.fork(from, to, !exact && whole <= this->length(from) ? whole : length);
  return cut(to, length, exact);
}

size_t BlockCache::reusable(SequenceId sequence, size_t n) const {
  const Sequences::Sequence* s = store_.sequences.find(sequence);
  if (s == nullptr) return n;
  return s->exact && exact_at(sequence, n) ? n : 0;
}

void BlockCache::evict(SequenceId sequence, size_t first, size_t n, const KeyRotation* rotation) {
  Sequences& sequences = store_.sequences;
  sequences.drop_pending();
  const size_t held = sequences.length(sequence);
  if (first > held || n > held - first) {
    fail(ErrorCode::kInvalidArgument, "sequence ", sequence, " holds ", held, " tokens; ", first, " to ", first + n,
         " cannot be taken out");
  }
  if (n == 0) return;
  const size_t left = held - n, later = left - first;
  if (later > 0) {
    for (const StoreGroup& group : store_.groups()) {
      if (group.formats.sealing.seals())
        fail(ErrorCode::kUnsupported, "a cache of ", group.spec, " cannot take tokens out of a sequence");
    }
    Sequences::Sequence& s = *sequences.find(sequence);
    sequences.own_blocks(s, first / kBlockTokens, left);
    // The later tokens move back by as many positions as the gap is wide.
    const int32_t by = (first == 0 ? 0 : s.positions[first - 1] + 1) - s.positions[first + n];
    std::vector<float> keys;
    for (size_t layer = 0; layer < layers_.size(); ++layer) {
      const Layer& shape = layers_[layer];
      keys.resize(later * shape.key_width);
      for (size_t head = 0; head < shape.n_kv_heads; ++head) {
        if (rotation != nullptr) {
          store_.read_keys(s, layer, head, first + n, later, keys.data());
          rotation->turn(layer, keys.data(), later, by);
        }
        for (size_t i = 0; i < later; ++i) {
          store_.move(s, layer, head, first + n + i, first + i);
          if (rotation != nullptr) store_.write_key(s, layer, head, first + i, keys.data() + i * shape.key_width);
        }
      }
    }
    for (size_t i = 0; i < later; ++i) s.positions[first + i] = s.positions[first + n + i] + by;
  }
  sequences.truncate(sequence, left);
}

}  // namespace kpd::cache
