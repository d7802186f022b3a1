// text: what the interpreter's parts share: guards for depth and for captured output. Private.
#pragma once

#include "text/jinja_interpreter.h"

namespace kpd::text::jinja {

// Python's own limit is 1,000 calls; each of ours is smaller than one of its.
constexpr uint32_t kMaxDepth = 1000;

class Interpreter::Deeper {
 public:
  explicit Deeper(Interpreter& interpreter) : interpreter_(interpreter) {
    if (++interpreter.depth_ <= kMaxDepth) return;
    --interpreter.depth_;
    throw Trouble{ErrorCode::kLimitExceeded, str("nested deeper than ", kMaxDepth, " levels")};
  }
  ~Deeper() { --interpreter_.depth_; }
  Deeper(const Deeper&) = delete;
  Deeper& operator=(const Deeper&) = delete;

 private:
  Interpreter& interpreter_;
};

// What is written while it lives goes to `text`.
class Interpreter::Capture {
 public:
  explicit Capture(Interpreter& interpreter);
  ~Capture();
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;
  Text text;

 private:
  Interpreter& interpreter_;
  Text* outer_;
};

}  // namespace kpd::text::jinja
