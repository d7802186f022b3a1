// text: expressions of chat templates, evaluated.
#include <algorithm>

#include "kpd/base/error.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_nesting.h"

namespace kpd::text::jinja {

Value Interpreter::eval(const Expr& e, const ScopePtr& scope) {
  const Deeper deeper(*this);
  meter_.step();
  place_ = e.place;
  return eval_node(e, scope);
}

Value Interpreter::eval_node(const Expr& e, const ScopePtr& scope) {
  const auto item = [&](size_t i) { return eval(*e.items[i], scope); };
  const auto back = [&] { place_ = e.place; };  // after the operands
  switch (e.kind) {
    case ExprKind::kConst:
      return e.value;
    case ExprKind::kName:
      return eval_name(e, scope);
    case ExprKind::kList:
      return Value::list(eval_all(e.items, 0, scope));
    case ExprKind::kTuple:
      return Value::tuple(eval_all(e.items, 0, scope));
    case ExprKind::kDict:
      return eval_dict(e, scope);
    case ExprKind::kAttribute: {
      const Value object = item(0);
      back();
      return get_attribute(object, e.attribute, meter_);
    }
    case ExprKind::kItem: {
      const Value object = item(0), key = item(1);
      back();
      return get_item(object, key, meter_);
    }
    case ExprKind::kSlice:
      return eval_slice(e, scope);
    case ExprKind::kCall: {
      const Value callee = item(0);
      Arguments args = arguments(e, scope);
      back();
      return call(callee, std::move(args));
    }
    case ExprKind::kFilter:
      return eval_filter(e, scope, nullptr);
    case ExprKind::kTest: {
      const Value value = item(0);
      Arguments args = arguments(e, scope);
      back();
      return Value::boolean(call_test(e.attribute, value, std::move(args), meter_));
    }
    case ExprKind::kNegative:
    case ExprKind::kPositive:
    case ExprKind::kNot:
    case ExprKind::kAnd:
    case ExprKind::kOr:
    case ExprKind::kBinary:
      return eval_operation(e, scope);
    case ExprKind::kConcat:
      return eval_concat(e, scope);
    case ExprKind::kCompare:
      return eval_compare(e, scope);
    case ExprKind::kChoice:
      if (truth(item(1))) return item(0);
      if (e.items[2]) return item(2);
      return Value::undefined("the inline if-expression evaluated to false and no else section was defined.");
    case ExprKind::kNamespace:  // a target only
      break;
  }
  return {};
}

// Of an operator whose operands are values.
Value Interpreter::eval_operation(const Expr& e, const ScopePtr& scope) {
  const auto item = [&](size_t i) { return eval(*e.items[i], scope); };
  const auto back = [&] { place_ = e.place; };  // after the operands
  switch (e.kind) {
    case ExprKind::kNegative:
      return negative(item(0));
    case ExprKind::kPositive:
      return positive(item(0));
    case ExprKind::kNot:
      return Value::boolean(!truth(item(0)));
    case ExprKind::kAnd:
    case ExprKind::kOr: {
      Value left = item(0);
      return truth(left) == (e.kind == ExprKind::kOr) ? left : item(1);
    }
    case ExprKind::kBinary: {
      const Value a = item(0), b = item(1);
      back();
      return binary(e.ops[0], a, b, meter_);
    }
    default:
      return {};
  }
}

Value Interpreter::eval_name(const Expr& e, const ScopePtr& scope) {
  Value value = look_up(e.name, scope.get());
  if (!value.missing()) return value;
  const std::string& name = ast_.names[e.name];
  if (name == "self") refuse("'self' is not supported");
  return Value::undefined(str("'", name.substr(0, 80), "' is undefined"));
}

std::vector<Value> Interpreter::eval_all(const std::vector<ExprPtr>& items, size_t from, const ScopePtr& scope) {
  std::vector<Value> out;
  meter_.bytes((items.size() - from) * sizeof(Value));
  for (size_t i = from; i < items.size(); ++i) out.push_back(eval(*items[i], scope));
  return out;
}

Value Interpreter::eval_dict(const Expr& e, const ScopePtr& scope) {
  std::vector<std::pair<Value, Value>> pairs;
  for (size_t i = 0; i + 1 < e.items.size(); i += 2) {
    Value key = eval(*e.items[i], scope);
    Value value = eval(*e.items[i + 1], scope);
    place_ = e.place;
    set_key(pairs, std::move(key), std::move(value), meter_);
  }
  return Value::dict(std::move(pairs));
}

Value Interpreter::eval_slice(const Expr& e, const ScopePtr& scope) {
  Value parts[4];
  for (size_t i = 0; i < 4; ++i) {
    if (e.items[i]) parts[i] = eval(*e.items[i], scope);
  }
  place_ = e.place;
  return get_slice(parts[0], parts[1], parts[2], parts[3], meter_);
}

Value Interpreter::eval_compare(const Expr& e, const ScopePtr& scope) {
  Value left = eval(*e.items[0], scope);
  for (size_t i = 0; i < e.ops.size(); ++i) {
    Value right = eval(*e.items[i + 1], scope);
    place_ = e.place;
    if (!compare(e.ops[i], left, right, meter_)) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Value Interpreter::eval_concat(const Expr& e, const ScopePtr& scope) {
  const std::vector<Value> items = eval_all(e.items, 0, scope);
  place_ = e.place;
  Text out;
  for (const Value& item : items) {
    if (item.is(Kind::kString)) {
      meter_.bytes(item.text().size());
      out.append(item.text());
    } else {
      out.append(to_text(item, meter_));
    }
  }
  return Value::string(std::move(out));
}

Value Interpreter::eval_filter(const Expr& e, const ScopePtr& scope, const Value* block) {
  const Deeper deeper(*this);
  Value value;
  if (e.items[0] && (!block || e.items[0]->kind != ExprKind::kFilter)) {
    value = eval(*e.items[0], scope);
  } else if (e.items[0]) {
    value = eval_filter(*e.items[0], scope, block);  // further down the chain is the block's text
  } else {
    value = *block;
  }
  Arguments args = arguments(e, scope);
  place_ = e.place;
  return call_filter(e.attribute, value, std::move(args), meter_);
}

Arguments Interpreter::arguments(const Expr& e, const ScopePtr& scope) {
  Arguments args;
  args.items = eval_all(e.items, 1, scope);
  for (const Keyword& k : e.keywords) args.keywords.emplace_back(k.name, eval(*k.value, scope));
  if (e.more_items) {
    std::vector<Value> more = iterate(eval(*e.more_items, scope), meter_);
    args.items.insert(args.items.end(), more.begin(), more.end());
  }
  if (!e.more_keywords) return args;
  const Value more = eval(*e.more_keywords, scope);
  place_ = e.place;
  if (!more.is(Kind::kDict)) trouble("** needs a dict, not ", type_name(more));
  for (const auto& [key, value] : more.pairs()) {
    if (!key.is(Kind::kString)) trouble("keywords must be strings");
    for (const auto& given : args.keywords) {
      if (given.first == key.text().bytes()) trouble("the argument '", given.first.substr(0, 40), "' is given twice");
    }
    args.keywords.emplace_back(key.text().bytes(), value);
  }
  return args;
}

}  // namespace kpd::text::jinja
