// tests: replaces every operator new of the program, once: include it in the one source of a test.
#pragma once

#include "base/new_operators.h"

namespace kpd::testing {

// Called before every allocation, on its thread; throws std::bad_alloc for one that is to fail. The test defines it.
void before_allocation();

inline void* allocate(size_t bytes, size_t alignment) {
  before_allocation();
  return system_allocate(bytes, alignment);
}

inline void release(void* p) noexcept { std::free(p); }

}  // namespace kpd::testing
