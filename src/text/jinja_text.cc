// text: strings of chat templates.
#include "text/jinja_text.h"

#include <algorithm>
#include <cstring>

#include "text/unicode.h"

namespace kpd::text::jinja {
namespace {

constexpr size_t kNone = std::string::npos;

bool starts_char(char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }

bool holds_char(std::string_view chars, std::string_view one) {
  for (size_t at = 0; at < chars.size(); at += char_at(chars, at).bytes) {
    if (chars.substr(at).starts_with(one)) return true;
  }
  return false;
}

// Where the run of white space that begins at `at` ends.
size_t after_spaces(std::string_view text, size_t at) {
  while (at < text.size()) {
    const Char c = char_at(text, at);
    if (!is_python_space(c.code)) break;
    at += c.bytes;
  }
  return at;
}

size_t before_spaces(std::string_view text, size_t at) {
  while (at > 0) {
    const size_t before = char_before(text, at);
    if (!is_python_space(char_at(text, before).code)) break;
    at = before;
  }
  return at;
}

size_t after_word(std::string_view text, size_t at) {
  while (at < text.size()) {
    const Char c = char_at(text, at);
    if (is_python_space(c.code)) break;
    at += c.bytes;
  }
  return at;
}

size_t before_word(std::string_view text, size_t at) {
  while (at > 0) {
    const size_t before = char_before(text, at);
    if (is_python_space(char_at(text, before).code)) break;
    at = before;
  }
  return at;
}

bool is_line_end(uint32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

}  // namespace

Text::Text(std::string bytes, bool foreign) : bytes_(std::move(bytes)) {
  if (foreign && !bytes_.empty()) foreign_.push_back({0, bytes_.size()});
}

bool Text::foreign_at(size_t byte) const {
  const auto after =
      std::upper_bound(foreign_.begin(), foreign_.end(), byte, [](size_t b, const TextRange& r) { return b < r.begin; });
  return after != foreign_.begin() && byte < std::prev(after)->end;
}

void Text::append(std::string_view bytes, bool foreign) {
  if (bytes.empty()) return;
  const size_t begin = size();
  bytes_ += bytes;
  if (!foreign) return;
  if (!foreign_.empty() && foreign_.back().end == begin) {
    foreign_.back().end = size();
  } else {
    foreign_.push_back({begin, size()});
  }
}

void Text::append(const Text& other, size_t begin, size_t end) {
  if (begin >= end) return;
  const size_t shift = size();
  bytes_.append(other.bytes_, begin, end - begin);
  auto range = std::lower_bound(other.foreign_.begin(), other.foreign_.end(), begin,
                                [](const TextRange& r, size_t b) { return r.end <= b; });
  for (; range != other.foreign_.end() && range->begin < end; ++range) {
    const size_t from = std::max(range->begin, begin) - begin + shift, to = std::min(range->end, end) - begin + shift;
    if (!foreign_.empty() && foreign_.back().end == from) {
      foreign_.back().end = to;
    } else {
      foreign_.push_back({from, to});
    }
  }
}

Text Text::slice(size_t begin, size_t end) const {
  Text out;
  out.append(*this, begin, end);
  return out;
}

size_t count_chars(std::string_view text) { return static_cast<size_t>(std::count_if(text.begin(), text.end(), starts_char)); }

size_t advance_chars(std::string_view text, size_t from, size_t n) {
  while (n > 0 && from < text.size()) {
    from += char_at(text, from).bytes;
    --n;
  }
  return from;
}

bool is_python_space(uint32_t c) {
  if (c <= 0x20) return c == 0x20 || (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x1F);
  if (c < 0x1680) return c == 0x85 || c == 0xA0;
  return c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

Text strip(const Text& text, const std::string* chars, bool left, bool right) {
  const std::string_view s = text.view();
  const auto goes = [&](size_t at) {
    const Char c = char_at(s, at);
    return chars ? holds_char(*chars, s.substr(at, c.bytes)) : is_python_space(c.code);
  };
  size_t begin = 0, end = s.size();
  while (left && begin < end && goes(begin)) begin += char_at(s, begin).bytes;
  while (right && end > begin) {
    const size_t before = char_before(s, end);
    if (!goes(before)) break;
    end = before;
  }
  return text.slice(begin, end);
}

size_t find_text(std::string_view text, std::string_view part, size_t from) {
  if (from > text.size()) return kNone;
  if (part.empty()) return from;
  // std::string::find takes the product of both lengths at worst.
  const void* found = ::memmem(text.data() + from, text.size() - from, part.data(), part.size());
  return found ? static_cast<size_t>(static_cast<const char*>(found) - text.data()) : kNone;
}

size_t rfind_text(std::string_view text, std::string_view part, size_t end) {
  if (part.size() > end) return kNone;
  if (part.empty()) return end;
  // The same search on the mirror image stays linear.
  const std::string mirrored(text.rend() - static_cast<ptrdiff_t>(end), text.rend()), mirrored_part(part.rbegin(), part.rend());
  const size_t at = find_text(mirrored, mirrored_part, 0);
  return at == kNone ? kNone : end - at - part.size();
}

Text replace(const Text& text, const Text& from, const Text& to, int64_t max) {
  Text out;
  size_t done = 0;
  const auto more = [&] { return max < 0 || max-- > 0; };
  if (from.empty()) {
    // Python puts it before every character and at the end.
    const std::string_view s = text.view();
    for (size_t at = 0; more();) {
      out.append(to);
      if (at >= s.size()) return out;
      const size_t next = at + char_at(s, at).bytes;
      out.append(text, at, next);
      done = at = next;
    }
    out.append(text, done, text.size());
    return out;
  }
  for (size_t at = find_text(text.view(), from.view()); at != kNone && more(); at = find_text(text.view(), from.view(), done)) {
    out.append(text, done, at);
    out.append(to);
    done = at + from.size();
  }
  out.append(text, done, text.size());
  return out;
}

std::vector<Text> split(const Text& text, std::string_view separator, int64_t max) {
  std::vector<Text> out;
  size_t done = 0;
  for (size_t at = find_text(text.view(), separator); at != kNone && (max < 0 || max-- > 0);
       at = find_text(text.view(), separator, done)) {
    out.push_back(text.slice(done, at));
    done = at + separator.size();
  }
  out.push_back(text.slice(done, text.size()));
  return out;
}

std::vector<Text> rsplit(const Text& text, std::string_view separator, int64_t max) {
  // All places from the right, found in the mirror image at once.
  const std::string mirrored(text.bytes().rbegin(), text.bytes().rend()), part(separator.rbegin(), separator.rend());
  std::vector<Text> out;
  size_t end = text.size(), from = 0;
  for (size_t at = find_text(mirrored, part); at != kNone && (max < 0 || max-- > 0); at = find_text(mirrored, part, from)) {
    out.push_back(text.slice(text.size() - at, end));
    from = at + part.size();
    end = text.size() - from;
  }
  out.push_back(text.slice(0, end));
  std::reverse(out.begin(), out.end());
  return out;
}

std::vector<Text> split_spaces(const Text& text, int64_t max) {
  const std::string_view s = text.view();
  std::vector<Text> out;
  size_t at = after_spaces(s, 0);
  while (at < s.size() && (max < 0 || max-- > 0)) {
    const size_t end = after_word(s, at);
    out.push_back(text.slice(at, end));
    at = after_spaces(s, end);
  }
  if (at < s.size()) out.push_back(text.slice(at, s.size()));
  return out;
}

std::vector<Text> rsplit_spaces(const Text& text, int64_t max) {
  const std::string_view s = text.view();
  std::vector<Text> out;
  size_t end = before_spaces(s, s.size());
  while (end > 0 && (max < 0 || max-- > 0)) {
    const size_t begin = before_word(s, end);
    out.push_back(text.slice(begin, end));
    end = before_spaces(s, begin);
  }
  if (end > 0) out.push_back(text.slice(0, end));
  std::reverse(out.begin(), out.end());
  return out;
}

std::vector<Text> split_lines(const Text& text, bool keep_ends) {
  const std::string_view s = text.view();
  std::vector<Text> out;
  size_t begin = 0;
  for (size_t at = 0; at < s.size();) {
    const Char c = char_at(s, at);
    if (!is_line_end(c.code)) {
      at += c.bytes;
      continue;
    }
    size_t next = at + c.bytes;
    if (c.code == '\r' && next < s.size() && s[next] == '\n') ++next;
    out.push_back(text.slice(begin, keep_ends ? next : at));
    begin = at = next;
  }
  if (begin < s.size()) out.push_back(text.slice(begin, s.size()));
  return out;
}

Text reversed(const Text& text) {
  Text out;
  for (size_t at = text.size(); at > 0;) {
    const size_t before = char_before(text.view(), at);
    out.append(text, before, at);
    at = before;
  }
  return out;
}

Text every(const Text& text, int64_t start, int64_t step, size_t n) {
  Text out;
  if (n == 0) return out;
  if (step == 1) {
    const size_t begin = advance_chars(text.view(), 0, static_cast<size_t>(start));
    return text.slice(begin, advance_chars(text.view(), begin, n));
  }
  std::vector<size_t> starts;  // of characters
  for (size_t at = 0; at < text.size(); at += char_at(text.view(), at).bytes) starts.push_back(at);
  starts.push_back(text.size());
  for (size_t i = 0; i < n; ++i) {
    const auto at = static_cast<size_t>(start + static_cast<int64_t>(i) * step);
    out.append(text, starts[at], starts[at + 1]);
  }
  return out;
}

}  // namespace kpd::text::jinja
