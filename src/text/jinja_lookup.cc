// text: attributes, items and slices of a chat template's values.
#include <algorithm>

#include "text/jinja_runtime.h"
#include "text/unicode.h"

namespace kpd::text::jinja {
namespace {

constexpr std::string_view kOfString[] = {
    "capitalize",   "casefold",   "center",    "count",       "encode",    "endswith",     "expandtabs",   "find",
    "format",       "format_map", "index",     "isalnum",     "isalpha",   "isascii",      "isdecimal",    "isdigit",
    "isidentifier", "islower",    "isnumeric", "isprintable", "isspace",   "istitle",      "isupper",      "join",
    "ljust",        "lower",      "lstrip",    "maketrans",   "partition", "removeprefix", "removesuffix", "replace",
    "rfind",        "rindex",     "rjust",     "rpartition",  "rsplit",    "rstrip",       "split",        "splitlines",
    "startswith",   "strip",      "swapcase",  "title",       "translate", "upper",        "zfill"};
constexpr std::string_view kOfDict[] = {"clear", "copy",    "fromkeys",   "get",    "items", "keys",
                                        "pop",   "popitem", "setdefault", "update", "values"};
constexpr std::string_view kOfList[] = {"append", "clear", "copy",   "count",   "extend", "index",
                                        "insert", "pop",   "remove", "reverse", "sort"};
constexpr std::string_view kOfTuple[] = {"count", "index"};
constexpr std::string_view kOfNumber[] = {"as_integer_ratio", "bit_count", "bit_length", "conjugate", "denominator",
                                          "from_bytes",       "fromhex",   "hex",        "imag",      "is_integer",
                                          "numerator",        "real",      "to_bytes"};
constexpr std::string_view kOfRange[] = {"count", "index", "start", "step", "stop"};
constexpr std::string_view kOfView[] = {"isdisjoint", "mapping"};
constexpr std::string_view kOfIterator[] = {"close",        "gi_code",      "gi_frame", "gi_running",
                                            "gi_suspended", "gi_yieldfrom", "send",     "throw"};
constexpr std::string_view kOfCycler[] = {"current", "items", "next", "pos", "reset"};
constexpr std::string_view kOfLoop[] = {"changed", "cycle",  "depth",    "depth0",   "first",    "index",    "index0",
                                        "last",    "length", "nextitem", "previtem", "revindex", "revindex0"};

// What the sandbox keeps templates from.
constexpr std::string_view kChangesDict[] = {"clear", "pop", "popitem", "setdefault", "update"};
constexpr std::string_view kChangesList[] = {"append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove"};

template <size_t n>
bool one_of(const std::string_view (&names)[n], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

bool changes(const Value& object, std::string_view name) {
  return (object.is(Kind::kDict) && one_of(kChangesDict, name)) || (object.is(Kind::kList) && one_of(kChangesList, name));
}

std::string shown_object(const Value& object) {
  return object.is(Kind::kNone) ? "None" : str("'", type_name(object), " object'");
}

// What getattr() gives; none for AttributeError.
std::optional<Value> own_attribute(const Value& object, const std::string& name, Meter& meter) {
  if (object.is(Kind::kNamespace)) {
    const Value* found = find_key(object.pairs(), name);
    return found ? std::optional(*found) : std::nullopt;
  }
  if (name.starts_with("__")) refuse("the attribute '", name.substr(0, 40), "' is not supported");
  if (object.is(Kind::kFunction) || object.is(Kind::kMethod) || object.is(Kind::kJoiner))
    refuse("attributes of functions are not supported");
  if (!has_method(object, name)) return std::nullopt;
  if (changes(object, name))
    return Value::undefined(str("access to attribute '", name, "' of ", shown_object(object), " is unsafe"));
  const bool loop_call = object.is(Kind::kLoop) && (name == "cycle" || name == "changed");
  if (object.is(Kind::kLoop) && !loop_call) return object.as<LoopObject>().attribute(name, meter);
  if (object.is(Kind::kCycler)) {
    const CyclerObject& cycler = object.as<CyclerObject>();
    if (name == "current") return cycler.items[cycler.at];
    if (name != "next" && name != "reset") refuse("the attribute '", name, "' of a cycler is not supported");
  }
  const bool callable = loop_call || object.is(Kind::kString) || object.is(Kind::kDict) || object.is(Kind::kList) ||
                        object.is(Kind::kTuple) || object.is(Kind::kCycler);
  if (!callable) refuse("the attribute '", name, "' of ", shown_object(object), " is not supported");
  if (object.markup()) refuse("a string marked as safe can only be written out");
  auto method = std::make_shared<MethodObject>();
  method->self = object;
  method->name = name;
  return Value::object(Kind::kMethod, std::move(method));
}

Value no_attribute(const Value& object, std::string_view name) {
  return Value::undefined(str(shown_object(object), " has no attribute '", name.substr(0, 80), "'"));
}

// object[i] of a sequence; none for an index beyond it.
std::optional<Value> element(const Value& object, int64_t index) {
  const auto n = static_cast<int64_t>(length(object));
  if (index < 0) index += n;
  if (index < 0 || index >= n) return std::nullopt;
  const auto i = static_cast<size_t>(index);
  if (object.is(Kind::kRange)) return Value::integer(object.as<RangeObject>().at(i));
  if (!object.is(Kind::kString)) return object.items()[i];
  const Text& text = object.text();
  const size_t begin = advance_chars(text.view(), 0, i);
  const Value one = Value::string(text.slice(begin, begin + char_at(text.view(), begin).bytes));
  return object.markup() ? one.as_markup() : one;
}

bool is_sequence(const Value& v) {
  return v.is(Kind::kString) || v.is(Kind::kList) || v.is(Kind::kTuple) || v.is(Kind::kRange);
}

int64_t slice_bound(const Value& value, int64_t missing) {
  if (value.missing() || value.is(Kind::kNone)) return missing;
  if (value.is(Kind::kUndefined)) trouble("slice indices must be integers, not undefined");
  if (!value.is_whole()) trouble("slice indices must be integers, not ", type_name(value));
  return value.integer();
}

}  // namespace

bool has_method(const Value& value, std::string_view name) {
  switch (value.kind()) {
    case Kind::kString:
      return one_of(kOfString, name);
    case Kind::kDict:
      return one_of(kOfDict, name);
    case Kind::kList:
      return one_of(kOfList, name);
    case Kind::kTuple:
      return one_of(kOfTuple, name);
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kFloat:
      return one_of(kOfNumber, name);
    case Kind::kRange:
      return one_of(kOfRange, name);
    case Kind::kView:
      return one_of(kOfView, name);
    case Kind::kIterator:
      return one_of(kOfIterator, name);
    case Kind::kCycler:
      return one_of(kOfCycler, name);
    case Kind::kLoop:
      return one_of(kOfLoop, name);
    default:
      return false;
  }
}

Value get_attribute(const Value& object, const std::string& name, Meter& meter) {
  if (object.is(Kind::kUndefined)) trouble(object.why());
  meter.step();
  if (auto found = own_attribute(object, name, meter)) return *found;
  if (object.is(Kind::kDict)) {
    meter.step(object.pairs().size() / 8);
    if (const Value* found = find_key(object.pairs(), name)) return *found;
  }
  return no_attribute(object, name);
}

Value get_item(const Value& object, const Value& key, Meter& meter) {
  if (object.is(Kind::kUndefined)) trouble(object.why());
  meter.step();
  if (object.is(Kind::kDict) && !key.is(Kind::kList) && !key.is(Kind::kDict)) {
    if (const Value* found = find_key(object.pairs(), key, meter)) return *found;
  }
  if (is_sequence(object) && key.is_whole()) {
    if (object.is(Kind::kString)) meter.step(object.text().size() / 16);
    if (auto found = element(object, key.integer())) return *found;
  }
  if (key.is(Kind::kString)) {
    if (auto found = own_attribute(object, key.text().bytes(), meter)) return *found;
    return no_attribute(object, key.text().view());
  }
  return Value::undefined(str(shown_object(object), " has no such element"));
}

Value get_slice(const Value& object, const Value& start, const Value& stop, const Value& step, Meter& meter) {
  if (object.is(Kind::kUndefined)) trouble(object.why());
  if (!is_sequence(object)) trouble("a value of the type ", type_name(object), " cannot be sliced");
  if (object.markup()) refuse("a string marked as safe can only be written out");
  if (object.is(Kind::kRange)) refuse("slices of a range are not supported");
  const auto n = static_cast<int64_t>(length(object));
  const int64_t by = slice_bound(step, 1);
  if (by == 0) trouble("slice step cannot be zero");
  const int64_t low = by < 0 ? -1 : 0, high = by < 0 ? n - 1 : n;
  const auto clamp = [&](int64_t i) { return std::clamp(i < 0 ? std::max(i, -n - 1) + n : i, low, high); };
  const bool no_start = start.missing() || start.is(Kind::kNone), no_stop = stop.missing() || stop.is(Kind::kNone);
  const int64_t from = no_start ? (by < 0 ? high : low) : clamp(slice_bound(start, 0));
  const int64_t to = no_stop ? (by < 0 ? low : high) : clamp(slice_bound(stop, 0));
  const int64_t apart = by < 0 ? from - to : to - from;
  // |by| may be the least integer: as a step it is then longer than anything.
  const uint64_t stride = by < 0 ? 0 - static_cast<uint64_t>(by) : static_cast<uint64_t>(by);
  const size_t count = apart <= 0 ? 0 : static_cast<size_t>((static_cast<uint64_t>(apart) - 1) / stride + 1);
  const int64_t used_step = count > 1 ? by : 1;
  if (object.is(Kind::kString)) {
    meter.bytes(object.text().size() * (used_step == 1 ? 1 : sizeof(size_t)));
    return Value::string(every(object.text(), from, used_step, count));
  }
  meter.bytes(count * sizeof(Value));
  std::vector<Value> items;
  for (size_t i = 0; i < count; ++i)
    items.push_back(object.items()[static_cast<size_t>(from + static_cast<int64_t>(i) * used_step)]);
  return object.is(Kind::kList) ? Value::list(std::move(items)) : Value::tuple(std::move(items));
}

}  // namespace kpd::text::jinja
