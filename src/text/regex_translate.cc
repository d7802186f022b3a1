// text: an expression of Oniguruma, which Hugging Face searches with, written for PCRE2. What the two read alike is copied,
// what they read differently is spelled out; what cannot be is refused: it would match something else and nothing would tell.
#include <vector>

#include "io/text.h"
#include "kpd/base/error.h"
#include "text/regex.h"

namespace kpd::text {
namespace {

// Classes that the two engines see differently, as what goes between brackets: PCRE2 counts U+180E as a space and no marks as
// parts of words.
constexpr std::string_view kSpaceSet =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr std::string_view kNoSpaceSet =
    R"(\x{0}-\x{8}\x{e}-\x{1f}\x{21}-\x{84}\x{86}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff}\x{200b}-\x{2027}\x{202a}-\x{202e})"
    R"(\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{10ffff})";
// Oniguruma's own: within a set it does not count the superscripts and fractions of Latin-1, elsewhere it does.
constexpr std::string_view kWordWithinSet = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";
constexpr std::string_view kWordSet = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{b2}\x{b3}\x{b9}\x{bc}-\x{be})";
constexpr std::string_view kHexSet = "0-9A-Fa-f";
// Escapes of letters that both read alike.
constexpr std::string_view kSameEscapes = "dDAzZGRKnrtfaepPxgk";

class Translator {
 public:
  Translator(std::string_view expression, const std::string& where) : e_(expression), where_(where) {}

  std::string run() {
    while (at_ < e_.size()) {
      const char c = e_[at_];
      if (c == '\\') {
        escape();
      } else if (c == '[') {
        set();
      } else if (c == '(') {
        open_group();
      } else if (c == ')') {
        if (!groups_.empty()) {
          atom_ = groups_.back();
          groups_.pop_back();
        }
        copy();
      } else if (c == '{') {
        interval();
      } else {
        if (c != '*' && c != '+' && c != '?') atom_ = out_.size();
        copy();
      }
    }
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(std::string_view what) const {
    fail(ErrorCode::kUnsupported, where_, ": the regular expression '", io::printable(e_), "' holds ", what, " at byte ", at_,
         ", which is not supported");
  }

  void copy() { out_ += e_[at_++]; }

  // \s, \S, \w, \h as what goes between brackets; empty for others.
  static std::string_view class_of(char c) {
    return c == 's' ? kSpaceSet : c == 'S' ? kNoSpaceSet : c == 'w' ? kWordSet : c == 'h' ? kHexSet : std::string_view();
  }

  // What both sets and the rest of an expression know.
  void escape_of_char(char c) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (c == 'v') {
      out_ += R"(\x{b})";
    } else if (c == 'u' && at_ + 6 <= e_.size()) {
      out_ += str("\\x{", e_.substr(at_ + 2, 4), "}");
      at_ += 4;
    } else if (letter && kSameEscapes.find(c) == std::string_view::npos) {
      refuse(str("'\\", std::string(1, c), "'"));
    } else {
      out_ += '\\';
      out_ += c;
      const size_t end = e_.find('}', at_);
      if (letter && at_ + 2 < e_.size() && e_[at_ + 2] == '{' && end != e_.npos) {
        out_ += e_.substr(at_ + 2, end - at_ - 1);
        at_ = end - 1;
      }
    }
    at_ += 2;
  }

  void escape() {
    if (at_ + 1 == e_.size()) refuse("a '\\' at its end");
    const char c = e_[at_ + 1];
    atom_ = out_.size();
    if (const std::string_view set = class_of(c); !set.empty()) {
      out_ += str("[", set, "]");
    } else if (c == 'W') {
      out_ += str("[^", kWordSet, "]");
    } else if (c == 'H') {
      out_ += str("[^", kHexSet, "]");
    } else if (c == 'b') {
      out_ += str("(?:(?<=[", kWordSet, "])(?![", kWordSet, "])|(?<![", kWordSet, "])(?=[", kWordSet, "]))");
    } else if (c == 'B') {
      out_ += str("(?:(?<=[", kWordSet, "])(?=[", kWordSet, "])|(?<![", kWordSet, "])(?![", kWordSet, "]))");
    } else {
      escape_of_char(c);
      return;
    }
    at_ += 2;
  }

