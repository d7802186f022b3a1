// text: methods of strings, dicts and lists in chat templates, as Python has them.
#include <algorithm>
#include <functional>
#include <map>

#include "text/jinja_runtime.h"
#include "text/jinja_unicode.h"
#include "text/unicode.h"

namespace kpd::text::jinja {
namespace {

constexpr size_t kNone = std::string::npos;

// A call of a string's method.
struct Call {
  const Text& self;
  const std::string& name;
  Arguments& args;
  Meter& meter;

  std::vector<Value> bind(std::initializer_list<std::string_view> parameters) const {
    return jinja::bind(name, args, parameters);
  }
  // All parameters positional only.
  std::vector<Value> bind_places(size_t n) const {
    if (!args.keywords.empty()) trouble(name, " takes no argument '", args.keywords[0].first.substr(0, 40), "'");
    if (args.items.size() > n) trouble(name, " takes at most ", n, " arguments, not ", args.items.size());
    std::vector<Value> out = std::move(args.items);
    out.resize(n);
    return out;
  }
  Value text(Text out) const {
    meter.bytes(out.size());
    return Value::string(std::move(out));
  }
  Value texts(std::vector<Text> parts, bool tuple = false) const {
    meter.bytes(self.size() + parts.size() * (sizeof(Value) + sizeof(TextObject)));
    std::vector<Value> out;
    for (Text& part : parts) out.push_back(Value::string(std::move(part)));
    return tuple ? Value::tuple(std::move(out)) : Value::list(std::move(out));
  }
};

bool absent(const Value& v) { return v.missing() || v.is(Kind::kNone); }

Value method_strip(const Call& call, bool left, bool right) {
  const std::vector<Value> a = call.bind_places(1);
  const std::string* chars = absent(a[0]) ? nullptr : &text_of(call.name, a[0]).bytes();
  call.meter.step(call.self.size() / 64 * (chars ? chars->size() + 1 : 1));
  return call.text(strip(call.self, chars, left, right));
}

Value method_split(const Call& call, bool right) {
  const std::vector<Value> a = call.bind({"sep", "maxsplit"});
  const int64_t max = whole_or(call.name, a[1], -1);
  call.meter.step(call.self.size() / 16);
  if (absent(a[0])) return call.texts(right ? rsplit_spaces(call.self, max) : split_spaces(call.self, max));
  const std::string& separator = text_of(call.name, a[0]).bytes();
  if (separator.empty()) trouble("empty separator");
  return call.texts(right ? rsplit(call.self, separator, max) : split(call.self, separator, max));
}

// The part of self that find, count, startswith and their like look at, in bytes; none if it lies beyond the end.
std::optional<std::pair<size_t, size_t>> window(const Call& call, const Value& start, const Value& end) {
  const auto n = static_cast<int64_t>(count_chars(call.self.view()));
  const auto bound = [&](const Value& v, int64_t missing) {
    if (absent(v)) return missing;
    const int64_t i = whole(call.name, v);
    return i < 0 ? std::max<int64_t>(std::max(i, -n) + n, 0) : i;
  };
  const int64_t from = bound(start, 0), to = std::min(bound(end, n), n);
  if (from > n || from > to) return std::nullopt;
  const size_t begin = advance_chars(call.self.view(), 0, static_cast<size_t>(from));
  return std::pair(begin, advance_chars(call.self.view(), begin, static_cast<size_t>(to - from)));
}

Value method_affix(const Call& call, bool start) {
  const std::vector<Value> a = call.bind_places(3);
  const bool many = a[0].is(Kind::kTuple);
  if (!many) (void)text_of(call.name, a[0]);
  const auto part = window(call, a[1], a[2]);
  if (many) {
    for (const Value& v : a[0].items()) (void)text_of(call.name, v);
  }
  if (!part) return Value::boolean(false);
  const std::string_view seen = call.self.view().substr(part->first, part->second - part->first);
  const auto fits = [&](const Value& v) {
    const std::string_view affix = v.text().view();
    return start ? seen.starts_with(affix) : seen.ends_with(affix);
  };
  return Value::boolean(many ? std::any_of(a[0].items().begin(), a[0].items().end(), fits) : fits(a[0]));
}

Value method_find(const Call& call, bool right, bool must) {
  const std::vector<Value> a = call.bind_places(3);
  const std::string_view part = text_of(call.name, a[0]).view();
  call.meter.step(call.self.size() / 16);
  size_t at = kNone;
  if (const auto seen = window(call, a[1], a[2])) {
    const std::string_view text = call.self.view().substr(0, seen->second);
    at = right ? rfind_text(text, part, text.size()) : find_text(text, part, seen->first);
    if (at != kNone && at < seen->first) at = kNone;
  }
  if (at == kNone && must) trouble("substring not found");
  return Value::integer(at == kNone ? -1 : static_cast<int64_t>(count_chars(call.self.view().substr(0, at))));
}

Value method_count(const Call& call) {
  const std::vector<Value> a = call.bind_places(3);
  const std::string_view part = text_of(call.name, a[0]).view();
  call.meter.step(call.self.size() / 16);
  const auto seen = window(call, a[1], a[2]);
  if (!seen) return Value::integer(0);
  const std::string_view text = call.self.view().substr(seen->first, seen->second - seen->first);
  if (part.empty()) return Value::integer(static_cast<int64_t>(count_chars(text)) + 1);
  int64_t n = 0;
  for (size_t at = find_text(text, part); at != kNone; at = find_text(text, part, at + part.size())) ++n;
  return Value::integer(n);
}

Value method_replace(const Call& call) {
  const std::vector<Value> a = call.bind_places(3);
  const Text &from = text_of(call.name, a[0]), &to = text_of(call.name, a[1]);
  const int64_t max = whole_or(call.name, a[2], -1);
  call.meter.step(call.self.size() / 16);
  // The result's size, before it is made.
  const std::string_view s = call.self.view();
  size_t n = from.empty() ? count_chars(s) + 1 : 0;
  for (size_t at = from.empty() ? kNone : find_text(s, from.view()); at != kNone;
       at = find_text(s, from.view(), at + from.size()))
    ++n;
  if (max >= 0) n = std::min(n, static_cast<size_t>(max));
  call.meter.bytes(n * to.size());
  call.meter.step(n);
  return call.text(replace(call.self, from, to, max));
}

Value method_join(const Call& call) {
  const std::vector<Value> a = call.bind_places(1);
  if (a[0].missing()) trouble("join needs a list");
  Text out;
  bool first = true;
  for (const Value& item : iterate(a[0], call.meter)) {
    const Text& text = text_of("join of a list", item);
    call.meter.bytes(text.size() + call.self.size());
    if (!first) out.append(call.self);
    first = false;
    out.append(text);
  }
  return Value::string(std::move(out));
}

Value method_partition(const Call& call, bool right) {
  const std::vector<Value> a = call.bind_places(1);
  const Text& separator = text_of(call.name, a[0]);
  if (separator.empty()) trouble("empty separator");
  call.meter.step(call.self.size() / 16);
  const Text& s = call.self;
  const size_t at = right ? rfind_text(s.view(), separator.view(), s.size()) : find_text(s.view(), separator.view());
  if (at == kNone) return call.texts(right ? std::vector<Text>{Text(), Text(), s} : std::vector<Text>{s, Text(), Text()}, true);
  // The separator as it stands in the text: it is where the text is from.
  const size_t end = at + separator.size();
  return call.texts({s.slice(0, at), s.slice(at, end), s.slice(end, s.size())}, true);
}

Value method_pad(const Call& call, bool left, bool right) {
  const std::vector<Value> a = call.bind_places(2);
  const int64_t width = whole(call.name, a[0]);
  const Text fill = a[1].missing() ? Text(" ") : text_of(call.name, a[1]);
  if (count_chars(fill.view()) != 1) trouble("the fill character must be exactly one character long");
  const auto n = static_cast<int64_t>(count_chars(call.self.view()));
  const int64_t missing = std::max<int64_t>(width - n, 0);
  call.meter.bytes(static_cast<size_t>(missing) * fill.size());
  // Python's center puts the odd one on the left if the width is odd too.
  const int64_t before = left && right ? missing / 2 + (missing & width & 1) : left ? missing : 0;
  Text out;
  for (int64_t i = 0; i < missing; ++i) {
    if (i == before) out.append(call.self);
    out.append(fill);
  }
  if (before >= missing) out.append(call.self);
  return call.text(std::move(out));
}

Value method_zfill(const Call& call) {
  const std::vector<Value> a = call.bind_places(1);
  const int64_t missing = std::max<int64_t>(whole(call.name, a[0]) - static_cast<int64_t>(count_chars(call.self.view())), 0);
  call.meter.bytes(static_cast<size_t>(missing));
  const bool sign = call.self.view().starts_with('+') || call.self.view().starts_with('-');
  Text out = call.self.slice(0, sign ? 1 : 0);
  out.append(std::string(static_cast<size_t>(missing), '0'), false);
  out.append(call.self, sign ? 1 : 0, call.self.size());
  return call.text(std::move(out));
}

Value method_without(const Call& call, bool prefix) {
  const std::vector<Value> a = call.bind_places(1);
  const std::string_view affix = text_of(call.name, a[0]).view(), s = call.self.view();
  if (prefix && s.starts_with(affix)) return call.text(call.self.slice(affix.size(), s.size()));
  if (!prefix && s.ends_with(affix)) return call.text(call.self.slice(0, s.size() - affix.size()));
  return call.text(call.self);
}

// True if the text is not empty and every character passes.
template <class Fn>
Value all_chars(const Call& call, const Fn& passes) {
  (void)call.bind_places(0);
  const std::string_view s = call.self.view();
  call.meter.step(s.size() / 16);
  for (size_t at = 0; at < s.size();) {
    const Char c = char_at(s, at);
    if (!passes(c.code)) return Value::boolean(false);
    at += c.bytes;
  }
  return Value::boolean(!s.empty());
}

bool ascii_digit(uint32_t c) { return c >= '0' && c <= '9'; }
bool ascii_letter(uint32_t c) { return (c | 0x20) >= 'a' && (c | 0x20) <= 'z'; }
// Classes of which there is no table beyond ASCII.
Value ascii_class(const Call& call, bool letters, bool digits) {
  return all_chars(call, [&](uint32_t c) {
    if (c >= 0x80) refuse(call.name, " of characters beyond ASCII is not supported");
    return (letters && ascii_letter(c)) || (digits && ascii_digit(c));
  });
}

Value method_islower(const Call& call, bool low) {
  (void)call.bind_places(0);
  bool cased = false;
  const std::string_view s = call.self.view();
  call.meter.step(s.size() / 16);
  for (size_t at = 0; at < s.size();) {
    const Char c = char_at(s, at);
    at += c.bytes;
    if (low ? is_upper(c.code) : is_lower(c.code) || is_title(c.code)) return Value::boolean(false);
    cased |= low ? is_lower(c.code) : is_upper(c.code);
  }
  return Value::boolean(cased);
}

Value method_case(const Call& call, Text (*change)(const Text&)) {
  (void)call.bind_places(0);
  call.meter.bytes(call.self.size());
  call.meter.step(call.self.size() / 4);
  return call.text(change(call.self));
}

using Method = Value (*)(const Call&);
const std::map<std::string_view, Method>& text_methods() {
  static const std::map<std::string_view, Method> methods = {
      {"capitalize", [](const Call& c) { return method_case(c, capitalize); }},
      {"center", [](const Call& c) { return method_pad(c, true, true); }},
      {"count", method_count},
      {"endswith", [](const Call& c) { return method_affix(c, false); }},
      {"find", [](const Call& c) { return method_find(c, false, false); }},
      {"format", [](const Call& c) { return Value::string(format_braces(c.self, c.args, c.meter)); }},
      {"index", [](const Call& c) { return method_find(c, false, true); }},
      {"isalnum", [](const Call& c) { return ascii_class(c, true, true); }},
      {"isalpha", [](const Call& c) { return ascii_class(c, true, false); }},
      {"isascii",
       [](const Call& c) {
         return Value::boolean(c.self.empty() || all_chars(c, [](uint32_t u) { return u < 0x80; }).boolean());
       }},
      {"isdecimal", [](const Call& c) { return ascii_class(c, false, true); }},
      {"isdigit", [](const Call& c) { return ascii_class(c, false, true); }},
      {"islower", [](const Call& c) { return method_islower(c, true); }},
      {"isnumeric", [](const Call& c) { return ascii_class(c, false, true); }},
      {"isprintable", [](const Call& c) { return Value::boolean(c.self.empty() || all_chars(c, is_printable).boolean()); }},
      {"isspace", [](const Call& c) { return all_chars(c, is_python_space); }},
      {"isupper", [](const Call& c) { return method_islower(c, false); }},
      {"join", method_join},
      {"ljust", [](const Call& c) { return method_pad(c, false, true); }},
      {"lower", [](const Call& c) { return method_case(c, lower); }},
      {"lstrip", [](const Call& c) { return method_strip(c, true, false); }},
      {"partition", [](const Call& c) { return method_partition(c, false); }},
      {"removeprefix", [](const Call& c) { return method_without(c, true); }},
      {"removesuffix", [](const Call& c) { return method_without(c, false); }},
      {"replace", method_replace},
      {"rfind", [](const Call& c) { return method_find(c, true, false); }},
      {"rindex", [](const Call& c) { return method_find(c, true, true); }},
      {"rjust", [](const Call& c) { return method_pad(c, true, false); }},
      {"rpartition", [](const Call& c) { return method_partition(c, true); }},
      {"rsplit", [](const Call& c) { return method_split(c, true); }},
      {"rstrip", [](const Call& c) { return method_strip(c, false, true); }},
      {"split", [](const Call& c) { return method_split(c, false); }},
      {"splitlines",
       [](const Call& c) {
         const std::vector<Value> a = c.bind({"keepends"});
         return c.texts(split_lines(c.self, truth(a[0])));
       }},
      {"startswith", [](const Call& c) { return method_affix(c, true); }},
      {"strip", [](const Call& c) { return method_strip(c, true, true); }},
      {"swapcase", [](const Call& c) { return method_case(c, swapcase); }},
      {"title", [](const Call& c) { return method_case(c, title); }},
      {"upper", [](const Call& c) { return method_case(c, upper); }},
      {"zfill", method_zfill},
  };
  return methods;
}

Value call_dict_method(const Value& self, const std::string& name, Arguments& args, Meter& meter) {
  if (name == "get") {
    if (!args.keywords.empty()) trouble("get takes no keyword arguments");
    const std::vector<Value> a = bind(name, args, {" key", " default"});
    if (a[0].missing()) trouble("get needs a key");
    const Value* found = find_key(self.pairs(), a[0], meter);
    return found ? *found : a[1].missing() ? Value::none() : a[1];
  }
  if (name == "fromkeys") refuse("fromkeys is not supported");
  (void)bind(name, args, {});
  if (name == "copy") return self;
  auto view = std::make_shared<ViewObject>();
  view->dict = self;
  view->what = name == "keys"     ? ViewObject::What::kKeys
               : name == "values" ? ViewObject::What::kValues
                                  : ViewObject::What::kItems;
  return Value::object(Kind::kView, std::move(view));
}

Value call_list_method(const Value& self, const std::string& name, Arguments& args, Meter& meter) {
  if (name == "copy") {
    (void)bind(name, args, {});
    return self;
  }
  if (!args.keywords.empty()) trouble(name, " takes no keyword arguments");
  const std::vector<Value> a = bind(name, args, {" value", " start", " stop"});
  if (a[0].missing()) trouble(name, " needs a value");
  if (!a[1].missing()) refuse(name, " of a part of a list is not supported");
  int64_t n = 0;
  for (size_t i = 0; i < self.items().size(); ++i) {
    if (!equal(self.items()[i], a[0], meter)) continue;
    if (name == "index") return Value::integer(static_cast<int64_t>(i));
    ++n;
  }
  if (name == "index") trouble("the value is not in the list");
  return Value::integer(n);
}

Value call_cycler_method(CyclerObject& cycler, const std::string& name, Arguments& args) {
  (void)bind(name, args, {});
  if (name == "reset") {
    cycler.at = 0;
    return Value::none();
  }
  const Value now = cycler.items[cycler.at];
  cycler.at = (cycler.at + 1) % cycler.items.size();
  return now;
}

}  // namespace

Value call_text_method(const Text& self, const std::string& name, Arguments& args, Meter& meter) {
  const auto method = text_methods().find(name);
  if (method == text_methods().end()) refuse("the method '", name.substr(0, 40), "' of a string is not supported");
  return method->second(Call{self, name, args, meter});
}

Value call_method(const MethodObject& method, Arguments args, Meter& meter) {
  meter.step();
  switch (method.self.kind()) {
    case Kind::kString:
      return call_text_method(method.self.text(), method.name, args, meter);
    case Kind::kDict:
      return call_dict_method(method.self, method.name, args, meter);
    case Kind::kCycler:
      return call_cycler_method(method.self.as<CyclerObject>(), method.name, args);
    case Kind::kLoop:
      return method.self.as<LoopObject>().call(method.name, std::move(args), meter);
    default:
      return call_list_method(method.self, method.name, args, meter);
  }
}

}  // namespace kpd::text::jinja
