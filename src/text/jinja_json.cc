// text: tojson as transformers defines it (json.dumps without ASCII escapes), and JSON read into values.
#include "text/jinja_json.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "io/json.h"
#include "text/jinja_runtime.h"
#include "text/unicode.h"

namespace kpd::text::jinja {
namespace {

constexpr int kMaxJsonDepth = 32;

class JsonWriter {
 public:
  JsonWriter(bool ascii, bool sort, std::optional<Text> indent, Text item_separator, Text key_separator, Meter& meter)
      : ascii_(ascii),
        sort_(sort),
        indent_(std::move(indent)),
        item_separator_(std::move(item_separator)),
        key_separator_(std::move(key_separator)),
        meter_(meter) {}

  void write(const Value& value) {
    meter_.step();
    switch (value.kind()) {
      case Kind::kNone:
        return plain("null");
      case Kind::kBool:
        return plain(value.boolean() ? "true" : "false");
      case Kind::kInt:
        return plain(std::to_string(value.integer()));
      case Kind::kFloat:
        return plain(number(value.real()));
      case Kind::kString:
        return string(value.text());
      case Kind::kList:
      case Kind::kTuple:
        return list(value.items());
      case Kind::kDict:
        return dict(value.pairs());
      case Kind::kUndefined:
        trouble("an undefined value is not JSON serializable: ", value.why());
      default:
        trouble("a value of the type ", type_name(value), " is not JSON serializable");
    }
  }

  Text take() { return std::move(out_); }

 private:
  static std::string number(double d) {
    if (std::isnan(d)) return "NaN";
    if (std::isinf(d)) return d < 0 ? "-Infinity" : "Infinity";
    return float_repr(d);
  }

  void plain(std::string_view bytes, bool foreign = false) {
    meter_.bytes(bytes.size());
    out_.append(bytes, foreign);
  }
  void text(const Text& t) {
    meter_.bytes(t.size());
    out_.append(t);
  }

  void line() {
    if (!indent_) return;
    plain("\n");
    for (int i = 0; i < depth_; ++i) text(*indent_);
  }

  void escape(uint32_t code, bool foreign) {
    char buffer[16];
    if (code >= 0x10000) {
      std::snprintf(buffer, sizeof(buffer), "\\u%04x\\u%04x", 0xD800 + ((code - 0x10000) >> 10),
                    0xDC00 + ((code - 0x10000) & 0x3FF));
    } else {
      std::snprintf(buffer, sizeof(buffer), "\\u%04x", code);
    }
    plain(buffer, foreign);
  }

  void string(const Text& t) {
    constexpr std::string_view kFrom = "\"\\\n\r\t\f\b", kTo = "\"\\nrtfb";
    plain("\"");
    const std::string_view s = t.view();
    for (size_t at = 0; at < s.size();) {
      const Char c = char_at(s, at);
      const bool foreign = t.foreign_at(at);
      const size_t short_form = c.code < 0x80 ? kFrom.find(static_cast<char>(c.code)) : s.npos;
      if (short_form != s.npos) {
        plain(std::string{'\\', kTo[short_form]}, foreign);
      } else if (c.code < 0x20 || (ascii_ && c.code >= 0x7F)) {
        escape(c.code, foreign);
      } else {
        plain(s.substr(at, c.bytes), foreign);
      }
      at += c.bytes;
    }
    plain("\"");
  }

  void list(const std::vector<Value>& items) {
    if (items.empty()) return plain("[]");
    plain("[");
    ++depth_;
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) text(item_separator_);
      line();
      write(items[i]);
    }
    --depth_;
    line();
    plain("]");
  }

  void dict(const std::vector<std::pair<Value, Value>>& pairs) {
    if (pairs.empty()) return plain("{}");
    std::vector<Value> keys, places;
    for (size_t i = 0; i < pairs.size(); ++i) {
      keys.push_back(pairs[i].first);
      places.push_back(Value::integer(static_cast<int64_t>(i)));
    }
    if (sort_) places = sorted(places, keys, false, meter_);
    plain("{");
    ++depth_;
    bool first = true;
    for (const Value& place : places) {
      const auto& [key, value] = pairs[static_cast<size_t>(place.integer())];
      if (!first) text(item_separator_);
      first = false;
      line();
      write_key(key);
      text(key_separator_);
      write(value);
    }
    --depth_;
    line();
    plain("}");
  }

