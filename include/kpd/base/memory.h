// base: the one owner of aligned memory. Everything that is large, lasts, or is read by vectors comes from here: packed
// weights, blocks of caches, scratch of steps. What holds a huge page or more is aligned to one, and huge pages are asked for:
// with pages of 4 KiB every page that a step reads is a miss of the address cache.
//
// A refused request is Error(kOutOfMemory) that names the size, never std::bad_alloc. All types here are thread-compatible.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace kpd {

inline constexpr size_t kCacheLineBytes = 64;
inline constexpr size_t kHugePageBytes = size_t{2} << 20;

// The least multiple of `to` that is not below n.
constexpr size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

enum class Contents { kUndefined, kZeros };

// Owns size() bytes, aligned to kCacheLineBytes, from kHugePageBytes on to kHugePageBytes.
class MemoryBlock {
 public:
  MemoryBlock() = default;
  explicit MemoryBlock(size_t n_bytes, Contents contents = Contents::kUndefined);
  MemoryBlock(MemoryBlock&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  MemoryBlock& operator=(MemoryBlock&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~MemoryBlock();

  uint8_t* data() const { return data_; }  // null if empty
  size_t size() const { return size_; }
  std::span<uint8_t> bytes() const { return {data_, size_}; }

 private:
  uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

namespace detail {
// n elements of so many bytes each; throws as a refused request where the product is beyond what there can be.
size_t array_bytes(size_t n, size_t element_bytes);
}  // namespace detail

// An array of numbers, aligned to kCacheLineBytes, for what is written anew before each use.
template <class T>
class AlignedBuffer {
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T> && alignof(T) <= kCacheLineBytes);

 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(size_t n) { resize(n); }

  // Contents are undefined afterwards. Memory is kept when n gets smaller and grows by half at least when it gets larger.
  void resize(size_t n) {
    const size_t n_bytes = detail::array_bytes(n, sizeof(T));
    if (n_bytes > block_.size()) {
      const size_t grown = block_.size() + block_.size() / 2;
      size_ = 0;
      block_ = MemoryBlock();  // before the new one, so that both are never held
      block_ = MemoryBlock(std::max(n_bytes, grown));
    }
    size_ = n;
  }

  T* data() const { return reinterpret_cast<T*>(block_.data()); }
  size_t size() const { return size_; }
  T& operator[](size_t i) const { return data()[i]; }
  std::span<T> values() const { return {data(), size_}; }

 private:
  MemoryBlock block_;
  size_t size_ = 0;
};

// Hands out pieces of large blocks, each aligned to kCacheLineBytes. All pieces end together, with reset() or the arena.
class Arena {
 public:
  // Blocks of so many bytes, whole huge pages where it is as much as one; a larger piece gets a block of its own.
  explicit Arena(size_t block_bytes);

  // n_bytes of undefined contents, also for n_bytes = 0 not null. Takes memory from the system only where no kept block has
  // room; nothing has changed if that fails.
  uint8_t* take(size_t n_bytes);
  // Whether the block at hand has room for a piece of n_bytes.
  bool has_room(size_t n_bytes) const;
  // Ends all pieces and keeps the memory: the same pieces in the same order take none from the system again.
  void reset();
  // Taken from the system.
  size_t bytes() const;

 private:
  bool fits(size_t block, size_t used, size_t n_bytes) const;

  size_t block_bytes_;
  std::vector<MemoryBlock> blocks_;
  size_t current_ = 0, used_ = 0;  // the block at hand, of which used_ bytes are taken
};

}  // namespace kpd
