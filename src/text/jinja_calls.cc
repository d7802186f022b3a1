// text: calls in chat templates: macros, and the functions that every template has.
#include <algorithm>
#include <cstdio>

#include "io/text.h"
#include "kpd/base/error.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_nesting.h"

namespace kpd::text::jinja {
namespace {

constexpr size_t kMaxRange = 100'000;  // the sandbox's
constexpr size_t kMaxRefusal = 400;

constexpr std::pair<std::string_view, Global> kGlobals[] = {
    {"range", Global::kRange},
    {"dict", Global::kDict},
    {"lipsum", Global::kLipsum},
    {"cycler", Global::kCycler},
    {"joiner", Global::kJoiner},
    {"namespace", Global::kNamespace},
    {"raise_exception", Global::kRaiseException},
    {"strftime_now", Global::kStrftimeNow},
};

// Takes a keyword out of the arguments.
std::optional<Value> take(Arguments& args, std::string_view name) {
  const auto found = std::find_if(args.keywords.begin(), args.keywords.end(), [&](const auto& k) { return k.first == name; });
  if (found == args.keywords.end()) return std::nullopt;
  Value value = std::move(found->second);
  args.keywords.erase(found);
  return value;
}

}  // namespace

std::optional<Value> global_function(std::string_view name) {
  for (const auto& [known, id] : kGlobals) {
    if (known == name) return Value::function(static_cast<int64_t>(id));
  }
  return std::nullopt;
}

Value Interpreter::call(const Value& callee, Arguments args) {
  switch (callee.kind()) {
    case Kind::kUndefined:
      trouble(callee.why());
    case Kind::kFunction:
      if (callee.pointer()) return call_macro(callee.as<MacroObject>(), std::move(args));
      return call_global(static_cast<Global>(callee.integer()), std::move(args));
    case Kind::kMethod:
      return call_method(callee.as<MethodObject>(), std::move(args), meter_);
    case Kind::kJoiner: {
      (void)bind("joiner", args, {});
      auto& joiner = callee.as<JoinerObject>();
      return std::exchange(joiner.used, true) ? joiner.separator : Value::string(Text());
    }
    case Kind::kLoop:
      trouble("The loop must have the 'recursive' marker to be called recursively.");
    default:
      trouble("a value of the type ", type_name(callee), " cannot be called");
  }
}

void Interpreter::bind_macro(const Stmt& macro, Arguments& args, Scope& scope) {
  const Signature& sig = macro.signature;
  const size_t n = sig.parameters.size();
  const auto put = [&](std::string_view name, const Value& value) {
    for (auto& [id, place] : scope.variables) {
      if (ast_.names[id] == name) place = value;
    }
  };
  for (const auto& [name, load] : macro.scope.names) {
    if (load == Load::kParameter) scope.variables.emplace_back(name, Value());
  }
  std::vector<Value> extra;
  for (size_t i = 0; i < std::max(n, args.items.size()); ++i) {
    if (i >= n) {
      extra.push_back(std::move(args.items[i]));
    } else if (i < args.items.size()) {
      *scope.own(sig.parameters[i]) = std::move(args.items[i]);
    } else if (auto given = take(args, ast_.names[sig.parameters[i]])) {
      *scope.own(sig.parameters[i]) = std::move(*given);
    }
  }
  if (sig.takes_caller) {
    const auto caller = take(args, "caller");
    put("caller", caller && !caller->is(Kind::kNone) ? *caller : Value::undefined("No caller defined"));
  }
  const std::string name = macro.kind == StmtKind::kMacro ? ast_.names[macro.name] : "caller";
  if (sig.takes_keywords) {
    std::vector<std::pair<Value, Value>> pairs;
    for (auto& [key, value] : args.keywords) pairs.emplace_back(Value::string(key), std::move(value));
    put("kwargs", Value::dict(std::move(pairs)));
  } else if (!args.keywords.empty()) {
    trouble("the macro '", name, "' takes no keyword argument '", args.keywords[0].first.substr(0, 40), "'");
  }
  if (sig.takes_more) {
    put("varargs", Value::tuple(std::move(extra)));
  } else if (!extra.empty()) {
    trouble("the macro '", name, "' takes not more than ", n, " arguments");
  }
}

Value Interpreter::call_macro(const MacroObject& object, Arguments args) {
  const Deeper deeper(*this);
  const Stmt& macro = *object.macro;
  const Signature& sig = macro.signature;
  const auto scope = std::make_shared<Scope>();
  scope->parent = object.scope;
  bind_macro(macro, args, *scope);
  fill(*scope, macro.scope);
  const size_t n = sig.parameters.size(), first_default = n - sig.defaults.size();
  for (size_t i = 0; i < n; ++i) {
    if (!scope->own(sig.parameters[i])->missing()) continue;
    Value value = i >= first_default
                      ? eval(*sig.defaults[i - first_default], scope)
                      : Value::undefined(str("parameter '", ast_.names[sig.parameters[i]].substr(0, 40), "' was not provided"));
    *scope->own(sig.parameters[i]) = std::move(value);
  }
  Capture capture(*this);
  exec(macro.bodies[0], scope);
  return Value::string(std::move(capture.text));
}

Value Interpreter::make_range(const Arguments& args) {
  if (!args.keywords.empty()) trouble("range takes no keyword arguments");
  if (args.items.empty() || args.items.size() > 3) trouble("range takes one to three arguments, not ", args.items.size());
  std::vector<int64_t> bounds;
  for (const Value& v : args.items) bounds.push_back(whole("range", v));
  auto range = std::make_shared<RangeObject>();
  range->start = bounds.size() > 1 ? bounds[0] : 0;
  range->stop = bounds.size() > 1 ? bounds[1] : bounds[0];
  range->step = bounds.size() > 2 ? bounds[2] : 1;
  if (range->step == 0) trouble("range() arg 3 must not be zero");
  const bool up = range->step > 0;
  if (up ? range->start < range->stop : range->start > range->stop) {
    const auto from = static_cast<uint64_t>(range->start), to = static_cast<uint64_t>(range->stop);
    const uint64_t apart = up ? to - from : from - to;
    const uint64_t stride = up ? static_cast<uint64_t>(range->step) : 0 - static_cast<uint64_t>(range->step);
    const uint64_t n = (apart - 1) / stride + 1;
    if (n > kMaxRange) trouble("a range of more than ", kMaxRange, " items");
    range->size = static_cast<size_t>(n);
  }
  return Value::object(Kind::kRange, std::move(range));
}

Value Interpreter::make_dict(Arguments& args) {
  std::vector<std::pair<Value, Value>> pairs;
  if (args.items.size() > 1) trouble("dict takes at most one argument, not ", args.items.size());
  if (!args.items.empty() && args.items[0].is(Kind::kDict)) {
    pairs = args.items[0].pairs();
    meter_.bytes(pairs.size() * 2 * sizeof(Value));
  } else if (!args.items.empty()) {
    if (args.items[0].is(Kind::kNamespace)) refuse("a dict of a namespace is not supported");
    for (const Value& item : iterate(args.items[0], meter_)) {
      std::vector<Value> pair = iterate(item, meter_);
      if (pair.size() != 2) trouble("dict needs pairs");
      set_key(pairs, std::move(pair[0]), std::move(pair[1]), meter_);
    }
  }
  for (auto& [name, value] : args.keywords) set_key(pairs, Value::string(name), std::move(value), meter_);
  return Value::dict(std::move(pairs));
}

Value Interpreter::make_namespace(Arguments& args) {
  const Value dict = make_dict(args);
  for (const auto& pair : dict.pairs()) {
    if (pair.first.is(Kind::kString) && pair.first.text().view().starts_with('_'))
      trouble("names on a namespace cannot begin with an underscore");
  }
  auto space = std::make_shared<NamespaceObject>();
  space->items = dict.pairs();
  space->depth = dict.depth();
  meter_.bytes(sizeof(NamespaceObject));
  kept_.push_back(space);
  return Value::object(Kind::kNamespace, std::move(space));
}

Value Interpreter::call_global(Global global, Arguments args) {
  switch (global) {
    case Global::kRange:
      return make_range(args);
    case Global::kDict:
      return make_dict(args);
    case Global::kLipsum:
      refuse("lipsum is not supported");
    case Global::kCycler: {
      if (!args.keywords.empty()) trouble("cycler takes no keyword arguments");
      if (args.items.empty()) trouble("at least one item has to be provided");
      auto cycler = std::make_shared<CyclerObject>();
      cycler->items = std::move(args.items);
      return Value::object(Kind::kCycler, std::move(cycler));
    }
    case Global::kJoiner: {
      const std::vector<Value> a = bind("joiner", args, {"sep"});
      auto joiner = std::make_shared<JoinerObject>();
      joiner->separator = a[0].missing() ? Value::string(", ") : a[0];
      return Value::object(Kind::kJoiner, std::move(joiner));
    }
    case Global::kNamespace:
      return make_namespace(args);
    case Global::kRaiseException: {
      const std::vector<Value> a = bind("raise_exception", args, {"message"});
      if (a[0].missing()) trouble("raise_exception needs a message");
      fail(ErrorCode::kInvalidArgument,
           "the chat template rejected these messages: ", io::printable(to_text(a[0], meter_).view(), kMaxRefusal));
    }
    case Global::kStrftimeNow: {
      const std::vector<Value> a = bind("strftime_now", args, {"format"});
      return Value::string(strftime(text_of("strftime_now", a[0]).view(), environment_.now));
    }
  }
  return {};
}

Text render(const Ast& ast, const Variables& variables, const Environment& environment) {
  Interpreter interpreter(ast, variables, environment);
  try {
    return interpreter.run();
  } catch (const Trouble& t) {
    fail(t.code, at_place(interpreter.place()), io::printable(t.text, kMaxRefusal));
  }
}

}  // namespace kpd::text::jinja
