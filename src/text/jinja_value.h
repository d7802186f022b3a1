// text: values of chat templates, with Python's semantics where jinja2 has them from there: truth, equality, order, str() and
// repr(). Integers have 64 bits; what goes beyond is refused. Private.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kpd/base/error.h"
#include "text/jinja_text.h"

namespace kpd::text::jinja {

// What went wrong, before the interpreter adds the place.
struct Trouble {
  ErrorCode code;
  std::string text;
};
// kInvalidArgument: jinja2 fails here too.
template <class... Args>
[[noreturn]] void trouble(const Args&... args) {
  throw Trouble{ErrorCode::kInvalidArgument, str(args...)};
}
// kUnsupported: jinja2 could do it.
template <class... Args>
[[noreturn]] void refuse(const Args&... args) {
  throw Trouble{ErrorCode::kUnsupported, str(args...)};
}

// What one rendering may use. Bytes are counted when they are made, not while they live.
class Meter {
 public:
  Meter(size_t steps, size_t bytes) : steps_(steps), bytes_(bytes), max_steps_(steps), max_bytes_(bytes) {}
  void step(size_t n = 1) {
    if (n > steps_) throw Trouble{ErrorCode::kLimitExceeded, str("more than ", max_steps_, " steps")};
    steps_ -= n;
  }
  void bytes(size_t n) {
    if (n > bytes_) throw Trouble{ErrorCode::kLimitExceeded, str("more than ", max_bytes_, " bytes of text and lists")};
    bytes_ -= n;
  }

 private:
  size_t steps_, bytes_, max_steps_, max_bytes_;
};

enum class Kind : uint8_t {
  kMissing,  // a variable's place that holds nothing yet; never seen by a template
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kList,
  kTuple,
  kDict,
  kRange,
  kIterator,  // what Python's generators are: read once
  kView,      // of a dict: keys(), values(), items()
  kNamespace,
  kFunction,  // a global one, or a macro
  kMethod,
  kLoop,
  kCycler,
  kJoiner,
};

struct Object {
  Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  virtual ~Object() = default;
};

// What can hold values made after it, itself among them: the interpreter keeps each until the rendering is over and empties it
// then, so that no cycle stays and no long chain is destroyed at once.
struct Changing : Object {
  virtual void release() = 0;
};

class Value {
 public:
  Value() = default;  // missing
  static Value undefined(std::string why);
  static Value none() { return Value(Kind::kNone); }
  static Value boolean(bool b);
  static Value integer(int64_t i);
  static Value real(double d);
  static Value string(Text text);
  static Value string(std::string bytes) { return string(Text(std::move(bytes))); }
  static Value list(std::vector<Value> items) { return sequence(Kind::kList, std::move(items)); }
  static Value tuple(std::vector<Value> items) { return sequence(Kind::kTuple, std::move(items)); }
  static Value iterator(std::vector<Value> items) { return sequence(Kind::kIterator, std::move(items)); }
  static Value dict(std::vector<std::pair<Value, Value>> items);  // keys are different
  static Value object(Kind kind, std::shared_ptr<Object> object);
  static Value function(int64_t id);

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool missing() const { return kind_ == Kind::kMissing; }
  bool is_number() const { return kind_ == Kind::kBool || kind_ == Kind::kInt || kind_ == Kind::kFloat; }
  bool is_whole() const { return kind_ == Kind::kBool || kind_ == Kind::kInt; }

  int64_t integer() const { return int_; }  // of an integer, or a function's id
  bool boolean() const { return int_ != 0; }
  double real() const { return kind_ == Kind::kFloat ? real_ : static_cast<double>(int_); }
  const Text& text() const;
  const std::vector<Value>& items() const;  // of a list, tuple or iterator
  const std::vector<std::pair<Value, Value>>& pairs() const;
  const std::string& why() const;  // undefined
  template <class T>
  T& as() const {
    return static_cast<T&>(*object_);
  }
  const std::shared_ptr<Object>& pointer() const { return object_; }

  // Text that jinja2 would hold as Markup: it may be written out, nothing else.
  bool markup() const { return markup_; }
  Value as_markup() const;

  // Lists in lists: 0 for what holds nothing.
  uint32_t depth() const;

 private:
  explicit Value(Kind kind) : kind_(kind) {}
  static Value sequence(Kind kind, std::vector<Value> items);

  Kind kind_ = Kind::kMissing;
  bool markup_ = false;
  union {
    int64_t int_ = 0;
    double real_;
  };
  std::shared_ptr<Object> object_;
};

struct TextObject : Object {
  Text text;
};
struct UndefinedObject : Object {
  std::string why;
};
struct ListObject : Object {
  std::vector<Value> items;
  uint32_t depth = 0;
  size_t next = 0;  // of an iterator
};
struct DictObject : Object {
  std::vector<std::pair<Value, Value>> items;
  uint32_t depth = 0;
};
struct NamespaceObject : Changing {
  std::vector<std::pair<Value, Value>> items;
  uint32_t depth = 0;
  void release() override { items.clear(); }
};
struct RangeObject : Object {
  int64_t start = 0, stop = 0, step = 1;
  size_t size = 0;
  int64_t at(size_t i) const { return start + static_cast<int64_t>(i) * step; }
};
struct ViewObject : Object {
  Value dict;
  enum class What { kKeys, kValues, kItems } what = What::kKeys;
};
struct MethodObject : Object {
  Value self;
  std::string name;
};

// Lists may be nested so deep.
constexpr uint32_t kMaxValueDepth = 64;

// As Python names the type: "str", "list"; for errors.
const char* type_name(const Value& value);

bool truth(const Value& value);
bool equal(const Value& a, const Value& b, Meter& meter);
// a < b, a <= b, a > b, a >= b; trouble for types without an order.
enum class Order : uint8_t { kLess, kLessEqual, kGreater, kGreaterEqual };
bool in_order(Order order, const Value& a, const Value& b, Meter& meter);
bool contains(const Value& container, const Value& item, Meter& meter);
// len(); trouble for what has none.
size_t length(const Value& value);
// The items that a for loop would see; an iterator is read to its end.
std::vector<Value> iterate(const Value& value, Meter& meter);
// Null: the dict has no such key. Trouble for a key that cannot be one (a list).
const Value* find_key(const std::vector<std::pair<Value, Value>>& pairs, const Value& key, Meter& meter);
const Value* find_key(const std::vector<std::pair<Value, Value>>& pairs, std::string_view key);
// Adds the pair or replaces the value of its key.
void set_key(std::vector<std::pair<Value, Value>>& pairs, Value key, Value value, Meter& meter);

Text to_text(const Value& value, Meter& meter);  // str()
void append_repr(Text& out, const Value& value, Meter& meter);
std::string float_repr(double value);

}  // namespace kpd::text::jinja
