// text: what a model thinks, told from what it says.
#pragma once

#include <string>
#include <string_view>

namespace kpd::text {

// Tells the thoughts between <think> and </think>, at an answer's start alone, from the answer, piece by piece, as llama-server
// does. White space around both tags goes; what may become one is held back. Thread-compatible.
class ThoughtSplitter {
 public:
  struct Parts {
    std::string thought, text;
  };
  enum class Begin { kUnopened, kOpen, kOff };
  // kOpen: the prompt opened <think> already; kOff: all is text.
  explicit ThoughtSplitter(Begin begin)
      : state_(begin == Begin::kOpen  ? State::kThought
               : begin == Begin::kOff ? State::kText
                                      : State::kStart) {}

  Parts push(std::string_view piece);
  Parts finish();  // what was held back

 private:
  enum class State { kStart, kThought, kAfter, kText };
  void start(Parts& out);
  void think(Parts& out, bool last);

  State state_;
  bool said_ = false;  // a thought has been given out
  std::string held_;
};

}  // namespace kpd::text
