// text: arithmetic and comparisons of chat templates, and the arguments of calls.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "text/jinja_runtime.h"

namespace kpd::text::jinja {
namespace {

constexpr std::string_view sign_of(Op op) {
  switch (op) {
    case Op::kAdd:
      return "+";
    case Op::kSubtract:
      return "-";
    case Op::kMultiply:
      return "*";
    case Op::kDivide:
      return "/";
    case Op::kFloorDivide:
      return "//";
    case Op::kModulo:
      return "%";
    default:
      return "**";
  }
}

[[noreturn]] void too_large() { refuse("an integer beyond 64 bits"); }

int64_t integer_power(int64_t base, int64_t exponent) {
  int64_t out = 1;
  for (;;) {
    if ((exponent & 1) && __builtin_mul_overflow(out, base, &out)) too_large();
    exponent >>= 1;
    if (exponent == 0) return out;
    if (__builtin_mul_overflow(base, base, &base)) too_large();
  }
}

Value real_result(double value) {
  if (std::isinf(value)) trouble("a number beyond what a double holds");
  return Value::real(value);
}

Value power(const Value& a, const Value& b) {
  if (a.is_whole() && b.is_whole() && b.integer() >= 0) return Value::integer(integer_power(a.integer(), b.integer()));
  const double x = a.real(), y = b.real();
  if (x == 0 && y < 0) trouble("0 cannot be raised to a negative power");
  if (x < 0 && std::isfinite(y) && y != std::floor(y)) refuse("complex numbers are not supported");
  const double out = std::pow(x, y);
  return std::isinf(x) || std::isinf(y) ? Value::real(out) : real_result(out);
}

Value integer_arithmetic(Op op, int64_t a, int64_t b) {
  int64_t out = 0;
  switch (op) {
    case Op::kAdd:
      if (__builtin_add_overflow(a, b, &out)) too_large();
      return Value::integer(out);
    case Op::kSubtract:
      if (__builtin_sub_overflow(a, b, &out)) too_large();
      return Value::integer(out);
    case Op::kMultiply:
      if (__builtin_mul_overflow(a, b, &out)) too_large();
      return Value::integer(out);
    default:
      break;
  }
  if (b == 0) trouble("division by zero");
  if (op == Op::kDivide) {
    constexpr int64_t kExact = int64_t{1} << 53;  // Python rounds once, from the exact quotient
    if (a > kExact || a < -kExact || b > kExact || b < -kExact) refuse("the quotient of integers beyond 53 bits");
    return Value::real(static_cast<double>(a) / static_cast<double>(b));
  }
  if (b == -1) {
    if (op == Op::kModulo) return Value::integer(0);
    if (__builtin_sub_overflow(int64_t{0}, a, &out)) too_large();
    return Value::integer(out);
  }
  const int64_t quotient = a / b, rest = a % b;
  const bool down = rest != 0 && (rest < 0) != (b < 0);  // Python rounds towards minus infinity
  return Value::integer(op == Op::kFloorDivide ? quotient - down : rest + (down ? b : 0));
}

Value real_arithmetic(Op op, double a, double b) {
  switch (op) {
    case Op::kAdd:
      return Value::real(a + b);
    case Op::kSubtract:
      return Value::real(a - b);
    case Op::kMultiply:
      return Value::real(a * b);
    default:
      break;
  }
  if (b == 0) trouble("division by zero");
  if (op == Op::kDivide) return Value::real(a / b);
  double rest = std::fmod(a, b), quotient = (a - rest) / b;
  if (rest != 0) {
    if ((b < 0) != (rest < 0)) {
      rest += b;
      quotient -= 1;
    }
  } else {
    rest = std::copysign(0.0, b);
  }
  if (op == Op::kModulo) return Value::real(rest);
  if (quotient == 0) return Value::real(std::copysign(0.0, a / b));
  const double floor = std::floor(quotient);
  return Value::real(quotient - floor > 0.5 ? floor + 1 : floor);
}

Value repeat(const Value& sequence, int64_t times, Meter& meter) {
  if (sequence.markup()) refuse("a string marked as safe can only be written out");
  const auto n = static_cast<size_t>(std::max<int64_t>(times, 0));
  const bool is_text = sequence.is(Kind::kString);
  const size_t unit = is_text ? sequence.text().size() : sequence.items().size() * sizeof(Value);
  if (unit > 0 && n > (size_t{1} << 48) / unit) meter.bytes(~size_t{0});
  meter.bytes(unit * n);
  if (unit > 0) meter.step(n);
  Text text;
  std::vector<Value> items;
  for (size_t i = 0; unit > 0 && i < n; ++i) {
    if (is_text) {
      text.append(sequence.text());
    } else {
      items.insert(items.end(), sequence.items().begin(), sequence.items().end());
    }
  }
  if (is_text) return Value::string(std::move(text));
  return sequence.is(Kind::kList) ? Value::list(std::move(items)) : Value::tuple(std::move(items));
}

bool repeats(const Value& v) { return v.is(Kind::kString) || v.is(Kind::kList) || v.is(Kind::kTuple); }

Value joined(const Value& a, const Value& b, Meter& meter) {
  if (a.is(Kind::kString)) {
    if (a.markup() || b.markup()) refuse("a string marked as safe can only be written out");
    meter.bytes(a.text().size() + b.text().size());
    Text text = a.text();
    text.append(b.text());
    return Value::string(std::move(text));
  }
  meter.bytes((a.items().size() + b.items().size()) * sizeof(Value));
  std::vector<Value> items = a.items();
  items.insert(items.end(), b.items().begin(), b.items().end());
  return a.is(Kind::kList) ? Value::list(std::move(items)) : Value::tuple(std::move(items));
}

}  // namespace

Value binary(Op op, const Value& a, const Value& b, Meter& meter) {
  meter.step();
  if (op == Op::kModulo && a.is(Kind::kString)) {
    if (a.markup()) refuse("a string marked as safe can only be written out");
    return Value::string(format_percent(a.text(), b, meter));
  }
  if (a.is(Kind::kUndefined)) trouble(a.why());
  if (b.is(Kind::kUndefined)) trouble(b.why());
  if (a.is_number() && b.is_number()) {
    if (op == Op::kPower) return power(a, b);
    if (a.is_whole() && b.is_whole()) return integer_arithmetic(op, a.integer(), b.integer());
    return real_arithmetic(op, a.real(), b.real());
  }
  if (op == Op::kAdd && a.kind() == b.kind() && repeats(a)) return joined(a, b, meter);
  if (op == Op::kMultiply && repeats(a) && b.is_whole()) return repeat(a, b.integer(), meter);
  if (op == Op::kMultiply && repeats(b) && a.is_whole()) return repeat(b, a.integer(), meter);
  if (a.is(Kind::kView) || b.is(Kind::kView) || (a.is(Kind::kDict) && b.is(Kind::kDict)))
    trouble("'", sign_of(op), "' of the types ", type_name(a), " and ", type_name(b));
  trouble("'", sign_of(op), "' cannot take the types ", type_name(a), " and ", type_name(b));
}

bool compare(Op op, const Value& a, const Value& b, Meter& meter) {
  switch (op) {
    case Op::kEqual:
      return equal(a, b, meter);
    case Op::kNotEqual:
      return !equal(a, b, meter);
    case Op::kIn:
      return contains(b, a, meter);
    case Op::kNotIn:
      return !contains(b, a, meter);
    case Op::kLess:
      return in_order(Order::kLess, a, b, meter);
    case Op::kLessEqual:
      return in_order(Order::kLessEqual, a, b, meter);
    case Op::kGreater:
      return in_order(Order::kGreater, a, b, meter);
    default:
      return in_order(Order::kGreaterEqual, a, b, meter);
  }
}

Value negative(const Value& value) {
  if (value.is(Kind::kUndefined)) trouble(value.why());
  if (value.is(Kind::kFloat)) return Value::real(-value.real());
  if (!value.is_whole()) trouble("'-' cannot take the type ", type_name(value));
  int64_t out = 0;
  if (__builtin_sub_overflow(int64_t{0}, value.integer(), &out)) too_large();
  return Value::integer(out);
}

Value positive(const Value& value) {
  if (value.is(Kind::kUndefined)) trouble(value.why());
  if (value.is(Kind::kFloat)) return value;
  if (!value.is_whole()) trouble("'+' cannot take the type ", type_name(value));
  return Value::integer(value.integer());
}

std::vector<Value> bind(std::string_view what, Arguments& args, std::initializer_list<std::string_view> parameters) {
  if (args.items.size() > parameters.size())
    trouble(what, " takes at most ", parameters.size(), " arguments, not ", args.items.size());
  std::vector<Value> out = std::move(args.items);
  out.resize(parameters.size());
  for (auto& [name, value] : args.keywords) {
    const auto* found = std::find(parameters.begin(), parameters.end(), name);
    if (found == parameters.end()) trouble(what, " takes no argument '", name.substr(0, 40), "'");
    Value& place = out[static_cast<size_t>(found - parameters.begin())];
    if (!place.missing()) trouble(what, " got the argument '", name.substr(0, 40), "' twice");
    place = std::move(value);
  }
  return out;
}

int64_t whole(std::string_view what, const Value& value) {
  if (value.is(Kind::kUndefined)) trouble(value.why());
  if (!value.is_whole()) trouble(what, " needs an integer, not ", value.missing() ? "nothing" : type_name(value));
  return value.integer();
}

int64_t whole_or(std::string_view what, const Value& value, int64_t missing) {
  return value.missing() ? missing : whole(what, value);
}

const Text& text_of(std::string_view what, const Value& value) {
  if (!value.is(Kind::kString)) trouble(what, " needs a string, not ", value.missing() ? "nothing" : type_name(value));
  if (value.markup()) refuse("a string marked as safe can only be written out");
  return value.text();
}

std::vector<Value> sorted(std::vector<Value> items, std::vector<Value> keys, bool reverse, Meter& meter) {
  std::vector<size_t> order(items.size());
  std::iota(order.begin(), order.end(), size_t{0});
  meter.bytes(items.size() * (2 * sizeof(Value) + 2 * sizeof(size_t)));
  // Python compares by `<` only, and keeps the order of equals when reversed too.
  const auto before = [&](size_t a, size_t b) {
    return reverse ? in_order(Order::kLess, keys[b], keys[a], meter) : in_order(Order::kLess, keys[a], keys[b], meter);
  };
  std::stable_sort(order.begin(), order.end(), before);
  std::vector<Value> out;
  for (const size_t i : order) out.push_back(std::move(items[i]));
  return out;
}

}  // namespace kpd::text::jinja
