// cache: blocks of raw memory with reference counts, aligned to 64 bytes, in huge pages. Private.
#pragma once

#include <cstddef>
#include <cstdint>
#include <algorithm>
#include <vector>

#include "kpd/base/memory.h"
#include "kpd/cache/kv_cache.h"

namespace kpd::cache {

inline constexpr uint32_t kNoBlock = UINT32_MAX;
static_assert(kMaxCacheTokens / kBlockTokens <= uint64_t{1} << 32);  // a block's number is a uint32_t; the last is kNoBlock

inline size_t blocks_for(size_t tokens) { return (tokens + kBlockTokens - 1) / kBlockTokens; }

// Room for n and as many more, and at first for a thousand: a list that grows by one a step is seldom laid anew.
template <class T>
void reserve_twice(std::vector<T>& list, size_t n) {
  constexpr size_t kFirst = 1024;
  if (n > list.capacity()) list.reserve(2 * n > kFirst ? 2 * n : kFirst);
}

class BlockPool {
 public:
  BlockPool(size_t block_bytes, size_t capacity)
      : block_bytes_(block_bytes), capacity_(capacity), arena_(std::min(capacity * block_bytes, kArenaBytes)) {}
  // Throws Error(kLimitExceeded) if fewer than n are left.
  void require(size_t n) const;
  size_t n_left() const { return capacity_ - (blocks_.size() - free_.size()); }
  uint32_t take();  // count 1; zeros
  uint32_t copy(uint32_t block);
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

}  // namespace kpd::cache
