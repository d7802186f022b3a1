// text: str() and repr() of a chat template's values, as Python writes them.
#include <charconv>
#include <cmath>
#include <cstdio>

#include "text/jinja_unicode.h"
#include "text/jinja_value.h"
#include "text/unicode.h"

namespace kpd::text::jinja {
namespace {

std::string hex_escape(uint32_t code) {
  char out[16];
  if (code < 0x100) {
    std::snprintf(out, sizeof(out), "\\x%02x", code);
  } else if (code < 0x10000) {
    std::snprintf(out, sizeof(out), "\\u%04x", code);
  } else {
    std::snprintf(out, sizeof(out), "\\U%08x", code);
  }
  return out;
}

void append_quoted(Text& out, const Text& text, Meter& meter) {
  meter.bytes(text.size());
  const std::string_view s = text.view();
  const bool doubled = s.find('\'') != s.npos && s.find('"') == s.npos;
  const char quote = doubled ? '"' : '\'';
  out.append(std::string_view(&quote, 1), false);
  for (size_t at = 0; at < s.size();) {
    const Char c = char_at(s, at);
    const bool foreign = text.foreign_at(at);
    if (c.code == '\\' || c.code == static_cast<uint32_t>(quote)) {
      out.append(std::string{'\\', static_cast<char>(c.code)}, foreign);
    } else if (c.code == '\n' || c.code == '\r' || c.code == '\t') {
      out.append(c.code == '\n' ? "\\n" : c.code == '\r' ? "\\r" : "\\t", foreign);
    } else if (!is_printable(c.code)) {
      const std::string escape = hex_escape(c.code);
      meter.bytes(escape.size());
      out.append(escape, foreign);
    } else {
      out.append(s.substr(at, c.bytes), foreign);
    }
    at += c.bytes;
  }
  out.append(std::string_view(&quote, 1), false);
}

void append_items(Text& out, const std::vector<Value>& items, Meter& meter) {
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out.append(", ", false);
    append_repr(out, items[i], meter);
  }
}

void append_plain(Text& out, std::string_view bytes, Meter& meter) {
  meter.bytes(bytes.size());
  out.append(bytes, false);
}

}  // namespace

std::string float_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[40];
  // The shortest digits that give the number back, d.ddde±xx.
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific).ptr;
  const std::string_view all(buffer, static_cast<size_t>(end - buffer));
  const size_t e = all.find('e');
  const bool negative = all[0] == '-';
  std::string digits(1, all[negative ? 1 : 0]);
  if (e > (negative ? 3u : 2u)) digits += all.substr(negative ? 3 : 2, e - (negative ? 3 : 2));
  const int exponent = std::atoi(std::string(all.substr(e + 1)).c_str());
  std::string out = negative ? "-" : "";
  const int n = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    out += digits[0];
    if (n > 1) out.append(1, '.').append(digits, 1);
    std::snprintf(buffer, sizeof(buffer), "e%c%02d", exponent < 0 ? '-' : '+', std::abs(exponent));
    return out + buffer;
  }
  const int64_t point = int64_t{exponent} + 1;  // digits before it
  if (point <= 0) return out + "0." + std::string(static_cast<size_t>(-point), '0') + digits;
  if (n <= point) return out + digits + std::string(static_cast<size_t>(point - n), '0') + ".0";
  return out.append(digits, 0, static_cast<size_t>(point)).append(1, '.').append(digits, static_cast<size_t>(point));
}

void append_repr(Text& out, const Value& value, Meter& meter) {
  meter.step();
  switch (value.kind()) {
    case Kind::kString:
      if (value.markup()) refuse("a string marked as safe can only be written out");
      return append_quoted(out, value.text(), meter);
    case Kind::kUndefined:
      return append_plain(out, "Undefined", meter);
    case Kind::kNone:
      return append_plain(out, "None", meter);
    case Kind::kBool:
      return append_plain(out, value.boolean() ? "True" : "False", meter);
    case Kind::kInt:
      return append_plain(out, std::to_string(value.integer()), meter);
    case Kind::kFloat:
      return append_plain(out, float_repr(value.real()), meter);
    case Kind::kList:
      append_plain(out, "[", meter);
      append_items(out, value.items(), meter);
      return append_plain(out, "]", meter);
    case Kind::kTuple:
      append_plain(out, "(", meter);
      append_items(out, value.items(), meter);
      return append_plain(out, value.items().size() == 1 ? ",)" : ")", meter);
    case Kind::kDict: {
      append_plain(out, "{", meter);
      bool first = true;
      for (const auto& [key, item] : value.pairs()) {
        if (!first) append_plain(out, ", ", meter);
        first = false;
        append_repr(out, key, meter);
        append_plain(out, ": ", meter);
        append_repr(out, item, meter);
      }
      return append_plain(out, "}", meter);
    }
    case Kind::kRange: {
      const RangeObject& r = value.as<RangeObject>();
      const std::string step = r.step == 1 ? std::string() : str(", ", r.step);
      return append_plain(out, str("range(", r.start, ", ", r.stop, step, ")"), meter);
    }
    case Kind::kView: {
      const ViewObject& view = value.as<ViewObject>();
      using What = ViewObject::What;
      append_plain(out,
                   view.what == What::kKeys     ? "dict_keys(["
                   : view.what == What::kValues ? "dict_values(["
                                                : "dict_items([",
                   meter);
      append_items(out, iterate(value, meter), meter);
      return append_plain(out, "])", meter);
    }
    default:
      refuse("writing a value of the type ", type_name(value), " is not supported");
  }
}

Text to_text(const Value& value, Meter& meter) {
  if (value.is(Kind::kString)) {
    meter.bytes(value.text().size());
    return value.text();
  }
  Text out;
  if (!value.is(Kind::kUndefined)) append_repr(out, value, meter);
  return out;
}

}  // namespace kpd::text::jinja
