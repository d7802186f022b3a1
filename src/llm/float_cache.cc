// llm: the bookkeeping of the plain caches: which blocks a sequence holds, what is shared, what a step adds. Attention is in
// float_attention.cc, saved sequences in float_cache_file.cc.
#include "llm/float_cache.h"

#include <algorithm>
#include <cstring>

#include "kpd/base/error.h"

namespace kpd::llm {
namespace {

// Room for n and as many more, and at first for a thousand: a list that grows by one a step is seldom laid anew.
template <class T>
void reserve_twice(std::vector<T>& list, size_t n) {
  if (n > list.capacity()) list.reserve(std::max<size_t>(2 * n, 1024));
}

size_t blocks_for(size_t tokens) { return (tokens + kBlockTokens - 1) / kBlockTokens; }

}  // namespace

size_t CacheBatch::n_rows() const {
  size_t n = 0;
  for (const Part& part : parts) n += part.positions.size();
  return n;
}

void BlockPool::require(size_t n) const {
  const size_t in_use = blocks_.size() - free_.size();
  if (n > capacity_ - in_use) {
    fail(ErrorCode::kLimitExceeded, "the cache holds ", capacity_ * kBlockTokens, " tokens in blocks of ", kBlockTokens, "; ",
         n, " more blocks are needed, ", capacity_ - in_use, " are left");
  }
}

uint32_t BlockPool::take() {
  require(1);
  if (!free_.empty()) {
    const uint32_t block = free_.back();
    free_.pop_back();
    counts_[block] = 1;
    // Unused slots are multiplied by zero in attention: what was there must not be an infinity.
    std::memset(blocks_[block].get(), 0, block_bytes_);
    return block;
  }
  // Room in all three lists first: they stay of one length, and giving a block back needs no memory.
  reserve_twice(blocks_, blocks_.size() + 1);
  reserve_twice(counts_, blocks_.size() + 1);
  reserve_twice(free_, blocks_.size() + 1);
  blocks_.push_back(std::make_unique<uint8_t[]>(block_bytes_));
  counts_.push_back(1);
  return static_cast<uint32_t>(blocks_.size() - 1);
}

void BlockPool::release(uint32_t block) {
  if (--counts_[block] == 0) free_.push_back(block);
}

FloatCache::FloatCache(DType dtype, std::span<const CacheLayer> layers, size_t capacity, int n_threads)
    : dtype_(dtype), layers_(layers.begin(), layers.end()), n_threads_(n_threads), pool_(0, 0) {
  size_t offset = 0;
  for (const CacheLayer& layer : layers_) {
    layer_offsets_.push_back(offset);
    offset += 2 * layer.n_kv_heads * layer.head_dim * kBlockTokens * dtype_bytes(dtype_);
  }
  pool_ = BlockPool(offset, blocks_for(capacity));
}

uint64_t FloatCache::bytes_for(size_t tokens) const { return blocks_for(tokens) * pool_.block_bytes(); }

std::string FloatCache::spec() const { return dtype_ == DType::kFloat32 ? "f32" : dtype_ == DType::kFloat16 ? "f16" : "bf16"; }

size_t FloatCache::head_offset(size_t layer, size_t head) const {
  return layer_offsets_[layer] + head * 2 * layers_[layer].head_dim * kBlockTokens * dtype_bytes(dtype_);
}

// A sequence that was only announced is forgotten with its announcement.
void FloatCache::drop_pending() {
  for (const Part& part : pending_) {
    Sequence& s = *part.sequence;
    s.positions.resize(s.length);
    while (s.blocks.size() > blocks_for(s.length)) {
      pool_.release(s.blocks.back());
      s.blocks.pop_back();
    }
  }
  pending_.clear();
  std::erase_if(sequences_, [](const auto& entry) { return entry.second.length == 0; });
}

// Makes a block that others share the sequence's own.
void FloatCache::own_block(Sequence& s, size_t index) {
  const uint32_t old = s.blocks[index];
  if (!pool_.shared(old)) return;
  const uint32_t copy = pool_.take();
  std::memcpy(pool_.data(copy), pool_.data(old), pool_.block_bytes());
  pool_.release(old);
  s.blocks[index] = copy;
}

// Copies that must be made so that each sequence that writes to a shared block has it alone: `written` names the block once a
// writer, and is put in order. Where all its holders write, the last of them keeps it.
size_t FloatCache::n_copies(std::vector<uint32_t>& written) const {
  std::sort(written.begin(), written.end());
  size_t n = 0;
  for (size_t i = 0, end; i < written.size(); i = end) {
    end = i;
    while (end < written.size() && written[end] == written[i]) ++end;
    n += std::min(end - i, pool_.n_holders(written[i]) - 1);
  }
  return n;
}

void FloatCache::begin(const CacheBatch& batch) {
  drop_pending();
  size_t needed = 0;
  std::vector<uint32_t>& written = scratch_.written;
  std::vector<SequenceId>& seen = scratch_.seen;
  written.clear();
  seen.clear();
  for (const CacheBatch::Part& part : batch.parts) {
    if (std::find(seen.begin(), seen.end(), part.sequence) != seen.end()) {
      fail(ErrorCode::kInvalidArgument, "sequence ", part.sequence, " is in the batch twice");
    }
    seen.push_back(part.sequence);
    int32_t last = next_position(part.sequence) - 1;
    for (const int32_t position : part.positions) {
      if (position <= last)
        fail(ErrorCode::kInvalidArgument, "sequence ", part.sequence, ": position ", position, " does not follow ", last);
      last = position;
    }
    if (last > kMaxPosition) fail(ErrorCode::kInvalidArgument, "sequence ", part.sequence, ": there is no position ", last);
    const auto it = sequences_.find(part.sequence);
    const size_t length = it == sequences_.end() ? 0 : it->second.length;
    needed += blocks_for(length + part.positions.size()) - blocks_for(length);
    if (!part.positions.empty() && length % kBlockTokens != 0 && pool_.shared(it->second.blocks.back()))
      written.push_back(it->second.blocks.back());
  }
  pool_.require(needed + n_copies(written));
  size_t row = 0;
  for (const CacheBatch::Part& part : batch.parts) {
    Sequence& s = sequences_[part.sequence];
    const size_t n = part.positions.size();
    pending_.push_back({&s, row, n});  // before it takes a block, so that none is lost if there is no memory for the next
    row += n;
    if (n > 0 && s.length % kBlockTokens != 0) own_block(s, s.blocks.size() - 1);
    reserve_twice(s.blocks, blocks_for(s.length + n));
    while (s.blocks.size() < blocks_for(s.length + n)) s.blocks.push_back(pool_.take());
    reserve_twice(s.positions, s.length + n);
    s.positions.insert(s.positions.end(), part.positions.begin(), part.positions.end());
  }
}

void FloatCache::commit() {
  for (const Part& part : pending_) part.sequence->length += part.n_rows;
  pending_.clear();
}

size_t FloatCache::length(SequenceId sequence) const {
  const auto it = sequences_.find(sequence);
  return it == sequences_.end() ? 0 : it->second.length;
}

int32_t FloatCache::next_position(SequenceId sequence) const {
  const auto it = sequences_.find(sequence);
  return it == sequences_.end() || it->second.length == 0 ? 0 : it->second.positions[it->second.length - 1] + 1;
}

void FloatCache::forget_if_empty(SequenceId sequence) {
  const auto it = sequences_.find(sequence);
  if (it != sequences_.end() && it->second.length == 0) sequences_.erase(it);
}

void FloatCache::crop(SequenceId sequence, size_t length) {
  drop_pending();
  const auto it = sequences_.find(sequence);
  if (it == sequences_.end()) return;
  Sequence& s = it->second;
  s.length = std::min(s.length, length);
  s.positions.resize(s.length);
  while (s.blocks.size() > blocks_for(s.length)) {
    pool_.release(s.blocks.back());
    s.blocks.pop_back();
  }
  forget_if_empty(sequence);
}

void FloatCache::fork(SequenceId from, SequenceId to, size_t length) {
  drop_pending();
  if (from == to) return;
  const auto it = sequences_.find(from);
  const size_t held = it == sequences_.end() ? 0 : it->second.length;
  if (length > held)
    fail(ErrorCode::kInvalidArgument, "sequence ", from, " holds ", held, " tokens, ", length, " were asked for");
  crop(to, 0);
  if (length == 0) return;
  const Sequence& source = it->second;
  Sequence copy;
  copy.length = length;
  copy.positions.assign(source.positions.begin(), source.positions.begin() + static_cast<std::ptrdiff_t>(length));
  copy.blocks.assign(source.blocks.begin(), source.blocks.begin() + static_cast<std::ptrdiff_t>(blocks_for(length)));
  Sequence& target = sequences_[to];
  for (const uint32_t block : copy.blocks) pool_.share(block);
  target = std::move(copy);
}

void FloatCache::evict(SequenceId sequence, size_t first, size_t n, Rerotate rerotate, const void* model) {
  drop_pending();
  const auto it = sequences_.find(sequence);
  const size_t held = it == sequences_.end() ? 0 : it->second.length;
  if (first > held || n > held - first) {
    fail(ErrorCode::kInvalidArgument, "sequence ", sequence, " holds ", held, " tokens; ", first, " to ", first + n,
         " cannot be taken out");
  }
  if (n == 0) return;
  Sequence& s = it->second;
  const size_t later = held - first - n;
  // Blocks that are written and stay; room for copies of all of them comes first.
  const size_t end_block = later == 0 ? 0 : blocks_for(held - n);
  size_t n_shared = 0;
  for (size_t block = first / kBlockTokens; block < end_block; ++block) n_shared += pool_.shared(s.blocks[block]) ? 1 : 0;
  pool_.require(n_shared);
  for (size_t block = first / kBlockTokens; block < end_block; ++block) own_block(s, block);
  // The later tokens move back by as many positions as the gap is wide.
  const int32_t before = first == 0 ? -1 : s.positions[first - 1];
  const int32_t by = later == 0 ? 0 : before + 1 - s.positions[first + n];
  std::vector<float> keys, values;
  for (size_t layer = 0; layer < layers_.size() && later > 0; ++layer) {
    keys.resize(later * layers_[layer].head_dim);
    values.resize(keys.size());
    for (size_t head = 0; head < layers_[layer].n_kv_heads; ++head) {
      read_tokens(s, layer, head, first + n, later, keys.data(), values.data());
      if (rerotate != nullptr) rerotate(model, layer, keys.data(), later, by);
      write_tokens(s, layer, head, first, later, keys.data(), values.data());
    }
  }
  for (size_t i = 0; i < later; ++i) s.positions[first + i] = s.positions[first + n + i] + by;
  crop(sequence, held - n);
}

std::unique_ptr<KvCache> make_cache(std::string_view spec, std::span<const CacheLayer> layers, size_t capacity, int n_threads) {
  if (capacity > kMaxCacheTokens)
    fail(ErrorCode::kInvalidArgument, "a cache of ", capacity, " tokens, expected at most ", kMaxCacheTokens);
  constexpr std::pair<std::string_view, DType> kPlain[] = {
      {"f32", DType::kFloat32}, {"f16", DType::kFloat16}, {"bf16", DType::kBFloat16}};
  for (const auto& [name, dtype] : kPlain) {
    if (name == spec) return std::make_unique<FloatCache>(dtype, layers, capacity, n_threads);
  }
  fail(ErrorCode::kInvalidArgument, "the cache method '", spec.substr(0, 60), "' is unknown; there are f32, f16, bf16");
}

}  // namespace kpd::llm