  void set() {
    atom_ = out_.size();
    copy();
    if (at_ < e_.size() && e_[at_] == '^') copy();
    if (at_ < e_.size() && e_[at_] == ']') out_ += '\\', copy();
    size_t depth = 1;
    while (depth > 0) {
      if (at_ >= e_.size()) refuse("a '[' that is not closed");
      const char c = e_[at_];
      if (c == '[') {
        // A set in a set adds to it.
        if (at_ + 1 < e_.size() && (e_[at_ + 1] == '^' || e_[at_ + 1] == ':')) refuse("a set within a set");
        ++depth;
        ++at_;
      } else if (c == ']') {
        if (--depth == 0) out_ += c;
        ++at_;
      } else if (c == '&' && e_.substr(at_, 2) == "&&") {
        refuse("an intersection of sets");
      } else if (c == '\\') {
        if (at_ + 1 == e_.size()) refuse("a '\\' at its end");
        escape_in_set(e_[at_ + 1]);
      } else {
        copy();
      }
    }
  }

  void escape_in_set(char c) {
    if (const std::string_view set = c == 'w' ? kWordWithinSet : class_of(c); !set.empty()) {
      out_ += set;
      at_ += 2;
    } else if (c == 'W' || c == 'H') {
      refuse(str("'\\", std::string(1, c), "' within a set"));
    } else if (c == 'b') {
      out_ += R"(\x{8})";
      at_ += 2;
    } else {
      escape_of_char(c);
    }
  }

  // Of options, m is that a dot matches line ends; x and i are the same.
  void open_group() {
    const bool opens = out_.empty();
    groups_.push_back(out_.size());
    atom_ = out_.size();
    copy();
    if (at_ >= e_.size() || e_[at_] != '?') return;
    copy();
    if (at_ < e_.size() && std::string_view(":=!><'#").find(e_[at_]) != std::string_view::npos) return;
    while (at_ < e_.size() && e_[at_] != ':' && e_[at_] != ')') {
      const char c = e_[at_];
      if (c != 'i' && c != 'm' && c != 'x' && c != '-') refuse("an unknown option");
      out_ += c == 'm' ? 's' : c;
      ++at_;
    }
    // Elsewhere Oniguruma takes the alternatives after it into a group of its own.
    if (!opens && at_ < e_.size() && e_[at_] == ')') refuse("an option that is not at its start");
  }

  // {,n} is {0,n}; a + after an interval repeats it, where PCRE2 makes it possessive.
  void interval() {
    const size_t end = e_.find('}', at_);
    const std::string_view inside = end == e_.npos ? std::string_view() : e_.substr(at_ + 1, end - at_ - 1);
    const bool counts = !inside.empty() && inside != "," && inside.find_first_not_of("0123456789,") == inside.npos &&
                        inside.find(',') == inside.rfind(',');
    if (!counts) {
      atom_ = out_.size();
      copy();
      return;
    }
    out_ += str("{", inside[0] == ',' ? "0" : "", inside, "}");
    at_ = end + 1;
    if (at_ < e_.size() && e_[at_] == '+') {
      out_.insert(atom_, "(?:");
      out_ += ")+";
      ++at_;
    }
  }

  std::string_view e_;
  const std::string& where_;
  std::string out_;
  size_t at_ = 0;
  size_t atom_ = 0;  // where in the output that begins which a quantifier would repeat
  std::vector<size_t> groups_;
};

}  // namespace

std::string translate_regex(std::string_view expression, const std::string& where) {
  return Translator(expression, where).run();
}

}  // namespace kpd::text
