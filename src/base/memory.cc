// base: aligned memory (kpd/base/memory.h).
#include "kpd/base/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "kpd/base/error.h"

#if defined(__SANITIZE_ADDRESS__)
#define KPD_ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define KPD_ADDRESS_SANITIZER 1
#endif
#endif
#ifdef KPD_ADDRESS_SANITIZER
#include <sanitizer/asan_interface.h>
#endif

namespace kpd {
namespace {

// Beyond any address space of today. Refused before the system, and a sanitizer, hears of it.
constexpr size_t kMostBytes = size_t{1} << 47;

[[noreturn]] void refuse(size_t n_bytes) { fail(ErrorCode::kOutOfMemory, "cannot allocate ", n_bytes, " bytes of memory"); }

std::align_val_t alignment_of(size_t n_bytes) {
  return std::align_val_t{n_bytes >= kHugePageBytes ? kHugePageBytes : kCacheLineBytes};
}

// The address sanitizer sees an arena as one block: it is told what is taken, and a gap behind each piece never is.
#ifdef KPD_ADDRESS_SANITIZER
constexpr size_t kGapBytes = kCacheLineBytes;
void forbid(const uint8_t* p, size_t n) { __asan_poison_memory_region(p, n); }
void allow(const uint8_t* p, size_t n) { __asan_unpoison_memory_region(p, n); }
#else
constexpr size_t kGapBytes = 0;
void forbid(const uint8_t*, size_t) {}
void allow(const uint8_t*, size_t) {}
#endif

// What a piece takes of its block.
size_t taken(size_t n_bytes) {
  if (n_bytes > kMostBytes) refuse(n_bytes);
  return round_up(n_bytes, kCacheLineBytes) + kGapBytes;
}

}  // namespace

MemoryBlock::MemoryBlock(size_t n_bytes, Contents contents) {
  if (n_bytes == 0) return;
  if (n_bytes > kMostBytes) refuse(n_bytes);
  try {
    data_ = static_cast<uint8_t*>(::operator new[](n_bytes, alignment_of(n_bytes)));
  } catch (const std::bad_alloc&) {
    refuse(n_bytes);
  }
  size_ = n_bytes;
#ifdef MADV_HUGEPAGE
  if (n_bytes >= kHugePageBytes) (void)madvise(data_, n_bytes, MADV_HUGEPAGE);  // advice: without it all is as well, but slower
#endif
  if (contents == Contents::kZeros) std::memset(data_, 0, n_bytes);
}

MemoryBlock::~MemoryBlock() {
  if (data_ != nullptr) ::operator delete[](data_, alignment_of(size_));
}

size_t detail::array_bytes(size_t n, size_t element_bytes) {
  if (n > kMostBytes / element_bytes) {
    fail(ErrorCode::kOutOfMemory, "cannot allocate ", n, " elements of ", element_bytes, " bytes of memory");
  }
  return n * element_bytes;
}

Arena::Arena(size_t block_bytes) : block_bytes_(block_bytes) {}

bool Arena::fits(size_t block, size_t used, size_t n_bytes) const {
  return block < blocks_.size() && taken(n_bytes) <= blocks_[block].size() - used;
}

bool Arena::has_room(size_t n_bytes) const { return fits(current_, used_, n_bytes); }

uint8_t* Arena::take(size_t n_bytes) {
  size_t block = current_, used = used_;
  while (block < blocks_.size() && !fits(block, used, n_bytes)) {
    ++block;
    used = 0;
  }
  if (block >= blocks_.size()) {
    const size_t least = std::max({block_bytes_, taken(n_bytes), kCacheLineBytes});
    if (least > kMostBytes) refuse(least);
    const size_t size = round_up(least, least >= kHugePageBytes ? kHugePageBytes : kCacheLineBytes);
    try {
      blocks_.emplace_back(size);
    } catch (const std::bad_alloc&) {  // of the list
      refuse(size);
    }
    forbid(blocks_.back().data(), size);
    block = blocks_.size() - 1;
    used = 0;
  }
  uint8_t* const piece = blocks_[block].data() + used;
  allow(piece, n_bytes);
  current_ = block;
  used_ = used + taken(n_bytes);
  return piece;
}

void Arena::reset() {
  for (const MemoryBlock& block : blocks_) forbid(block.data(), block.size());
  current_ = used_ = 0;
}

size_t Arena::bytes() const {
  size_t sum = 0;
  for (const MemoryBlock& block : blocks_) sum += block.size();
  return sum;
}

}  // namespace kpd