  void write_key(const Value& key) {
    if (key.is(Kind::kString)) return string(key.text());
    if (!key.is_number() && !key.is(Kind::kNone)) trouble("keys must be str, int, float, bool or None, not ", type_name(key));
    plain("\"");
    write(key);
    plain("\"");
  }

  bool ascii_, sort_;
  std::optional<Text> indent_;
  Text item_separator_, key_separator_;
  Meter& meter_;
  int depth_ = 0;
  Text out_;
};

Value value_of(const io::Json& json) {
  switch (json.type()) {
    case io::Json::value_t::null:
      return Value::none();
    case io::Json::value_t::boolean:
      return Value::boolean(json.get<bool>());
    case io::Json::value_t::number_integer:
      return Value::integer(json.get<int64_t>());
    case io::Json::value_t::number_unsigned:
      if (json.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX))
        fail(ErrorCode::kInvalidArgument, "a number beyond 64 bits with a sign in the variables of a chat template");
      return Value::integer(json.get<int64_t>());
    case io::Json::value_t::number_float:
      return Value::real(json.get<double>());
    case io::Json::value_t::string:
      return Value::string(Text(lossy_utf8(json.get_ref<const std::string&>()), true));
    case io::Json::value_t::array: {
      std::vector<Value> items;
      for (const io::Json& item : json) items.push_back(value_of(item));
      return Value::list(std::move(items));
    }
    default: {
      std::vector<std::pair<Value, Value>> pairs;
      for (const auto& [key, item] : json.items())
        pairs.emplace_back(Value::string(Text(lossy_utf8(key), true)), value_of(item));
      return Value::dict(std::move(pairs));
    }
  }
}

}  // namespace

Value to_json(const Value& value, Arguments& args, Meter& meter) {
  const std::vector<Value> a = bind("tojson", args, {"ensure_ascii", "indent", "separators", "sort_keys"});
  std::optional<Text> indent;
  if (a[1].is_whole()) {
    const int64_t n = std::max<int64_t>(a[1].integer(), 0);
    if (n > 1024) refuse("tojson with an indent of more than 1024");
    indent = Text(std::string(static_cast<size_t>(n), ' '));
  } else if (a[1].is(Kind::kString)) {
    indent = a[1].text();
  } else if (!a[1].missing() && !a[1].is(Kind::kNone)) {
    trouble("tojson needs an integer or a string as indent, not ", type_name(a[1]));
  }
  Text between(indent ? "," : ", "), after_key(": ");
  if (!a[2].missing() && !a[2].is(Kind::kNone)) {
    const std::vector<Value> both = iterate(a[2], meter);
    if (both.size() != 2) trouble("tojson needs two separators");
    between = text_of("tojson", both[0]);
    after_key = text_of("tojson", both[1]);
  }
  JsonWriter writer(truth(a[0]), truth(a[3]), std::move(indent), between, after_key, meter);
  writer.write(value);
  return Value::string(writer.take());
}

Value parse_variables(std::string_view json, std::string_view what) {
  const io::Json::parser_callback_t check = [&](int depth, io::Json::parse_event_t, io::Json&) {
    if (depth > kMaxJsonDepth) fail(ErrorCode::kInvalidArgument, what, ": nested deeper than ", kMaxJsonDepth, " levels");
    return true;
  };
  io::Json parsed;
  try {
    parsed = io::Json::parse(json.begin(), json.end(), check);
  } catch (const io::Json::exception&) {
    fail(ErrorCode::kInvalidArgument, what, ": not valid JSON, expected an object");
  }
  if (!parsed.is_object()) fail(ErrorCode::kInvalidArgument, what, ": expected a JSON object");
  return value_of(parsed);
}

}  // namespace kpd::text::jinja
