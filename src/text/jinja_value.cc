// text: values of chat templates: what they are, their truth, equality and order.
#include "text/jinja_value.h"

#include <algorithm>
#include <cmath>

#include "text/unicode.h"

namespace kpd::text::jinja {
namespace {

uint32_t deeper(uint32_t depth, const Value& item) {
  depth = std::max(depth, item.depth() + 1);
  if (depth > kMaxValueDepth) throw Trouble{ErrorCode::kLimitExceeded, str("lists nested deeper than ", kMaxValueDepth)};
  return depth;
}

// Three-way order of numbers; no value for NaN.
std::optional<int> compare_numbers(const Value& a, const Value& b) {
  // A long double holds every 64-bit integer and every double.
  const auto exact = [](const Value& v) {
    return v.is(Kind::kFloat) ? static_cast<long double>(v.real()) : static_cast<long double>(v.integer());
  };
  const long double x = exact(a), y = exact(b);
  if (std::isnan(x) || std::isnan(y)) return std::nullopt;
  return x < y ? -1 : x > y ? 1 : 0;
}

bool equal_items(const std::vector<Value>& a, const std::vector<Value>& b, Meter& meter) {
  return a.size() == b.size() &&
         std::equal(a.begin(), a.end(), b.begin(), [&](const Value& x, const Value& y) { return equal(x, y, meter); });
}

bool equal_pairs(const Value& a, const Value& b, Meter& meter) {
  if (a.pairs().size() != b.pairs().size()) return false;
  return std::all_of(a.pairs().begin(), a.pairs().end(), [&](const auto& pair) {
    const Value* other = find_key(b.pairs(), pair.first, meter);
    return other && equal(pair.second, *other, meter);
  });
}

bool holds(Order order, int sign) {
  switch (order) {
    case Order::kLess:
      return sign < 0;
    case Order::kLessEqual:
      return sign <= 0;
    case Order::kGreater:
      return sign > 0;
    case Order::kGreaterEqual:
      return sign >= 0;
  }
  return false;
}

bool sequence_in_order(Order order, const Value& a, const Value& b, Meter& meter) {
  const std::vector<Value>&x = a.items(), &y = b.items();
  for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
    if (!equal(x[i], y[i], meter)) return in_order(order, x[i], y[i], meter);
  }
  return holds(order, x.size() < y.size() ? -1 : x.size() > y.size() ? 1 : 0);
}

}  // namespace

Value Value::undefined(std::string why) {
  auto object = std::make_shared<UndefinedObject>();
  object->why = std::move(why);
  return Value::object(Kind::kUndefined, std::move(object));
}

Value Value::boolean(bool b) {
  Value v(Kind::kBool);
  v.int_ = b;
  return v;
}

Value Value::integer(int64_t i) {
  Value v(Kind::kInt);
  v.int_ = i;
  return v;
}

Value Value::real(double d) {
  Value v(Kind::kFloat);
  v.real_ = d;
  return v;
}

Value Value::string(Text text) {
  auto object = std::make_shared<TextObject>();
  object->text = std::move(text);
  return Value::object(Kind::kString, std::move(object));
}

Value Value::sequence(Kind kind, std::vector<Value> items) {
  auto object = std::make_shared<ListObject>();
  object->items = std::move(items);
  for (const Value& item : object->items) object->depth = deeper(object->depth, item);
  return Value::object(kind, std::move(object));
}

Value Value::dict(std::vector<std::pair<Value, Value>> items) {
  auto object = std::make_shared<DictObject>();
  object->items = std::move(items);
  for (const auto& [key, value] : object->items) object->depth = deeper(deeper(object->depth, key), value);
  return Value::object(Kind::kDict, std::move(object));
}

Value Value::object(Kind kind, std::shared_ptr<Object> object) {
  Value v(kind);
  v.object_ = std::move(object);
  return v;
}

Value Value::function(int64_t id) {
  Value v(Kind::kFunction);
  v.int_ = id;
  return v;
}

Value Value::as_markup() const {
  Value v = *this;
  v.markup_ = true;
  return v;
}

const Text& Value::text() const { return as<TextObject>().text; }
const std::vector<Value>& Value::items() const { return as<ListObject>().items; }
const std::vector<std::pair<Value, Value>>& Value::pairs() const {
  return kind_ == Kind::kNamespace ? as<NamespaceObject>().items : as<DictObject>().items;
}
const std::string& Value::why() const { return as<UndefinedObject>().why; }

