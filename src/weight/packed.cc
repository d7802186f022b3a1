// weight: memory of packed matrices (packed.h).
#include "weight/packed.h"

#include <mutex>

#include "kpd/base/memory.h"

namespace kpd::weight {

PackedBytes packed_bytes(size_t n) {
  constexpr size_t kBlockBytes = 8 * kHugePageBytes;
  static std::mutex mutex;
  static std::weak_ptr<Arena> newest;
  const std::lock_guard lock(mutex);
  std::shared_ptr<Arena> arena = newest.lock();
  if (arena == nullptr || !arena->has_room(n)) newest = arena = std::make_shared<Arena>(kBlockBytes);
  return {arena->take(n), arena};
}

}  // namespace kpd::weight
