// text: what chat templates can call and look up: filters, tests, methods, attributes, operators. Where jinja2 under
// transformers' sandbox fails, these throw Trouble of kInvalidArgument; what jinja2 could do and this cannot, kUnsupported.
// Private.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja_ast.h"
#include "text/jinja_value.h"

namespace kpd::text::jinja {

struct Arguments {
  std::vector<Value> items{};
  std::vector<std::pair<std::string, Value>> keywords{};
};

// The arguments by parameter; missing ones are Kind::kMissing. A parameter whose name begins with a space is positional only.
// Trouble names `what`.
std::vector<Value> bind(std::string_view what, Arguments& args, std::initializer_list<std::string_view> parameters);
// An argument as an integer (Python's __index__), and one that may be missing.
int64_t whole(std::string_view what, const Value& value);
int64_t whole_or(std::string_view what, const Value& value, int64_t missing);
const Text& text_of(std::string_view what, const Value& value);

Value call_filter(const std::string& name, const Value& self, Arguments args, Meter& meter);
bool call_test(const std::string& name, const Value& self, Arguments args, Meter& meter);

// object.name and object[key], as the sandbox has them; undefined where there is none.
Value get_attribute(const Value& object, const std::string& name, Meter& meter);
Value get_item(const Value& object, const Value& key, Meter& meter);
Value get_slice(const Value& object, const Value& start, const Value& stop, const Value& step, Meter& meter);

// The loop's own attributes are the interpreter's.
struct LoopObject : Changing {
  virtual Value attribute(const std::string& name, Meter& meter) = 0;
  virtual Value call(const std::string& method, Arguments args, Meter& meter) = 0;
};
struct CyclerObject : Object {
  std::vector<Value> items;
  size_t at = 0;
};
struct JoinerObject : Object {
  Value separator;
  bool used = false;
};

Value call_method(const MethodObject& method, Arguments args, Meter& meter);
Value call_text_method(const Text& self, const std::string& name, Arguments& args, Meter& meter);
// Names that a Python object of the value's type has, without those in underscores.
bool has_method(const Value& value, std::string_view name);

Value binary(Op op, const Value& a, const Value& b, Meter& meter);
bool compare(Op op, const Value& a, const Value& b, Meter& meter);
Value negative(const Value& value);
Value positive(const Value& value);

// text % args and text.format(args).
Text format_percent(const Text& format, const Value& args, Meter& meter);
Text format_braces(const Text& format, const Arguments& args, Meter& meter);

// json.dumps under transformers' defaults.
Value to_json(const Value& value, Arguments& args, Meter& meter);

// int() and float() of a string; none where Python raises ValueError. int: kUnsupported beyond 64 bits.
std::optional<int64_t> parse_int(std::string_view text);
std::optional<double> parse_float(std::string_view text);

// Sorted as Python's sorted() does it, stable; keys are given beside the items.
std::vector<Value> sorted(std::vector<Value> items, std::vector<Value> keys, bool reverse, Meter& meter);

}  // namespace kpd::text::jinja
