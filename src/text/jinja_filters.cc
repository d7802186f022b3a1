// text: filters of texts and numbers in chat templates, and the tests. Semantics are jinja2's with autoescape off.
#include "text/jinja_filters.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "text/jinja_unicode.h"
#include "text/unicode.h"

namespace kpd::text::jinja {
namespace {

Value as_text(const FilterCall& call, Text text) {
  call.meter.bytes(text.size());
  return Value::string(std::move(text));
}

Value filter_abs(const FilterCall& call) {
  (void)call.bind({});
  const Value& v = call.self;
  if (!v.is_number()) trouble("abs needs a number, not ", type_name(v));
  if (v.is(Kind::kFloat)) return Value::real(std::fabs(v.real()));
  return v.integer() < 0 ? negative(v) : positive(v);
}

Value filter_case(const FilterCall& call, Text (*change)(const Text&)) {
  (void)call.bind({});
  call.meter.step(call.self.is(Kind::kString) ? call.self.text().size() / 4 : 0);
  return as_text(call, change(call.text()));
}

bool separates_words(uint32_t c) { return c == '-' || c == '(' || c == '{' || c == '[' || c == '<' || is_python_space(c); }

// jinja2's own idea of a title: pieces between separators, and the separators themselves.
Text jinja_title(const Text& text) {
  Text out;
  const std::string_view s = text.view();
  for (size_t begin = 0; begin < s.size();) {
    const bool separators = separates_words(char_at(s, begin).code);
    size_t end = begin;
    while (end < s.size() && separates_words(char_at(s, end).code) == separators) end += char_at(s, end).bytes;
    const size_t rest = begin + char_at(s, begin).bytes;
    out.append(upper(text.slice(begin, rest)));
    out.append(lower(text.slice(rest, end)));
    begin = end;
  }
  return out;
}

Value text_method(const FilterCall& call, const std::string& method, Arguments args) {
  return call_text_method(call.text(), method, args, call.meter);
}

Value filter_center(const FilterCall& call) {
  std::vector<Value> a = call.bind({"width"});
  return text_method(call, "center", {{a[0].missing() ? Value::integer(80) : a[0]}});
}

Value filter_default(const FilterCall& call) {
  const std::vector<Value> a = call.bind({"default_value", "boolean"});
  const bool none = call.self.is(Kind::kUndefined) || (truth(a[1]) && !truth(call.self));
  return !none ? call.self : a[0].missing() ? Value::string(Text()) : a[0];
}

Value filter_escape(const FilterCall& call) {
  (void)call.bind({});
  if (call.self.markup()) return call.self;
  const Text text = call.text();
  Text out;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text.bytes()[i];
    const std::string_view to = c == '&'    ? "&amp;"
                                : c == '<'  ? "&lt;"
                                : c == '>'  ? "&gt;"
                                : c == '\'' ? "&#39;"
                                : c == '"'  ? "&#34;"
                                            : "";
    out.append(to.empty() ? std::string_view(&c, 1) : to, text.foreign_at(i));
    call.meter.bytes(std::max<size_t>(to.size(), 1));
  }
  return Value::string(std::move(out)).as_markup();
}

Value filter_float(const FilterCall& call) {
  const std::vector<Value> a = call.bind({"default"});
  if (call.self.is(Kind::kUndefined)) trouble(call.self.why());
  if (call.self.is_number()) return Value::real(call.self.real());
  if (call.self.is(Kind::kString)) {
    if (const auto parsed = parse_float(call.self.text().view())) return Value::real(*parsed);
  }
  return a[0].missing() ? Value::real(0) : a[0];
}

Value filter_int(const FilterCall& call) {
  const std::vector<Value> a = call.bind({"default", "base"});
  if (whole_or("int", a[1], 10) != 10) refuse("int with a base is not supported");
  const Value& v = call.self;
  const Value otherwise = a[0].missing() ? Value::integer(0) : a[0];
  if (v.is(Kind::kUndefined)) trouble(v.why());
  if (v.is_whole()) return Value::integer(v.integer());
  double real = 0;
  if (v.is(Kind::kFloat)) {
    real = v.real();
    if (std::isinf(real)) trouble("cannot convert float infinity to integer");
  } else if (v.is(Kind::kString)) {
    if (const auto parsed = parse_int(v.text().view())) return Value::integer(*parsed);
    const auto parsed = parse_float(v.text().view());
    if (!parsed || std::isinf(*parsed)) return otherwise;
    real = *parsed;
  } else {
    return otherwise;
  }
  if (std::isnan(real)) return otherwise;
  if (std::fabs(real) >= 9.2e18) refuse("an integer beyond 64 bits");
  return Value::integer(static_cast<int64_t>(real));
}

Value filter_format(const FilterCall& call) {
  if (!call.args.items.empty() && !call.args.keywords.empty())
    trouble("can't handle positional and keyword arguments at the same time");
  if (call.args.keywords.empty()) return Value::string(format_percent(call.text(), Value::tuple(call.args.items), call.meter));
  std::vector<std::pair<Value, Value>> pairs;
  for (auto& [name, value] : call.args.keywords) pairs.emplace_back(Value::string(name), value);
  return Value::string(format_percent(call.text(), Value::dict(std::move(pairs)), call.meter));
}

Value filter_indent(const FilterCall& call) {
  const std::vector<Value> a = call.bind({"width", "first", "blank"});
  if (call.self.is(Kind::kUndefined)) trouble(call.self.why());
  Text text = text_of("indent", call.self);
  Text by;
  if (a[0].is(Kind::kString)) {
    by = a[0].text();
  } else {
    const auto n = static_cast<size_t>(std::max<int64_t>(whole_or("indent", a[0], 4), 0));
    call.meter.bytes(n);
    by = Text(std::string(n, ' '));
  }
  text.append("\n", false);
  const std::vector<Text> lines = split_lines(text, false);
  call.meter.bytes(text.size() + lines.size() * (by.size() + 1));
  Text out;
  if (truth(a[1])) out.append(by);
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out.append("\n", false);
    if (i > 0 && (truth(a[2]) || !lines[i].empty())) out.append(by);
    out.append(lines[i]);
  }
  return Value::string(std::move(out));
}