uint32_t Value::depth() const {
  switch (kind_) {
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kIterator:
      return as<ListObject>().depth;
    case Kind::kDict:
      return as<DictObject>().depth;
    case Kind::kNamespace:
      return as<NamespaceObject>().depth;
    case Kind::kView:
      return as<ViewObject>().dict.depth() + 1;
    case Kind::kMethod:
      return as<MethodObject>().self.depth() + 1;
    default:
      return 0;
  }
}

const char* type_name(const Value& value) {
  switch (value.kind()) {
    case Kind::kMissing:
    case Kind::kUndefined:
      return "undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return "str";
    case Kind::kList:
      return "list";
    case Kind::kTuple:
      return "tuple";
    case Kind::kDict:
      return "dict";
    case Kind::kRange:
      return "range";
    case Kind::kIterator:
      return "generator";
    case Kind::kView:
      return "view of a dict";
    case Kind::kNamespace:
      return "namespace";
    case Kind::kFunction:
    case Kind::kMethod:
      return "function";
    case Kind::kLoop:
      return "loop";
    case Kind::kCycler:
      return "cycler";
    case Kind::kJoiner:
      return "joiner";
  }
  return "value";
}

bool truth(const Value& value) {
  switch (value.kind()) {
    case Kind::kMissing:
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInt:
      return value.integer() != 0;
    case Kind::kFloat:
      return value.real() != 0;
    case Kind::kString:
      return !value.text().empty();
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDict:
    case Kind::kRange:
    case Kind::kView:
      return length(value) > 0;
    default:
      return true;
  }
}

bool equal(const Value& a, const Value& b, Meter& meter) {
  meter.step();
  if (a.is_number() && b.is_number()) return compare_numbers(a, b) == 0;
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kString:
      meter.step(a.text().size() / 64);
      return a.text().bytes() == b.text().bytes();
    case Kind::kList:
    case Kind::kTuple:
      return equal_items(a.items(), b.items(), meter);
    case Kind::kDict:
      return equal_pairs(a, b, meter);
    case Kind::kRange: {
      const RangeObject &x = a.as<RangeObject>(), &y = b.as<RangeObject>();
      return x.size == y.size && (x.size == 0 || (x.start == y.start && (x.size == 1 || x.step == y.step)));
    }
    case Kind::kFunction:
      return a.pointer() == b.pointer() && a.integer() == b.integer();
    case Kind::kView:
    case Kind::kMethod:
      refuse("comparing two values of the type ", type_name(a), " is not supported");
    default:
      return a.pointer() == b.pointer();
  }
}

bool in_order(Order order, const Value& a, const Value& b, Meter& meter) {
  meter.step();
  if (a.is_number() && b.is_number()) {
    const auto sign = compare_numbers(a, b);
    return sign && holds(order, *sign);
  }
  if (a.kind() == b.kind()) {
    // Bytes of UTF-8 are in the order of code points.
    if (a.is(Kind::kString)) return holds(order, a.text().bytes().compare(b.text().bytes()));
    if (a.is(Kind::kList) || a.is(Kind::kTuple)) return sequence_in_order(order, a, b, meter);
    if (a.is(Kind::kView)) refuse("comparing two values of the type ", type_name(a), " is not supported");
  }
  if (a.is(Kind::kUndefined)) trouble(a.why());
  if (b.is(Kind::kUndefined)) trouble(b.why());
  trouble("values of the types ", type_name(a), " and ", type_name(b), " have no order");
}

bool contains(const Value& container, const Value& item, Meter& meter) {
  switch (container.kind()) {
    case Kind::kString:
      if (!item.is(Kind::kString)) trouble("'in' on a string needs a string on its left, not ", type_name(item));
      meter.step((container.text().size() + item.text().size()) / 32);
      return find_text(container.text().view(), item.text().view()) != std::string::npos;
    case Kind::kDict:
      return find_key(container.pairs(), item, meter) != nullptr;
    case Kind::kUndefined:
      return false;
    case Kind::kView: {
      const ViewObject& view = container.as<ViewObject>();
      if (view.what == ViewObject::What::kKeys) return contains(view.dict, item, meter);
      break;
    }
    case Kind::kRange:
      if (item.is_number()) break;
      return false;
    case Kind::kIterator: {
      // As Python does it: what comes before the item is gone.
      auto& object = container.as<ListObject>();
      while (object.next < object.items.size()) {
        if (equal(object.items[object.next++], item, meter)) return true;
      }
      return false;
    }
    case Kind::kList:
    case Kind::kTuple:
      break;
    default:
      trouble("'in' needs a string, list or dict on its right, not ", type_name(container));
  }
  const std::vector<Value> items = iterate(container, meter);
  return std::any_of(items.begin(), items.end(), [&](const Value& v) { return equal(v, item, meter); });
}

