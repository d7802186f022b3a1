// tests: replaces every operator new of the program, once: include it in the one source of a test.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <new>

namespace kpd::testing {

// Called before every allocation, on its thread; throws std::bad_alloc for one that is to fail. The test defines it.
void before_allocation();

inline void* allocate(size_t bytes, size_t alignment) {
  before_allocation();
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
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }
void operator delete[](void* p, size_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, size_t, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, size_t, std::align_val_t) noexcept { std::free(p); }