Value filter_replace(const FilterCall& call) {
  const std::vector<Value> a = call.bind({"old", "new", "count"});
  if (a[0].missing() || a[1].missing()) trouble("replace needs two strings");
  Arguments args{{Value::string(to_text(a[0], call.meter)), Value::string(to_text(a[1], call.meter))}};
  if (!a[2].missing() && !a[2].is(Kind::kNone)) args.items.push_back(a[2]);
  return text_method(call, "replace", std::move(args));
}

Value filter_round(const FilterCall& call) {
  const std::vector<Value> a = call.bind({"precision", "method"});
  const int64_t precision = whole_or("round", a[0], 0);
  const std::string method = a[1].missing() ? "common" : text_of("round", a[1]).bytes();
  if (method != "common" && method != "ceil" && method != "floor") trouble("method must be common, ceil or floor");
  const Value& v = call.self;
  if (v.is(Kind::kUndefined)) trouble(v.why());
  if (!v.is_number()) trouble("round needs a number, not ", type_name(v));
  if (precision < 0 || precision > 15) refuse("round to this precision is not supported");
  if (method != "common") {
    const double scale = std::pow(10, static_cast<double>(precision)), scaled = v.real() * scale;
    if (!std::isfinite(scaled)) trouble("a number that cannot be rounded");
    return Value::real((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
  }
  if (v.is_whole()) return Value::integer(v.integer());
  if (!std::isfinite(v.real())) return v;
  char buffer[400];  // the decimal nearest to it, of equals the even one
  std::snprintf(buffer, sizeof(buffer), "%.*f", static_cast<int>(precision), v.real());
  return Value::real(*parse_float(buffer));
}

Value filter_truncate(const FilterCall& call) {
  const std::vector<Value> a = call.bind({"length", "killwords", "end", "leeway"});
  const Text& text = text_of("truncate", call.self);
  const int64_t length = whole_or("truncate", a[0], 255), leeway = a[3].is(Kind::kNone) ? 5 : whole_or("truncate", a[3], 5);
  const Text end = a[2].missing() ? Text("...") : text_of("truncate", a[2]);
  const auto n_end = static_cast<int64_t>(count_chars(end.view())), n = static_cast<int64_t>(count_chars(text.view()));
  if (length < n_end) trouble("expected length >= ", n_end, ", got ", length);
  if (leeway < 0) trouble("expected leeway >= 0, got ", leeway);
  if (n - length <= leeway) return call.self;
  Text out = text.slice(0, advance_chars(text.view(), 0, static_cast<size_t>(length - n_end)));
  if (!truth(a[1])) {
    const size_t space = out.bytes().rfind(' ');
    if (space != std::string::npos) out = out.slice(0, space);
  }
  out.append(end);
  return as_text(call, std::move(out));
}

Value filter_trim(const FilterCall& call) {
  std::vector<Value> a = call.bind({"chars"});
  return text_method(call, "strip", {{a[0].missing() ? Value::none() : a[0]}});
}

Value filter_wordcount(const FilterCall& call) {
  (void)call.bind({});
  int64_t n = 0;
  bool inside = false;
  const Text text = call.text();
  for (const char c : text.bytes()) {
    if (static_cast<unsigned char>(c) >= 0x80) refuse("wordcount of characters beyond ASCII is not supported");
    const bool word = (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') || c == '_';
    n += word && !inside;
    inside = word;
  }
  return Value::integer(n);
}

constexpr FilterRow kFilters[] = {
    {"abs", filter_abs},
    {"attr", nullptr},
    {"capitalize", [](const FilterCall& c) { return filter_case(c, capitalize); }},
    {"center", filter_center},
    {"d", filter_default},
    {"default", filter_default},
    {"e", filter_escape},
    {"escape", filter_escape},
    {"filesizeformat", nullptr},
    {"float", filter_float},
    {"forceescape", nullptr},
    {"format", filter_format},
    {"groupby", nullptr},
    {"indent", filter_indent},
    {"int", filter_int},
    {"lower", [](const FilterCall& c) { return filter_case(c, lower); }},
    {"pprint", nullptr},
    {"random", nullptr},
    {"replace", filter_replace},
    {"round", filter_round},
    {"safe",
     [](const FilterCall& c) {
       (void)c.bind({});
       return Value::string(c.text()).as_markup();
     }},
    {"string",
     [](const FilterCall& c) {
       (void)c.bind({});
       return c.self.is(Kind::kString) ? c.self : Value::string(c.text());
     }},
    {"striptags", nullptr},
    {"title", [](const FilterCall& c) { return filter_case(c, jinja_title); }},
    {"tojson", [](const FilterCall& c) { return to_json(c.self, c.args, c.meter); }},
    {"trim", filter_trim},
    {"truncate", filter_truncate},
    {"upper", [](const FilterCall& c) { return filter_case(c, upper); }},
    {"urlencode", nullptr},
    {"urlize", nullptr},
    {"wordcount", filter_wordcount},
    {"wordwrap", nullptr},
    {"xmlattr", nullptr},
};

const FilterRow* find_filter(std::string_view name) {
  const auto* row = std::find_if(std::begin(kFilters), std::end(kFilters), [&](const FilterRow& r) { return r.name == name; });
  return row == std::end(kFilters) ? nullptr : row;
}

// What may be done with Markup: jinja2 goes on with escaping there.
bool takes_markup(std::string_view name) {
  return name == "safe" || name == "e" || name == "escape" || name == "length" || name == "count" || name == "tojson" ||
         name == "default" || name == "d" || name == "string";
}

}  // namespace

bool is_filter_name(std::string_view name) { return find_filter(name) || list_filter(name); }

Value call_filter(const std::string& name, const Value& self, Arguments args, Meter& meter) {
  meter.step();
  const FilterRow* row = find_filter(name);
  const Filter filter = row ? row->filter : list_filter(name);
  if (!filter && row) refuse("the filter '", name, "' is not supported");
  if (!filter) trouble("no filter named '", name.substr(0, 40), "'");
  if (self.markup() && !takes_markup(name)) refuse("a string marked as safe can only be written out");
  return filter(FilterCall{name, self, args, meter});
}

}  // namespace kpd::text::jinja
