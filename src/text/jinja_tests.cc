// text: the tests of chat templates (x is defined).
#include <algorithm>

#include "text/jinja_runtime.h"

namespace kpd::text::jinja {
namespace {

struct TestCall {
  const std::string& name;
  const Value& self;
  Arguments& args;
  Meter& meter;

  void alone() const { (void)bind(name, args, {}); }
  Value other() const {
    const std::vector<Value> a = bind(name, args, {" other"});
    if (a[0].missing()) trouble("the test '", name, "' needs an argument");
    return a[0];
  }
};

using Test = bool (*)(const TestCall&);

template <Op op>
bool test_compare(const TestCall& call) {
  return compare(op, call.self, call.other(), call.meter);
}

template <Kind... kinds>
bool test_kind(const TestCall& call) {
  call.alone();
  return (call.self.is(kinds) || ...);
}

bool rest_is(const TestCall& call, const Value& divisor, int64_t rest) {
  return equal(binary(Op::kModulo, call.self, divisor, call.meter), Value::integer(rest), call.meter);
}

bool test_iterable(const TestCall& call) {
  call.alone();
  switch (call.self.kind()) {
    case Kind::kUndefined:
    case Kind::kString:
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDict:
    case Kind::kRange:
    case Kind::kIterator:
    case Kind::kView:
    case Kind::kLoop:
      return true;
    default:
      return false;
  }
}

bool test_sameas(const TestCall& call) {
  const Value &a = call.self, b = call.other();
  if (a.kind() != b.kind()) return false;
  if (a.is(Kind::kNone)) return true;
  if (a.is(Kind::kBool)) return a.boolean() == b.boolean();
  if (a.pointer() && a.pointer() == b.pointer()) return true;
  // Equal numbers and texts are one object in Python at times.
  refuse("the test 'sameas' of two values of the type ", type_name(a), " is not supported");
}

bool test_case(const TestCall& call, const char* method) {
  call.alone();
  Arguments none;
  return call_text_method(to_text(call.self, call.meter), method, none, call.meter).boolean();
}

bool test_name(const TestCall& call, bool (*known)(std::string_view)) {
  call.alone();
  if (call.self.is(Kind::kList) || call.self.is(Kind::kDict))
    trouble("a value of the type ", type_name(call.self), " is no name");
  return call.self.is(Kind::kString) && known(call.self.text().view());
}

struct TestRow {
  std::string_view name;
  Test test;
};
constexpr TestRow kTests[] = {
    {"boolean", test_kind<Kind::kBool>},
    {"callable", test_kind<Kind::kFunction, Kind::kMethod, Kind::kJoiner, Kind::kLoop, Kind::kUndefined>},
    {"defined",
     [](const TestCall& c) {
       c.alone();
       return !c.self.is(Kind::kUndefined);
     }},
    {"divisibleby", [](const TestCall& c) { return rest_is(c, c.other(), 0); }},
    {"escaped",
     [](const TestCall& c) {
       c.alone();
       return c.self.markup();
     }},
    {"even",
     [](const TestCall& c) {
       c.alone();
       return rest_is(c, Value::integer(2), 0);
     }},
    {"false",
     [](const TestCall& c) {
       c.alone();
       return c.self.is(Kind::kBool) && !c.self.boolean();
     }},
    {"filter", [](const TestCall& c) { return test_name(c, is_filter_name); }},
    {"float", test_kind<Kind::kFloat>},
    {"in", test_compare<Op::kIn>},
    {"integer", test_kind<Kind::kInt>},
    {"iterable", test_iterable},
    {"lower", [](const TestCall& c) { return test_case(c, "islower"); }},
    {"mapping", test_kind<Kind::kDict>},
    {"none", test_kind<Kind::kNone>},
    {"number", test_kind<Kind::kBool, Kind::kInt, Kind::kFloat>},
    {"odd",
     [](const TestCall& c) {
       c.alone();
       return rest_is(c, Value::integer(2), 1);
     }},
    {"sameas", test_sameas},
    {"sequence", test_kind<Kind::kString, Kind::kList, Kind::kTuple, Kind::kDict, Kind::kRange, Kind::kUndefined>},
    {"string", test_kind<Kind::kString>},
    {"test", [](const TestCall& c) { return test_name(c, is_test_name); }},
    {"true",
     [](const TestCall& c) {
       c.alone();
       return c.self.is(Kind::kBool) && c.self.boolean();
     }},
    {"undefined", test_kind<Kind::kUndefined>},
    {"upper", [](const TestCall& c) { return test_case(c, "isupper"); }},
    {"==", test_compare<Op::kEqual>},
    {"eq", test_compare<Op::kEqual>},
    {"equalto", test_compare<Op::kEqual>},
    {"!=", test_compare<Op::kNotEqual>},
    {"ne", test_compare<Op::kNotEqual>},
    {">", test_compare<Op::kGreater>},
    {"gt", test_compare<Op::kGreater>},
    {"greaterthan", test_compare<Op::kGreater>},
    {">=", test_compare<Op::kGreaterEqual>},
    {"ge", test_compare<Op::kGreaterEqual>},
    {"<", test_compare<Op::kLess>},
    {"lt", test_compare<Op::kLess>},
    {"lessthan", test_compare<Op::kLess>},
    {"<=", test_compare<Op::kLessEqual>},
    {"le", test_compare<Op::kLessEqual>},
};

const TestRow* find_test(std::string_view name) {
  const auto* row = std::find_if(std::begin(kTests), std::end(kTests), [&](const TestRow& r) { return r.name == name; });
  return row == std::end(kTests) ? nullptr : row;
}

}  // namespace

bool is_test_name(std::string_view name) { return find_test(name) != nullptr; }

bool call_test(const std::string& name, const Value& self, Arguments args, Meter& meter) {
  meter.step();
  const TestRow* row = find_test(name);
  if (!row) trouble("no test named '", name.substr(0, 40), "'");
  return row->test(TestCall{name, self, args, meter});
}

}  // namespace kpd::text::jinja
