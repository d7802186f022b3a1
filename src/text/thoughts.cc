// text: what a model thinks before it answers, told from the answer.
#include <algorithm>

#include "kpd/text/chat.h"
#include "kpd/text/thoughts.h"

namespace kpd::text {
namespace {

constexpr std::string_view kOpen = "<think>", kClose = "</think>", kSpaces = " \t\n\r\v\f";

}  // namespace

bool opens_thought(const ChatPrompt& prompt) {
  const size_t last = prompt.text.find_last_not_of(kSpaces);
  if (last == std::string::npos) return false;
  const size_t end = last + 1;
  if (!std::string_view(prompt.text).substr(0, end).ends_with(kOpen)) return false;
  return std::none_of(prompt.foreign.begin(), prompt.foreign.end(),
                      [&](const TextRange& r) { return r.begin < end && r.end > end - kOpen.size(); });
}

ThoughtSplitter::Parts ThoughtSplitter::push(std::string_view piece) {
  Parts out;
  held_ += piece;
  if (state_ == State::kStart) start(out);
  if (state_ == State::kThought) think(out, false);
  if (state_ == State::kAfter) {
    held_.erase(0, std::min(held_.find_first_not_of(kSpaces), held_.size()));
    if (!held_.empty()) state_ = State::kText;
  }
  if (state_ == State::kText) {
    out.text += held_;
    held_.clear();
  }
  return out;
}

ThoughtSplitter::Parts ThoughtSplitter::finish() {
  Parts out;
  if (state_ == State::kStart) out.text = held_;
  if (state_ == State::kThought) think(out, true);
  held_.clear();
  state_ = State::kText;
  return out;
}

void ThoughtSplitter::start(Parts&) {
  const size_t first = held_.find_first_not_of(kSpaces);
  if (first == std::string::npos) return;
  const std::string_view seen = std::string_view(held_).substr(first);
  if (seen.starts_with(kOpen)) {
    held_.erase(0, first + kOpen.size());
    state_ = State::kThought;
  } else if (!kOpen.starts_with(seen)) {
    state_ = State::kText;
  }
}

void ThoughtSplitter::think(Parts& out, bool last) {
  const size_t close = held_.find(kClose);
  size_t end = close == std::string::npos ? held_.size() : close;
  if (close == std::string::npos && !last) {
    for (size_t n = std::min(kClose.size() - 1, end); n > 0; --n) {
      if (!held_.ends_with(kClose.substr(0, n))) continue;
      end -= n;
      break;
    }
  }
  size_t begin = 0;
  if (!said_) begin = std::min(held_.find_first_not_of(kSpaces), end);
  // White space at the end waits: more thoughts may follow it.
  size_t stop = end;
  while (stop > begin && kSpaces.find(held_[stop - 1]) != std::string_view::npos) --stop;
  out.thought.append(held_, begin, stop - begin);
  said_ |= stop > begin;
  if (close != std::string::npos) {
    held_.erase(0, close + kClose.size());
    state_ = State::kAfter;
  } else {
    held_.erase(0, stop);
  }
}

}  // namespace kpd::text
