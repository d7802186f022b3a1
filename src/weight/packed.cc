// weight: memory of packed matrices (packed.h).
#include "weight/packed.h"

#include <sys/mman.h>

#include <mutex>
#include <new>

namespace kpd::weight {
namespace {

// A large piece of memory for which huge pages are asked.
class Piece {
 public:
  explicit Piece(size_t size) : size_(size) {
    data_ = static_cast<uint8_t*>(::operator new[](size, std::align_val_t{kHugePage}));
    madvise(data_, size, MADV_HUGEPAGE);  // advice only: where it is not taken, all is as before
  }
  ~Piece() { ::operator delete[](data_, std::align_val_t{kHugePage}); }
  Piece(const Piece&) = delete;
  Piece& operator=(const Piece&) = delete;

  // Null if n bytes no longer fit.
  uint8_t* take(size_t n) {
    n = (n + 63) / 64 * 64;
    if (n > size_ - used_) return nullptr;
    used_ += n;
    return data_ + used_ - n;
  }

  static constexpr size_t kHugePage = size_t{2} << 20;

 private:
  uint8_t* data_;
  size_t size_, used_ = 0;
};

}  // namespace

PackedBytes packed_bytes(size_t n) {
  constexpr size_t kPieceBytes = 8 * Piece::kHugePage;
  static std::mutex mutex;
  static std::weak_ptr<Piece> newest;
  const std::lock_guard lock(mutex);
  if (std::shared_ptr<Piece> piece = newest.lock()) {
    if (uint8_t* data = piece->take(n)) return {data, piece};
  }
  const size_t size = std::max(kPieceBytes, (n + Piece::kHugePage - 1) / Piece::kHugePage * Piece::kHugePage);
  auto piece = std::make_shared<Piece>(size);
  uint8_t* data = piece->take(n);
  newest = piece;
  return {data, piece};
}

}  // namespace kpd::weight
