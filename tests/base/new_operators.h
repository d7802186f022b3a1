// tests: every operator new and delete of a program, by way of allocate() and release(), which the header that includes this
// one defines (counted_new.h, replaced_new.h). One of those stands in the one source of a test.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <new>

namespace kpd::testing {

inline void* allocate(size_t bytes, size_t alignment);  // throws std::bad_alloc
inline void release(void* p) noexcept;

// malloc() of that alignment. Throws std::bad_alloc.
inline void* system_allocate(size_t bytes, size_t alignment) {
  void* p = alignment <= alignof(std::max_align_t)
                ? std::malloc(bytes > 0 ? bytes : 1)
                : std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}

inline void* allocate_or_null(size_t bytes) noexcept {
  try {
    return allocate(bytes, 0);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

}  // namespace kpd::testing

void* operator new(size_t n) { return kpd::testing::allocate(n, 0); }
void* operator new[](size_t n) { return kpd::testing::allocate(n, 0); }
void* operator new(size_t n, std::align_val_t a) { return kpd::testing::allocate(n, static_cast<size_t>(a)); }
void* operator new[](size_t n, std::align_val_t a) { return kpd::testing::allocate(n, static_cast<size_t>(a)); }
void* operator new(size_t n, const std::nothrow_t&) noexcept { return kpd::testing::allocate_or_null(n); }
void* operator new[](size_t n, const std::nothrow_t&) noexcept { return kpd::testing::allocate_or_null(n); }
void operator delete(void* p) noexcept { kpd::testing::release(p); }
void operator delete[](void* p) noexcept { kpd::testing::release(p); }
void operator delete(void* p, size_t) noexcept { kpd::testing::release(p); }
void operator delete[](void* p, size_t) noexcept { kpd::testing::release(p); }
void operator delete(void* p, std::align_val_t) noexcept { kpd::testing::release(p); }
void operator delete[](void* p, std::align_val_t) noexcept { kpd::testing::release(p); }
void operator delete(void* p, size_t, std::align_val_t) noexcept { kpd::testing::release(p); }
void operator delete[](void* p, size_t, std::align_val_t) noexcept { kpd::testing::release(p); }
