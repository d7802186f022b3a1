// text: text % args and text.format() of chat templates, and numbers read from text, as Python has them.
#include <charconv>
#include <cmath>
#include <cstdio>

#include "text/jinja_runtime.h"
#include "text/unicode.h"

namespace kpd::text::jinja {
namespace {

constexpr size_t kMaxWidth = 1 << 16;

// One "%-08.3f" being read.
struct Conversion {
  bool left = false, plus = false, space = false, zero = false;
  size_t width = 0;
  int precision = -1;
};

class PercentFormat {
 public:
  PercentFormat(const Text& format, const Value& args, Meter& meter) : format_(format), args_(args), meter_(meter) {
    is_mapping_ = args.is(Kind::kDict);
    // What has items by key is not asked whether all of it was used.
    may_be_left_ = is_mapping_ || args.is(Kind::kList) || args.is(Kind::kUndefined) || args.is(Kind::kRange);
  }

  Text run() {
    const std::string_view s = format_.view();
    while (at_ < s.size()) {
      const size_t percent = std::min(s.find('%', at_), s.size());
      meter_.bytes(percent - at_);
      out_.append(format_, at_, percent);
      at_ = percent;
      if (at_ < s.size()) conversion();
    }
    const size_t given = args_.is(Kind::kTuple) ? args_.items().size() : 1;
    if (used_ < given && !may_be_left_) trouble("not all arguments converted during string formatting");
    return std::move(out_);
  }

 private:
  char peek() const {
    if (at_ >= format_.size()) trouble("incomplete format");
    return format_.bytes()[at_];
  }

  void conversion() {
    foreign_ = format_.foreign_at(at_);
    ++at_;
    const Value* keyed = nullptr;
    if (peek() == '(') keyed = &key();
    Conversion c;
    for (;; ++at_) {
      const char f = peek();
      if (f == '-')
        c.left = true;
      else if (f == '+')
        c.plus = true;
      else if (f == ' ')
        c.space = true;
      else if (f == '0')
        c.zero = true;
      else
        break;
    }
    if (peek() == '*' || peek() == '#') refuse("'", peek(), "' in a format is not supported");
    c.width = number();
    if (peek() == '.') {
      ++at_;
      if (peek() == '*') refuse("'*' in a format is not supported");
      c.precision = static_cast<int>(number());
    }
    while (peek() == 'l' || peek() == 'h' || peek() == 'L') ++at_;
    const char type = peek();
    ++at_;
    if (type == '%') return append("%", foreign_);
    convert(c, type, keyed ? *keyed : next());
  }

  size_t number() {
    size_t n = 0;
    while (peek() >= '0' && peek() <= '9') {
      n = n * 10 + static_cast<size_t>(peek() - '0');
      if (n > kMaxWidth) refuse("a width beyond ", kMaxWidth, " in a format");
      ++at_;
    }
    return n;
  }

  const Value& key() {
    if (!is_mapping_) trouble("format requires a mapping");
    const size_t begin = ++at_;
    int depth = 1;
    while (depth > 0) {
      if (peek() == '(') ++depth;
      if (peek() == ')') --depth;
      ++at_;
    }
    const Value* found = find_key(args_.pairs(), format_.view().substr(begin, at_ - 1 - begin));
    if (!found) trouble("the format names a key that is not there");
    return *found;
  }

  const Value& next() {
    const bool several = args_.is(Kind::kTuple);
    if (used_ >= (several ? args_.items().size() : 1)) trouble("not enough arguments for format string");
    return several ? args_.items()[used_++] : (++used_, args_);
  }

  void append(std::string_view bytes, bool foreign) {
    meter_.bytes(bytes.size());
    out_.append(bytes, foreign);
  }

  void convert(const Conversion& c, char type, const Value& value) {
    if (type == 's' || type == 'r') {
      Text text;
      if (type == 's') {
        text = to_text(value, meter_);
      } else {
        append_repr(text, value, meter_);
      }
      if (c.precision >= 0) text = text.slice(0, advance_chars(text.view(), 0, static_cast<size_t>(c.precision)));
      return pad(c, text);
    }
    if (type == 'd' || type == 'i' || type == 'u') return integer(c, value);
    if (type == 'f' || type == 'F') return real(c, value);
    refuse("a format with %", std::string(1, type), " is not supported");
  }

  void integer(const Conversion& c, const Value& value) {
    if (value.is(Kind::kUndefined)) trouble(value.why());
    if (!value.is_number()) trouble("%d format: a number is required, not ", type_name(value));
    if (c.precision >= 0) refuse("a format with a precision and %d is not supported");
    if (value.is(Kind::kFloat) && !(std::fabs(value.real()) < 9e18)) refuse("an integer beyond 64 bits");
    const int64_t n = value.is(Kind::kFloat) ? static_cast<int64_t>(value.real()) : value.integer();
    signed_number(c, std::to_string(n));
  }

  void real(const Conversion& c, const Value& value) {
    if (value.is(Kind::kUndefined)) trouble(value.why());
    if (!value.is_number()) trouble("must be real number, not ", type_name(value));
    if (!std::isfinite(value.real()) || c.precision > 300) refuse("this number in a format is not supported");
    char buffer[720];
    std::snprintf(buffer, sizeof(buffer), "%.*f", c.precision < 0 ? 6 : c.precision, value.real());
    signed_number(c, buffer);
  }

  void signed_number(const Conversion& c, std::string digits) {
    std::string sign;
    if (digits[0] == '-') {
      sign += '-';
      digits.erase(0, 1);
    } else if (c.plus || c.space) {
      sign += c.plus ? '+' : ' ';
    }
    if (c.zero && !c.left && digits.size() + sign.size() < c.width)
      digits.insert(0, c.width - digits.size() - sign.size(), '0');
    pad(c, Text(sign + digits));
  }

