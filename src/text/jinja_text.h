// text: strings of chat templates. A string knows which of its bytes came from outside the template (a user's message), and
// keeps knowing it through every operation, so that such text is never read as a control token (tokenizer_marked.cc). All
// strings are valid UTF-8 and positions in templates count code points, as Python's do. Private.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kpd/text/chat.h"

namespace kpd::text::jinja {

class Text {
 public:
  Text() = default;
  explicit Text(std::string bytes, bool foreign = false);

  const std::string& bytes() const { return bytes_; }
  std::string_view view() const { return bytes_; }
  size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  const std::vector<TextRange>& foreign() const { return foreign_; }  // ascending, disjoint, not adjacent
  bool foreign_at(size_t byte) const;

  void append(const Text& other) { append(other, 0, other.size()); }
  void append(const Text& other, size_t begin, size_t end);  // the bytes [begin, end) of it
  void append(std::string_view bytes, bool foreign);
  Text slice(size_t begin, size_t end) const;

 private:
  std::string bytes_;
  std::vector<TextRange> foreign_;
};

// Code points.
size_t count_chars(std::string_view text);
// The byte where the character `n` begins; the text's size for n = its number of characters. `from` is the start of a
// character.
size_t advance_chars(std::string_view text, size_t from, size_t n);

// str.isspace of one character.
bool is_python_space(uint32_t code);

// str.strip and its halves; `chars` null: white space.
Text strip(const Text& text, const std::string* chars, bool left, bool right);
// str.find and str.rfind on bytes; npos if it is not there. Linear.
size_t find_text(std::string_view text, std::string_view part, size_t from = 0);
size_t rfind_text(std::string_view text, std::string_view part, size_t end);
// str.replace; max < 0: all.
Text replace(const Text& text, const Text& from, const Text& to, int64_t max);
// str.split and str.rsplit with a separator, not empty.
std::vector<Text> split(const Text& text, std::string_view separator, int64_t max);
std::vector<Text> rsplit(const Text& text, std::string_view separator, int64_t max);
// The same at runs of white space.
std::vector<Text> split_spaces(const Text& text, int64_t max);
std::vector<Text> rsplit_spaces(const Text& text, int64_t max);
std::vector<Text> split_lines(const Text& text, bool keep_ends);
Text reversed(const Text& text);
// Every step-th character from `start` on, n of them.
Text every(const Text& text, int64_t start, int64_t step, size_t n);

}  // namespace kpd::text::jinja
