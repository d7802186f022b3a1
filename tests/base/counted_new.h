// tests: tracks the bytes that operator new handed out. Replaces it: one source file of a program includes this.
#pragma once

#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

#include "kpd/base/error.h"

namespace kpd::testing {

inline std::atomic<int64_t> g_live{0}, g_peak{0};

inline void* counted(size_t bytes, size_t alignment) {
  void* p = alignment <= alignof(std::max_align_t)
                ? std::malloc(bytes > 0 ? bytes : 1)
                : std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (p == nullptr) throw std::bad_alloc();
  const int64_t live =
      g_live.fetch_add(static_cast<int64_t>(malloc_usable_size(p))) + static_cast<int64_t>(malloc_usable_size(p));
  int64_t peak = g_peak.load();
  while (live > peak && !g_peak.compare_exchange_weak(peak, live)) {
  }
  return p;
}

inline void uncounted(void* p) {
  if (p != nullptr) g_live.fetch_sub(static_cast<int64_t>(malloc_usable_size(p)));
  std::free(p);
}

}  // namespace kpd::testing

void* operator new(size_t n) { return kpd::testing::counted(n, 0); }
void* operator new[](size_t n) { return kpd::testing::counted(n, 0); }
void* operator new(size_t n, std::align_val_t a) { return kpd::testing::counted(n, static_cast<size_t>(a)); }
void* operator new[](size_t n, std::align_val_t a) { return kpd::testing::counted(n, static_cast<size_t>(a)); }
void operator delete(void* p) noexcept { kpd::testing::uncounted(p); }
void operator delete[](void* p) noexcept { kpd::testing::uncounted(p); }
void operator delete(void* p, size_t) noexcept { kpd::testing::uncounted(p); }
void operator delete[](void* p, size_t) noexcept { kpd::testing::uncounted(p); }
void operator delete(void* p, std::align_val_t) noexcept { kpd::testing::uncounted(p); }
void operator delete[](void* p, std::align_val_t) noexcept { kpd::testing::uncounted(p); }
void operator delete(void* p, size_t, std::align_val_t) noexcept { kpd::testing::uncounted(p); }
void operator delete[](void* p, size_t, std::align_val_t) noexcept { kpd::testing::uncounted(p); }

namespace kpd::testing {

// Most bytes held at once while fn runs, beyond those held before.
template <class Fn>
int64_t peak_of(const Fn& fn) {
  const int64_t before = g_live.load();
  g_peak.store(before);
  try {
    fn();
  } catch (const Error&) {
  }
  return g_peak.load() - before;
}

}  // namespace kpd::testing
