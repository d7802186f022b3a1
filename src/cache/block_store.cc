// cache: see block_store.h.
#include "cache/block_store.h"

#include <algorithm>

namespace kpd::cache {
namespace {

size_t aligned(size_t bytes) { return round_up(bytes, kCacheLineBytes); }

std::vector<GroupBlocks> make_pools(const std::vector<StoreGroup>& groups, const std::vector<size_t>& group_of,
                                    size_t n_blocks) {
  std::vector<GroupBlocks> pools;
  for (size_t g = 0; g < groups.size(); ++g) {
    const size_t n_heads = static_cast<size_t>(std::count(group_of.begin(), group_of.end(), g)) * groups[g].shape.n_kv_heads;
    const auto bytes = [&](PartState state) {
      return n_heads *
             (aligned(groups[g].formats.keys->part_bytes(state)) + aligned(groups[g].formats.values->part_bytes(state)));
    };
    const Sealing sealing = groups[g].formats.sealing;
    pools.push_back({BlockPool(bytes(PartState::kOpen), n_blocks),
                     BlockPool(sealing.seals() ? bytes(PartState::kSealed) : 0, sealing.seals() ? n_blocks : 0), sealing});
  }
  // A cache of no layers counts its tokens all the same.
  if (pools.empty()) pools.push_back({BlockPool(0, n_blocks), BlockPool(0, 0), {}});
  return pools;
}

}  // namespace

BlockStore::BlockStore(std::vector<StoreGroup> groups, std::vector<size_t> group_of, size_t n_blocks)
    : sequences(make_pools(groups, group_of, n_blocks)), groups_(std::move(groups)), group_of_(std::move(group_of)) {
  std::vector<size_t> n(groups_.size(), 0);
  for (const size_t g : group_of_) index_in_group_.push_back(n[g]++);
  for (const StoreGroup& group : groups_) {
    for (const PartState state : {PartState::kOpen, PartState::kSealed}) {
      const size_t key_bytes = aligned(group.formats.keys->part_bytes(state));
      (state == PartState::kOpen ? open_ : sealed_)
          .push_back({key_bytes, key_bytes + aligned(group.formats.values->part_bytes(state))});
    }
  }
}

uint64_t BlockStore::bytes_for(size_t tokens) const {
  uint64_t sum = 0;
  for (const GroupBlocks& group : sequences.groups()) {
    const size_t n = blocks_for(tokens);
    // A step may begin a block before commit() gives the oldest back.
    const size_t n_open = group.sealing.seals() ? std::min(n, group.sealing.kept_blocks + 1) : n;
    sum += uint64_t{n_open} * group.open.block_bytes() + uint64_t{tokens / kBlockTokens} * group.sealed.block_bytes();
  }
  return sum;
}

size_t BlockStore::offset(size_t layer, size_t head, PartState state) const {
  const size_t g = group_of_[layer];
  const Layout& layout = state == PartState::kOpen ? open_[g] : sealed_[g];
  return (index_in_group_[layer] * groups_[g].shape.n_kv_heads + head) * layout.head_bytes;
}

const uint8_t* BlockStore::head_at(const Sequence& s, size_t layer, size_t head, size_t b, PartState state) const {
  const size_t g = group_of_[layer];
  const GroupBlocks& blocks = sequences.groups()[g];
  const uint8_t* block =
      state == PartState::kOpen ? blocks.open.data(s.tables[g].open[b]) : blocks.sealed.data(s.tables[g].sealed[b]);
  return block + offset(layer, head, state);
}

ConstPart BlockStore::keys(const Sequence& s, size_t layer, size_t head, size_t b, PartState state) const {
  return {head_at(s, layer, head, b, state), state};
}

ConstPart BlockStore::values(const Sequence& s, size_t layer, size_t head, size_t b, PartState state) const {
  const Layout& layout = state == PartState::kOpen ? open_[group_of_[layer]] : sealed_[group_of_[layer]];
  return {head_at(s, layer, head, b, state) + layout.key_bytes, state};
}

uint8_t* BlockStore::keys_to_write(const Sequence& s, size_t layer, size_t head, size_t b, PartState state) {
  return const_cast<uint8_t*>(keys(s, layer, head, b, state).data);
}

uint8_t* BlockStore::values_to_write(const Sequence& s, size_t layer, size_t head, size_t b, PartState state) {
  return const_cast<uint8_t*>(values(s, layer, head, b, state).data);
}

void BlockStore::append(const Sequence& s, size_t layer, size_t head, size_t token, const float* key, const float* value) {
  write_key(s, layer, head, token, key);
  group(layer).formats.values->append(values_to_write(s, layer, head, token / kBlockTokens, PartState::kOpen),
                                      token % kBlockTokens, value);
}

void BlockStore::seal(const Sequence& s, size_t layer, size_t head, size_t b) {
  const LayerFormats& formats = group(layer).formats;
  formats.keys->seal(keys(s, layer, head, b, PartState::kOpen).data, keys_to_write(s, layer, head, b, PartState::kSealed),
                     b * kBlockTokens);
  formats.values->seal(values(s, layer, head, b, PartState::kOpen).data, values_to_write(s, layer, head, b, PartState::kSealed),
                       b * kBlockTokens);
}

void BlockStore::write_key(const Sequence& s, size_t layer, size_t head, size_t token, const float* key) {
  group(layer).formats.keys->append(keys_to_write(s, layer, head, token / kBlockTokens, PartState::kOpen), token % kBlockTokens,
                                    key);
}

void BlockStore::move(const Sequence& s, size_t layer, size_t head, size_t from, size_t to) {
  const LayerFormats& formats = group(layer).formats;
  const size_t b = from / kBlockTokens, slot = from % kBlockTokens, to_b = to / kBlockTokens, to_slot = to % kBlockTokens;
  formats.keys->move(keys(s, layer, head, b, PartState::kOpen).data, slot,
                     keys_to_write(s, layer, head, to_b, PartState::kOpen), to_slot);
  formats.values->move(values(s, layer, head, b, PartState::kOpen).data, slot,
                       values_to_write(s, layer, head, to_b, PartState::kOpen), to_slot);
}

void BlockStore::read_keys(const Sequence& s, size_t layer, size_t head, size_t first, size_t n, float* keys_out) const {
  const StoreGroup& g = group(layer);
  for (size_t at = 0; at < n;) {
    const size_t token = first + at, slot = token % kBlockTokens, some = std::min(n - at, kBlockTokens - slot);
    g.formats.keys->read(keys(s, layer, head, token / kBlockTokens, PartState::kOpen), slot, some,
                         keys_out + at * g.shape.key_width);
    at += some;
  }
}

bool BlockStore::reopen(Sequence& s, size_t b, size_t n) {
  std::vector<GroupBlocks>& pools = sequences.groups();
  const auto given_back = [&](size_t g) { return b < s.tables[g].open.size() && s.tables[g].open[b] == kNoBlock; };
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (given_back(g) && pools[g].open.n_left() == 0) return false;
  }
  std::vector<float> keys_read, values_read;
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (!given_back(g)) continue;
    s.tables[g].open[b] = pools[g].open.take();
    const StoreGroup& group = groups_[g];
    keys_read.resize(n * group.shape.key_width);
    values_read.resize(n * group.shape.value_width);
    for (size_t layer = 0; layer < group_of_.size(); ++layer) {
      for (size_t head = 0; group_of_[layer] == g && head < group.shape.n_kv_heads; ++head) {
        group.formats.keys->read(keys(s, layer, head, b, PartState::kSealed), 0, n, keys_read.data());
        group.formats.values->read(values(s, layer, head, b, PartState::kSealed), 0, n, values_read.data());
        for (size_t i = 0; i < n; ++i) {
          append(s, layer, head, b * kBlockTokens + i, keys_read.data() + i * group.shape.key_width,
                 values_read.data() + i * group.shape.value_width);
        }
      }
    }
  }
  return true;
}

bool BlockStore::exact_at(const Sequence& s, size_t n) const {
  for (size_t g = 0; g < groups_.size(); ++g) {
    const size_t exact = groups_[g].formats.sealing.exact_blocks, block = n / kBlockTokens;
    if (exact == 0) continue;
    for (size_t b = block + 1 > exact ? block + 1 - exact : 0; b < blocks_for(n); ++b) {
      if (s.tables[g].open[b] == kNoBlock) return false;
    }
  }
  return true;
}

}  // namespace kpd::cache
