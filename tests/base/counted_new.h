// tests: tracks the bytes that operator new handed out. Replaces it: one source file of a program includes this.
#pragma once

#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/new_operators.h"
#include "kpd/base/error.h"

namespace kpd::testing {

inline std::atomic<int64_t> g_live{0}, g_peak{0};

inline void* allocate(size_t bytes, size_t alignment) {
  void* p = system_allocate(bytes, alignment);
  const int64_t live =
      g_live.fetch_add(static_cast<int64_t>(malloc_usable_size(p))) + static_cast<int64_t>(malloc_usable_size(p));
  int64_t peak = g_peak.load();
  while (live > peak && !g_peak.compare_exchange_weak(peak, live)) {
  }
  return p;
}

inline void release(void* p) noexcept {
  if (p != nullptr) g_live.fetch_sub(static_cast<int64_t>(malloc_usable_size(p)));
  std::free(p);
}

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
