// text: literals and the known families' expressions. Every alternative of an expression is one function that gives the end of
// its match at a position, or the position itself if it does not match there; the first that matches wins, as in the
// expression.
#include "text/pattern.h"

#include "kpd/base/ascii.h"
#include "text/regex.h"
#include "text/unicode.h"

namespace kpd::text {
namespace {

constexpr uint8_t kWordOrSpace = kLetter | kNumber | kSpace;

bool is_newline(uint32_t c) { return c == '\r' || c == '\n'; }

class WordCutter {
 public:
  explicit WordCutter(std::string_view text) : text_(text) {}

  size_t gpt2(size_t at) const {
    size_t end = contraction(at, false);
    if (end > at) return end;
    const size_t word = text_[at] == ' ' && at + 1 < text_.size() ? at + 1 : at;
    for (const uint8_t of : {kLetter, kNumber}) {
      end = run(word, of);
      if (end > word) return end;
    }
    end = symbols(word);
    if (end > word) return end;
    return spaces(at);
  }

  size_t llama3(size_t at, size_t max_digits) const {
    size_t end = contraction(at, true);
    if (end > at) return end;
    const Char first = char_at(text_, at);
    const uint8_t first_class = char_class(first.code);
    const bool may_lead = !is_newline(first.code) && !(first_class & (kLetter | kNumber));
    const size_t word = may_lead ? at + first.bytes : at;
    end = run(word, kLetter);
    if (end > word) return end;
    end = at;
    for (size_t i = 0; i < max_digits && end < text_.size(); ++i) {
      const Char c = char_at(text_, end);
      if (!(char_class(c.code) & kNumber)) break;
      end += c.bytes;
    }
    if (end > at) return end;
    const size_t symbol = first.code == ' ' ? at + 1 : at;
    end = symbols(symbol);
    if (end > symbol) {
      while (end < text_.size() && is_newline(static_cast<unsigned char>(text_[end]))) ++end;
      return end;
    }
    end = to_last_newline(at);
    return end > at ? end : spaces(at);
  }

 private:
  // 's 't 're 've 'm 'll 'd
  size_t contraction(size_t at, bool any_case) const {
    if (text_[at] != '\'' || at + 1 == text_.size()) return at;
    const auto letter = [&](size_t i) {
      const char c = i < text_.size() ? text_[i] : '\0';
      return any_case ? ascii_lower(c) : c;
    };
    const char a = letter(at + 1), b = letter(at + 2);
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return at + 2;
    if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) return at + 3;
    // The long s is an s of another case.
    if (any_case && text_.substr(at + 1, 2) == "\xC5\xBF") return at + 3;
    return at;
  }

  size_t run(size_t at, uint8_t of) const {
    while (at < text_.size()) {
      const Char c = char_at(text_, at);
      if (!(char_class(c.code) & of)) break;
      at += c.bytes;
    }
    return at;
  }

  // [^\s\p{L}\p{N}]*
  size_t symbols(size_t at) const {
    while (at < text_.size()) {
      const Char c = char_at(text_, at);
      if (char_class(c.code) & kWordOrSpace) break;
      at += c.bytes;
    }
    return at;
  }

  // \s*[\r\n]+
  size_t to_last_newline(size_t at) const {
    size_t end = at;
    for (size_t i = at; i < text_.size();) {
      const Char c = char_at(text_, i);
      if (!(char_class(c.code) & kSpace)) break;
      i += c.bytes;
      if (is_newline(c.code)) end = i;
    }
    return end;
  }

  // \s+(?!\S)|\s+: the last space before a word is left to the word, unless it is the only one.
  size_t spaces(size_t at) const {
    const size_t end = run(at, kSpace);
    if (end == text_.size()) return end;
    const size_t last = char_before(text_, end);
    return last > at ? last : end;
  }

  std::string_view text_;
};

}  // namespace

Pattern Pattern::literal(std::string_view text) { return {Kind::kLiteral, text}; }
Pattern Pattern::gpt2_words() { return {Kind::kGpt2, kGpt2Expression}; }

Pattern Pattern::regex(std::string_view expression, const std::string& where) {
  if (expression == kGpt2Expression) return gpt2_words();
  if (expression == kLlama3Expression) return {Kind::kLlama3, kLlama3Expression};
  if (expression == kQwen2Expression) return {Kind::kQwen2, kQwen2Expression};
  Pattern pattern(Kind::kRegex, expression);
  pattern.regex_ = std::make_shared<const Regex>(expression, where);
  return pattern;
}

void Pattern::for_each(std::string_view text, const std::function<void(size_t, size_t)>& match) const {
  if (kind_ == Kind::kRegex) {
    regex_->for_each(text, match);
    return;
  }
  if (kind_ == Kind::kLiteral) {
    if (source_.empty()) return;
    for (size_t at = text.find(source_); at != text.npos; at = text.find(source_, at + source_.size())) {
      match(at, at + source_.size());
    }
    return;
  }
  const WordCutter cutter(text);
  for (size_t at = 0; at < text.size();) {
    const size_t end = kind_ == Kind::kGpt2 ? cutter.gpt2(at) : cutter.llama3(at, kind_ == Kind::kLlama3 ? 3 : 1);
    match(at, end);
    at = end;
  }
}

}  // namespace kpd::text
