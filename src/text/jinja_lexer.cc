// text: the lexer of chat templates.
#include "text/jinja_lexer.h"

#include <algorithm>
#include <optional>

#include "kpd/base/error.h"
#include "kpd/text/text_file.h"
#include "text/jinja_text.h"
#include "text/unicode.h"

namespace kpd::text::jinja {
namespace {

constexpr size_t kMaxSource = size_t{1} << 18;
constexpr size_t kNone = std::string::npos;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_char(char c) { return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
int hex_digit(char c) {
  if (is_digit(c)) return c - '0';
  const char low = static_cast<char>(c | 0x20);
  return low >= 'a' && low <= 'f' ? low - 'a' + 10 : -1;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : s_(with_unix_lines(source)) {
    if (s_.ends_with('\n')) s_.pop_back();  // as jinja2 does
  }

  std::vector<Token> run() {
    while (at_ < s_.size()) root();
    add(TokenType::kEnd, "");
    return std::move(tokens_);
  }

 private:
  bool looking_at(std::string_view part, size_t at) const { return std::string_view(s_).substr(at).starts_with(part); }

  size_t skip_spaces(size_t at) const {
    while (at < s_.size()) {
      const Char c = char_at(s_, at);
      if (!is_python_space(c.code)) break;
      at += c.bytes;
    }
    return at;
  }

  // Moves on to `to`, counting lines.
  void move(size_t to) {
    for (; at_ < to; ++at_) {
      if (s_[at_] != '\n') continue;
      ++place_.line;
      line_begin_ = at_ + 1;
    }
    place_.column = static_cast<uint32_t>(at_ - line_begin_ + 1);
  }
  void add(TokenType type, std::string text) { tokens_.push_back({type, place_, std::move(text)}); }

  // The end of a tag's sign ("{%-", "{%+", "{%").
  size_t after_sign(size_t at) const { return at < s_.size() && (s_[at] == '-' || s_[at] == '+') ? at + 1 : at; }

  // "{%- raw -%}" at `at`: where it ends; none if this is another tag.
  std::optional<size_t> after_raw(size_t at, std::string_view name, bool trims) const {
    if (!looking_at("{%", at)) return std::nullopt;
    size_t next = skip_spaces(after_sign(at + 2));
    if (!looking_at(name, next)) return std::nullopt;
    next = skip_spaces(next + name.size());
    if (looking_at("-%}", next)) return skip_spaces(next + 3);
    if (trims && looking_at("+%}", next)) return next + 3;
    if (!looking_at("%}", next)) return std::nullopt;
    next += 2;
    return trims && next < s_.size() && s_[next] == '\n' ? next + 1 : next;
  }

  // Text up to `tag`, which opens with `sign` (-, + or another character): what the sign leaves of it.
  void data(size_t tag, char sign, bool variable) {
    std::string_view text = std::string_view(s_).substr(at_, tag - at_);
    if (sign == '-') {
      while (!text.empty()) {
        const size_t before = char_before(text, text.size());
        if (!is_python_space(char_at(text, before).code)) break;
        text = text.substr(0, before);
      }
    } else if (sign != '+' && !variable) {
      const size_t line = text.rfind('\n') == kNone ? 0 : text.rfind('\n') + 1;
      if ((line > 0 || line_starting_) && all_spaces(text.substr(line))) text = text.substr(0, line);
    }
    if (!text.empty()) add(TokenType::kData, std::string(text));
    move(tag);
  }

  static bool all_spaces(std::string_view text) {
    for (size_t at = 0; at < text.size();) {
      const Char c = char_at(text, at);
      if (!is_python_space(c.code)) return false;
      at += c.bytes;
    }
    return true;
  }

  char sign_at(size_t at) const { return at < s_.size() ? s_[at] : ' '; }

  // One stretch of text and the tag after it.
  void root() {
    size_t tag = at_;
    for (;; ++tag) {
      tag = s_.find('{', tag);
      if (tag == kNone) {
        add(TokenType::kData, s_.substr(at_));
        return move(s_.size());
      }
      const char next = sign_at(tag + 1);
      if (next == '{' || next == '%' || next == '#') break;
    }
    const char kind = s_[tag + 1];
    data(tag, sign_at(tag + 2), kind == '{');
    if (kind == '#') return comment();
    if (const auto raw = kind == '%' ? after_raw(tag, "raw", false) : std::nullopt) return raw_block(*raw);
    add(kind == '{' ? TokenType::kVariableBegin : TokenType::kBlockBegin, "");
    move(after_sign(tag + 2));
    line_starting_ = false;
    inside(kind == '{');
  }

  void after_match(size_t end) {
    line_starting_ = end > 0 && s_[end - 1] == '\n';
    move(end);
  }

  void comment() {
    // The sign is looked at once more as the end's: "{#-#}" is a whole comment.
    const size_t body = after_sign(at_ + 2), end = s_.find("#}", body);
    if (end == kNone && body < s_.size()) fail_syntax(place_, "a comment without its end");
    if (end == kNone) return move(s_.size());  // jinja2 misses the end only where text follows
    const char sign = end > body ? s_[end - 1] : ' ';
    size_t next = end + 2;
    if (sign == '-') {
      next = skip_spaces(next);
    } else if (sign != '+' && next < s_.size() && s_[next] == '\n') {
      ++next;
    }
    after_match(next);
  }

  void raw_block(size_t body) {
    const Place begin = place_;
    after_match(body);
    if (body == s_.size()) return;
    for (size_t tag = s_.find("{%", body); tag != kNone; tag = s_.find("{%", tag + 1)) {
      const auto end = after_raw(tag, "endraw", true);
      if (!end) continue;
      data(tag, sign_at(tag + 2), false);
      return after_match(*end);
    }
    fail_syntax(begin, "raw without endraw");
  }

  // The tokens of a tag up to its end.
  void inside(bool variable) {
    const Place begin = tokens_.back().place;
    std::string open;  // brackets
    while (at_ < s_.size()) {
      if (open.empty()) {
        if (const auto end = tag_end(variable)) {
          add(variable ? TokenType::kVariableEnd : TokenType::kBlockEnd, "");
          return after_match(*end);
        }
      }
      const Char c = char_at(s_, at_);
      if (is_python_space(c.code)) {
        move(at_ + c.bytes);
      } else if (c.code >= 0x80) {
        fail_unsupported(place_, "characters beyond ASCII are supported in strings only");
      } else {
        token(open);
      }
    }
    fail_syntax(begin, variable ? "{{ without }}" : "{% without %}");
  }

  std::optional<size_t> tag_end(bool variable) const {
    const std::string_view mark = variable ? "}}" : "%}";
    const char c = s_[at_];
    if (c == '-' && looking_at(mark, at_ + 1)) return skip_spaces(at_ + 3);
    if (c == '+' && !variable && looking_at(mark, at_ + 1)) return at_ + 3;
    if (!looking_at(mark, at_)) return std::nullopt;
    const size_t next = at_ + 2;
    return !variable && next < s_.size() && s_[next] == '\n' ? next + 1 : next;
  }

  void token(std::string& open) {
    const char c = s_[at_];
    if (is_digit(c)) return number();
    if (c == '\'' || c == '"') return string();
    if (is_name_char(c)) {
      size_t end = at_;
      while (end < s_.size() && is_name_char(s_[end])) ++end;
      if (end < s_.size() && static_cast<unsigned char>(s_[end]) >= 0x80)
        fail_unsupported(place_, "characters beyond ASCII are supported in strings only");
      add(TokenType::kName, s_.substr(at_, end - at_));
      return move(end);
    }
    for (const std::string_view two : {"//", "**", "==", "!=", ">=", "<="}) {
      if (!looking_at(two, at_)) continue;
      add(TokenType::kOperator, std::string(two));
      return move(at_ + 2);
    }
    if (std::string_view("+-/*%~[](){}<>=.:|,;").find(c) == kNone) fail_syntax(place_, str("the character ", printable(c)));
    balance(open, c);
    add(TokenType::kOperator, std::string(1, c));
    move(at_ + 1);
  }

  static std::string printable(char c) { return c >= 0x20 && c < 0x7F ? str("'", c, "'") : "that is none of Jinja's"; }

  void balance(std::string& open, char c) const {
    if (c == '(') open += ')';
    if (c == '[') open += ']';
    if (c == '{') open += '}';
    if (c != ')' && c != ']' && c != '}') return;
    if (open.empty()) fail_syntax(place_, str("'", c, "' closes nothing"));
    if (open.back() != c) fail_syntax(place_, str("'", c, "', expected '", open.back(), "'"));
    open.pop_back();
  }

  // Digits with single underscores between them, from `at`.
  size_t digits(size_t at) const {
    size_t end = at;
    while (end < s_.size() &&
           (is_digit(s_[end]) || (s_[end] == '_' && end > at && is_digit(sign_at(end + 1)) && s_[end - 1] != '_')))
      ++end;
    return end;
  }

  std::optional<size_t> float_end() const {
    if (at_ > 0 && s_[at_ - 1] == '.') return std::nullopt;
    size_t end = digits(at_);
    bool is_float = false;
    if (sign_at(end) == '.' && is_digit(sign_at(end + 1))) {
      end = digits(end + 1);
      is_float = true;
    }
    if ((sign_at(end) | 0x20) == 'e') {
      const size_t exponent = sign_at(end + 1) == '+' || sign_at(end + 1) == '-' ? end + 2 : end + 1;
      if (is_digit(sign_at(exponent))) {
        end = digits(exponent);
        is_float = true;
      }
    }
    return is_float ? std::optional(end) : std::nullopt;
  }

  void number() {
    const auto real = float_end();
    size_t end = real ? *real : digits(at_);
    if (!real && s_[at_] == '0') {
      const char kind = static_cast<char>(sign_at(at_ + 1) | 0x20);
      if (kind == 'x' || kind == 'o' || kind == 'b') fail_unsupported(place_, "numbers with a base are not supported");
      if (s_.find_first_not_of("0_", at_) < end) fail_syntax(place_, "a number that begins with 0");
    }
    std::string text = s_.substr(at_, end - at_);
    text.erase(std::remove(text.begin(), text.end(), '_'), text.end());
    add(real ? TokenType::kFloat : TokenType::kInteger, std::move(text));
    move(end);
  }

  void string() {
    const char quote = s_[at_];
    std::string text;
    size_t at = at_ + 1;
    while (at < s_.size() && s_[at] != quote) {
      if (s_[at] == '\\') {
        at = escape(at + 1, text);
      } else {
        text += s_[at++];
      }
    }
    if (at >= s_.size()) fail_syntax(place_, "a string without its end");
    add(TokenType::kString, std::move(text));
    move(at + 1);
  }

  // What follows a backslash, as Python's unicode-escape reads it; the place after it.
  size_t escape(size_t at, std::string& out) const {
    constexpr std::string_view kFrom = "\\'\"abfnrtv", kTo = "\\'\"\a\b\f\n\r\t\v";
    if (at >= s_.size()) fail_syntax(place_, "a string without its end");
    const char c = s_[at];
    if (c == '\n') return at + 1;
    if (const size_t simple = kFrom.find(c); simple != kNone) {
      out += kTo[simple];
      return at + 1;
    }
    if (c >= '0' && c <= '7') {
      uint32_t code = 0;
      size_t end = at;
      while (end < at + 3 && end < s_.size() && s_[end] >= '0' && s_[end] <= '7')
        code = code * 8 + static_cast<uint32_t>(s_[end++] - '0');
      append_utf8(out, code);
      return end;
    }
    if (c == 'x' || c == 'u' || c == 'U') return hex_escape(at + 1, c == 'x' ? 2 : c == 'u' ? 4 : 8, out);
    if (c == 'N' || static_cast<unsigned char>(c) >= 0x80)
      fail_unsupported(place_, "a string with \\N or a backslash before a character beyond ASCII is not supported");
    // Others stay as they are.
    out += '\\';
    return at;
  }

  size_t hex_escape(size_t at, size_t n, std::string& out) const {
    uint32_t code = 0;
    for (size_t i = at; i < at + n; ++i) {
      const int digit = i < s_.size() ? hex_digit(s_[i]) : -1;
      if (digit < 0 || code > 0x0FFFFFFF) fail_syntax(place_, "a string with a \\x, \\u or \\U that lacks digits");
      code = code * 16 + static_cast<uint32_t>(digit);
    }
    if (code > 0x10FFFF) fail_syntax(place_, "a string with a character beyond U+10FFFF");
    if (code >= 0xD800 && code < 0xE000) fail_unsupported(place_, "a string with half a surrogate pair is not supported");
    append_utf8(out, code);
    return at + n;
  }

  std::string s_;
  size_t at_ = 0, line_begin_ = 0;
  Place place_;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::string at_place(const Place& place) { return str("chat template, line ", place.line, ", column ", place.column, ": "); }

void fail_syntax(const Place& place, const std::string& text) {
  fail(ErrorCode::kCorruptData, at_place(place), "not valid Jinja: ", text);
}

void fail_unsupported(const Place& place, const std::string& text) { fail(ErrorCode::kUnsupported, at_place(place), text); }

std::vector<Token> tokenize(std::string_view source) {
  if (source.size() > kMaxSource) {
    fail(ErrorCode::kLimitExceeded, "a chat template of ", source.size(), " bytes, the limit is ", kMaxSource);
  }
  return Lexer(source).run();
}

}  // namespace kpd::text::jinja