  void pad(const Conversion& c, const Text& text) {
    const size_t n = count_chars(text.view());
    const std::string spaces(n < c.width ? c.width - n : 0, ' ');
    if (!c.left) append(spaces, false);
    meter_.bytes(text.size());
    out_.append(text);
    if (c.left) append(spaces, false);
  }

  const Text& format_;
  const Value& args_;
  Meter& meter_;
  bool is_mapping_ = false, may_be_left_ = false, foreign_ = false;
  size_t at_ = 0, used_ = 0;
  Text out_;
};

bool all_digits(std::string_view s) { return !s.empty() && s.find_first_not_of("0123456789") == s.npos; }

// A replacement field's value: "", "0" or "name", with !s or !r.
Text field(std::string_view field, const Arguments& args, size_t& automatic, bool& numbered, Meter& meter) {
  bool repr = false;
  if (const size_t mark = field.find('!'); mark != field.npos) {
    const std::string_view how = field.substr(mark + 1);
    if (how != "s" && how != "r") refuse("a format field like '", field.substr(0, 40), "' is not supported");
    repr = how == "r";
    field = field.substr(0, mark);
  }
  if (field.find_first_of(".[:{") != field.npos) refuse("a format field like '", field.substr(0, 40), "' is not supported");
  const Value* value = nullptr;
  if (field.empty() || all_digits(field)) {
    if (field.empty() && numbered) trouble("cannot switch from manual field specification to automatic field numbering");
    if (!field.empty() && automatic > 0) trouble("cannot switch from automatic field numbering to manual field specification");
    numbered |= !field.empty();
    const size_t i = field.empty() ? automatic++ : field.size() > 6 ? args.items.size() : std::stoul(std::string(field));
    if (i >= args.items.size()) trouble("a format field beyond the arguments");
    value = &args.items[i];
  } else {
    for (const auto& [name, v] : args.keywords) {
      if (name == field) value = &v;
    }
    if (!value) trouble("a format field that names no argument");
  }
  if (!repr) return to_text(*value, meter);
  Text out;
  append_repr(out, *value, meter);
  return out;
}

}  // namespace

Text format_percent(const Text& format, const Value& args, Meter& meter) { return PercentFormat(format, args, meter).run(); }

Text format_braces(const Text& format, const Arguments& args, Meter& meter) {
  const std::string_view s = format.view();
  Text out;
  size_t automatic = 0;
  bool numbered = false;
  for (size_t at = 0; at < s.size();) {
    const size_t brace = std::min(s.find_first_of("{}", at), s.size());
    meter.bytes(brace - at);
    out.append(format, at, brace);
    at = brace;
    if (at >= s.size()) break;
    if (at + 1 < s.size() && s[at + 1] == s[at]) {
      out.append(format, at, at + 1);
      at += 2;
      continue;
    }
    if (s[at] == '}') trouble("Single '}' encountered in format string");
    const size_t end = s.find('}', at);
    if (end == s.npos) trouble("expected '}' before end of string");
    const Text text = field(s.substr(at + 1, end - at - 1), args, automatic, numbered, meter);
    meter.bytes(text.size());
    out.append(text);
    at = end + 1;
  }
  return out;
}

namespace {

// Python takes single underscores between digits and white space around a number.
std::optional<std::string> cleaned(std::string_view text) {
  const Text stripped = strip(Text(std::string(text)), nullptr, true, true);
  const std::string& s = stripped.bytes();
  std::string out;
  for (size_t i = 0; i < s.size(); ++i) {
    const auto digit = [&](size_t at) { return at < s.size() && s[at] >= '0' && s[at] <= '9'; };
    if (static_cast<unsigned char>(s[i]) >= 0x80) refuse("numbers with characters beyond ASCII are not supported");
    if (s[i] != '_') {
      out += s[i];
    } else if (i == 0 || !digit(i - 1) || !digit(i + 1)) {
      return std::nullopt;
    }
  }
  return out;
}

}  // namespace

std::optional<int64_t> parse_int(std::string_view text) {
  auto digits = cleaned(text);
  if (!digits) return std::nullopt;
  if (digits->starts_with('+')) digits->erase(0, 1);
  const bool negative = digits->starts_with('-');
  if (!all_digits(std::string_view(*digits).substr(negative ? 1 : 0))) return std::nullopt;
  int64_t value = 0;
  if (std::from_chars(digits->data(), digits->data() + digits->size(), value).ec != std::errc())
    refuse("an integer beyond 64 bits");
  // "+-1" is none.
  return negative && text.find('+') != text.npos ? std::nullopt : std::optional(value);
}

std::optional<double> parse_float(std::string_view text) {
  auto digits = cleaned(text);
  if (!digits || digits->empty()) return std::nullopt;
  const bool plus = digits->starts_with('+');
  if (plus) digits->erase(0, 1);
  if (plus && digits->starts_with('-')) return std::nullopt;
  double value = 0;
  const char* end = digits->data() + digits->size();
  if (digits->find_first_of("(nN") != std::string::npos) {
    // inf, infinity and nan, with what from_chars reads beyond Python's spellings.
    std::string low = *digits;
    for (char& c : low) c = static_cast<char>(c | 0x20);
    const bool minus = low[0] == '-';
    const std::string_view word = std::string_view(low).substr(minus ? 1 : 0);
    if (word == "nan") return std::nan("");
    if (word == "inf" || word == "infinity") return minus ? -HUGE_VAL : HUGE_VAL;
    return std::nullopt;
  }
  const auto [stop, error] = std::from_chars(digits->data(), end, value);
  if (error == std::errc::result_out_of_range) refuse("a number beyond what a double holds");
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

}  // namespace kpd::text::jinja