size_t length(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return 0;
    case Kind::kString:
      return count_chars(value.text().view());
    case Kind::kList:
    case Kind::kTuple:
      return value.items().size();
    case Kind::kDict:
      return value.pairs().size();
    case Kind::kRange:
      return value.as<RangeObject>().size;
    case Kind::kView:
      return value.as<ViewObject>().dict.pairs().size();
    case Kind::kLoop:
      refuse("the length of loop is not supported, use loop.length");
    default:
      trouble("a value of the type ", type_name(value), " has no length");
  }
}

std::vector<Value> iterate(const Value& value, Meter& meter) {
  std::vector<Value> out;
  switch (value.kind()) {
    case Kind::kUndefined:
      return out;
    case Kind::kString: {
      const Text& text = value.text();
      meter.bytes(text.size() * (sizeof(Value) + sizeof(TextObject)));
      for (size_t at = 0; at < text.size();) {
        const size_t next = at + char_at(text.view(), at).bytes;
        out.push_back(Value::string(text.slice(at, next)));
        at = next;
      }
      return out;
    }
    case Kind::kList:
    case Kind::kTuple:
      meter.bytes(value.items().size() * sizeof(Value));
      return value.items();
    case Kind::kIterator: {
      auto& object = value.as<ListObject>();
      meter.bytes((object.items.size() - object.next) * sizeof(Value));
      out.assign(object.items.begin() + static_cast<ptrdiff_t>(object.next), object.items.end());
      object.next = object.items.size();
      return out;
    }
    case Kind::kDict:
      meter.bytes(value.pairs().size() * sizeof(Value));
      for (const auto& pair : value.pairs()) out.push_back(pair.first);
      return out;
    case Kind::kRange: {
      const RangeObject& range = value.as<RangeObject>();
      meter.bytes(range.size * sizeof(Value));
      for (size_t i = 0; i < range.size; ++i) out.push_back(Value::integer(range.at(i)));
      return out;
    }
    case Kind::kView: {
      const ViewObject& view = value.as<ViewObject>();
      meter.bytes(view.dict.pairs().size() * 2 * sizeof(Value));
      for (const auto& [key, item] : view.dict.pairs()) {
        out.push_back(view.what == ViewObject::What::kKeys     ? key
                      : view.what == ViewObject::What::kValues ? item
                                                               : Value::tuple({key, item}));
      }
      return out;
    }
    case Kind::kLoop:
    case Kind::kCycler:
      refuse("iterating over ", type_name(value), " is not supported");
    default:
      trouble("a value of the type ", type_name(value), " cannot be iterated over");
  }
}

namespace {

// Python hashes a key before it compares: lists and dicts cannot be one.
void check_key(const Value& key) {
  if (key.is(Kind::kList) || key.is(Kind::kDict)) trouble("a value of the type ", type_name(key), " cannot be a key");
  if (key.is(Kind::kTuple)) {
    for (const Value& item : key.items()) check_key(item);
  }
}

}  // namespace

const Value* find_key(const std::vector<std::pair<Value, Value>>& pairs, const Value& key, Meter& meter) {
  check_key(key);
  for (const auto& pair : pairs) {
    if (equal(pair.first, key, meter)) return &pair.second;
  }
  return nullptr;
}

const Value* find_key(const std::vector<std::pair<Value, Value>>& pairs, std::string_view key) {
  for (const auto& pair : pairs) {
    if (pair.first.is(Kind::kString) && pair.first.text().view() == key) return &pair.second;
  }
  return nullptr;
}

void set_key(std::vector<std::pair<Value, Value>>& pairs, Value key, Value value, Meter& meter) {
  check_key(key);
  for (auto& pair : pairs) {
    if (!equal(pair.first, key, meter)) continue;
    pair.second = std::move(value);
    return;
  }
  meter.bytes(sizeof(pairs[0]));
  pairs.emplace_back(std::move(key), std::move(value));
}

}  // namespace kpd::text::jinja
