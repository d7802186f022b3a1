// cache: blocks of raw memory with reference counts, aligned to 64 bytes. Private.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

#include "kpd/cache/kv_cache.h"

namespace kpd::cache {

inline constexpr size_t kBlockAlignment = 64;
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
  BlockPool(size_t block_bytes, size_t capacity) : block_bytes_(block_bytes), capacity_(capacity) {}
  // Throws Error(kLimitExceeded) if fewer than n are left.
  void require(size_t n) const;
  size_t n_left() const { return capacity_ - (blocks_.size() - free_.size()); }
  uint32_t take();  // count 1; zeros
  uint32_t copy(uint32_t block);
  void share(uint32_t block) { ++counts_[block]; }
  void release(uint32_t block);
  bool shared(uint32_t block) const { return counts_[block] > 1; }
  size_t n_holders(uint32_t block) const { return counts_[block]; }
  uint8_t* data(uint32_t block) { return blocks_[block].get(); }
  const uint8_t* data(uint32_t block) const { return blocks_[block].get(); }
  size_t block_bytes() const { return block_bytes_; }
  size_t capacity() const { return capacity_; }
  uint64_t bytes() const { return blocks_.size() * block_bytes_; }

 private:
  struct Free {
    void operator()(uint8_t* p) const { ::operator delete[](p, std::align_val_t{kBlockAlignment}); }
  };
  using Block = std::unique_ptr<uint8_t[], Free>;

  size_t block_bytes_, capacity_;
  std::vector<Block> blocks_;
  std::vector<uint32_t> counts_, free_;
};

}  // namespace kpd::cache
