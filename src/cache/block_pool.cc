// cache: see block_pool.h.
#include "cache/block_pool.h"

#include <cstring>

#include "kpd/base/error.h"

namespace kpd::cache {

void BlockPool::require(size_t n) const {
  if (n > n_left()) {
    fail(ErrorCode::kLimitExceeded, "the cache holds ", capacity_ * kBlockTokens, " tokens in blocks of ", kBlockTokens, "; ",
         n, " more blocks are needed, ", n_left(), " are left");
  }
}

uint32_t BlockPool::take() {
  require(1);
  if (free_.empty()) grow();
  const uint32_t block = free_.back();
  free_.pop_back();
  counts_[block] = 1;
  // Unused slots are multiplied by zero in attention: what was there must not be an infinity.
  std::memset(blocks_[block], 0, block_bytes_);
  return block;
}

void BlockPool::grow() {
  // Room in all three lists first: they stay of one length, and giving a block back needs no memory.
  reserve_twice(blocks_, blocks_.size() + 1);
  reserve_twice(counts_, blocks_.size() + 1);
  reserve_twice(free_, blocks_.size() + 1);
  blocks_.push_back(arena_.take(block_bytes_));
  counts_.push_back(0);
  free_.push_back(static_cast<uint32_t>(blocks_.size() - 1));
}

uint32_t BlockPool::copy(uint32_t block) {
  const uint32_t to = take();
  std::memcpy(data(to), data(block), block_bytes_);
  return to;
}

void BlockPool::release(uint32_t block) {
  if (--counts_[block] == 0) free_.push_back(block);
}

}  // namespace kpd::cache
