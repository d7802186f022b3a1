// base: ending a call of the library that takes long, from outside.
#pragma once

#include <functional>

namespace kpd {

// While it lives, a call of its thread that works in many tasks (encoding, decoding, a server's round, a model's step) asks
// `cancelled` before each of them, thousands of times a second; once it says true the call ends with Error(kCancelled), as by
// any other error in the middle of its work. Scopes of a thread nest: the innermost is asked, one with an empty function ends
// nothing.
class CancelScope {
 public:
  explicit CancelScope(std::function<bool()> cancelled);
  ~CancelScope();
  CancelScope(const CancelScope&) = delete;
  CancelScope& operator=(const CancelScope&) = delete;

 private:
  friend void check_cancelled();

  std::function<bool()> cancelled_;
  const CancelScope* outer_;
};

// Throws Error(kCancelled) where this thread's innermost scope says so.
void check_cancelled();

}  // namespace kpd
