// text: statements of chat templates, run.
#include <algorithm>

#include "kpd/base/error.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_nesting.h"

namespace kpd::text::jinja {
namespace {

// A for loop under way; `loop` in its body.
class ForLoop : public LoopObject {
 public:
  ForLoop(Interpreter& interpreter, const Stmt& stmt, Value iterable, ScopePtr test_scope)
      : interpreter_(interpreter), stmt_(stmt), iterable_(std::move(iterable)), test_scope_(std::move(test_scope)) {
    // A generator is read as the loop goes on: what is left after a break can be read later.
    if (!iterable_.is(Kind::kIterator) && !iterable_.is(Kind::kRange)) items_ = iterate(iterable_, interpreter.meter());
  }

  bool next(Value& item) {
    auto found = after_ ? std::exchange(after_, std::nullopt) : pull();
    if (!found) return false;
    item = std::move(*found);
    ++index_;
    before_ = std::move(current_);
    current_ = item;
    return true;
  }

  Value attribute(const std::string& name, Meter&) override {
    if (name == "index") return Value::integer(index_ + 1);
    if (name == "index0") return Value::integer(index_);
    if (name == "first") return Value::boolean(index_ == 0);
    if (name == "last") return Value::boolean(!peek());
    if (name == "length") return Value::integer(length());
    if (name == "revindex") return Value::integer(length() - index_);
    if (name == "revindex0") return Value::integer(length() - index_ - 1);
    if (name == "depth") return Value::integer(1);
    if (name == "depth0") return Value::integer(0);
    if (name == "previtem") return index_ == 0 ? Value::undefined("there is no previous item") : before_;
    const std::optional<Value>& after = peek();
    return after ? *after : Value::undefined("there is no next item");
  }

  Value call(const std::string& method, Arguments args, Meter& meter) override {
    if (!args.keywords.empty()) trouble(method, " takes no keyword arguments");
    if (method == "cycle") {
      if (args.items.empty()) trouble("no items for cycling given");
      return args.items[static_cast<size_t>(index_) % args.items.size()];
    }
    meter.bytes(args.items.size() * sizeof(Value));
    const Value now = Value::tuple(std::move(args.items));
    const bool changed = !seen_ || !equal(*seen_, now, meter);
    if (changed) seen_ = now;
    return Value::boolean(changed);
  }

  void release() override {
    iterable_ = before_ = current_ = Value();
    items_.clear();
    after_.reset();
    seen_.reset();
    test_scope_.reset();
  }

 private:
  std::optional<Value> raw() {
    if (read_ahead_ < ahead_.size()) return ahead_[read_ahead_++];
    if (iterable_.is(Kind::kIterator)) {
      auto& source = iterable_.as<ListObject>();
      return source.next < source.items.size() ? std::optional(source.items[source.next++]) : std::nullopt;
    }
    if (iterable_.is(Kind::kRange)) {
      const auto& range = iterable_.as<RangeObject>();
      return at_ < range.size ? std::optional(Value::integer(range.at(at_++))) : std::nullopt;
    }
    return at_ < items_.size() ? std::optional(items_[at_++]) : std::nullopt;
  }

  // The next item that passes the loop's condition, which is asked only now: it may see what the rounds before did.
  std::optional<Value> pull() {
    if (!stmt_.test || read_ahead_ < ahead_.size() || all_ahead_) return raw();
    while (auto item = raw()) {
      interpreter_.assign(*stmt_.target, *item, test_scope_);
      if (truth(interpreter_.eval(*stmt_.test, test_scope_))) return item;
    }
    return std::nullopt;
  }

  const std::optional<Value>& peek() {
    if (!after_) after_ = pull();
    return after_;
  }

  int64_t length() {
    if (length_ < 0) {
      if (!stmt_.test && !iterable_.is(Kind::kIterator)) {
        length_ = static_cast<int64_t>(jinja::length(iterable_));
      } else {
        std::vector<Value> rest;
        while (auto item = pull()) rest.push_back(std::move(*item));
        length_ = static_cast<int64_t>(rest.size()) + index_ + 1 + (after_ ? 1 : 0);
        ahead_ = std::move(rest);
        read_ahead_ = 0;
        all_ahead_ = true;
      }
    }
    return length_;
  }

  Interpreter& interpreter_;
  const Stmt& stmt_;
  Value iterable_;
  ScopePtr test_scope_;
  std::vector<Value> items_, ahead_;  // ahead: what loop.length had to read
  size_t at_ = 0, read_ahead_ = 0;
  bool all_ahead_ = false;
  int64_t index_ = -1, length_ = -1;
  Value before_, current_;
  std::optional<Value> after_, seen_;
};

}  // namespace

Interpreter::Capture::Capture(Interpreter& interpreter) : interpreter_(interpreter), outer_(interpreter.out_) {
  interpreter.out_ = &text;
}
Interpreter::Capture::~Capture() { interpreter_.out_ = outer_; }

Interpreter::Interpreter(const Ast& ast, const Variables& variables, const Environment& environment)
    : ast_(ast), environment_(environment), meter_(environment.max_steps, environment.max_bytes) {
  context_.resize(ast.names.size());
  for (size_t i = 0; i < ast.names.size(); ++i) {
    if (const auto function = global_function(ast.names[i])) context_[i] = *function;
    for (const auto& [name, value] : variables) {
      if (name == ast.names[i]) context_[i] = value;
    }
  }
}

Interpreter::~Interpreter() {
  for (const auto& object : kept_) object->release();
}

Text Interpreter::run() {
  Text text;
  out_ = &text;
  const ScopePtr scope = enter(ast_.scope, nullptr);
  scope->top = true;
  kept_.push_back(scope);
  exec(ast_.body, scope);
  return text;
}

void Interpreter::fill(Scope& scope, const ScopeTable& table) {
  for (const auto& [name, load] : table.names) {
    if (load == Load::kParameter) {
      if (!scope.own(name)) scope.variables.emplace_back(name, Value());
    } else {
      scope.variables.emplace_back(name, load == Load::kResolve ? context_[name]
                                         : load == Load::kAlias ? look_up(name, scope.parent.get())
                                                                : Value());
    }
  }
}

ScopePtr Interpreter::enter(const ScopeTable& table, const ScopePtr& parent) {
  auto scope = std::make_shared<Scope>();
  scope->parent = parent;
  fill(*scope, table);
  return scope;
}

Value Interpreter::look_up(NameId name, Scope* scope) const {
  for (; scope; scope = scope->parent.get()) {
    if (const Value* found = scope->own(name)) return *found;
  }
  return context_[name];
}

void Interpreter::write(const Value& value) {
  if (value.is(Kind::kString)) {
    meter_.bytes(value.text().size());
    out_->append(value.text());
  } else {
    out_->append(to_text(value, meter_));
  }
}

Interpreter::Flow Interpreter::exec(const Body& body, const ScopePtr& scope) {
  for (const StmtPtr& s : body) {
    const Flow flow = exec(*s, scope);
    if (flow != Flow::kOn) return flow;
  }
  return Flow::kOn;
}

Interpreter::Flow Interpreter::exec(const Stmt& s, const ScopePtr& scope) {
  const Deeper deeper(*this);
  place_ = s.place;
  meter_.step();
  switch (s.kind) {
    case StmtKind::kData:
      meter_.bytes(s.data.size());
      out_->append(s.data);
      return Flow::kOn;
    case StmtKind::kOutput:
      for (const ExprPtr& e : s.exprs) {
        const Value value = eval(*e, scope);
        place_ = e->place;
        write(value);
      }
      return Flow::kOn;
    case StmtKind::kIf:
      return exec_if(s, scope);
    case StmtKind::kFor:
      return exec_for(s, scope);
    case StmtKind::kSet: {
      Value value = eval(*s.exprs[0], scope);
      place_ = s.place;
      assign(*s.target, std::move(value), scope);
      return Flow::kOn;
    }
    case StmtKind::kSetBlock:
    case StmtKind::kFilterBlock:
      return exec_captured(s, scope);
    case StmtKind::kMacro:
      exec_macro(s, scope);
      return Flow::kOn;
    case StmtKind::kCallBlock:
      exec_call(s, scope);
      return Flow::kOn;
    case StmtKind::kWith:
      return exec_with(s, scope);
    case StmtKind::kBreak:
      return Flow::kBreak;
    case StmtKind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kOn;
}

Interpreter::Flow Interpreter::exec_if(const Stmt& s, const ScopePtr& scope) {
  for (size_t i = 0; i < s.exprs.size(); ++i) {
    if (truth(eval(*s.exprs[i], scope))) return exec(s.bodies[i], scope);
  }
  return exec(s.bodies.back(), scope);
}

Interpreter::Flow Interpreter::exec_for(const Stmt& s, const ScopePtr& scope) {
  Value iterable = eval(*s.exprs[0], scope);
  place_ = s.place;
  ScopePtr test_scope = s.test ? enter(s.test_scope, scope) : nullptr;
  const auto loop = std::make_shared<ForLoop>(*this, s, std::move(iterable), std::move(test_scope));
  meter_.bytes(sizeof(ForLoop));
  kept_.push_back(loop);
  const Value loop_value = Value::object(Kind::kLoop, loop);
  bool ran = false;
  Value item;
  ScopePtr round;
  while (place_ = s.place, meter_.step(), loop->next(item)) {
    if (!round || round.use_count() > 1) round = std::make_shared<Scope>();
    round->variables.clear();
    round->parent = scope;
    for (const auto& [name, load] : s.scope.names) {
      if (load == Load::kParameter) round->variables.emplace_back(name, ast_.names[name] == "loop" ? loop_value : Value());
    }
    place_ = s.place;
    assign(*s.target, std::move(item), round);
    fill(*round, s.scope);
    const Flow flow = exec(s.bodies[0], round);
    if (flow == Flow::kBreak) break;
    // jinja2 runs the else part unless one round came to its end: after break and continue too.
    ran |= flow == Flow::kOn;
  }
  if (ran || s.bodies[1].empty()) return Flow::kOn;
  return exec(s.bodies[1], enter(s.else_scope, scope));
}

void Interpreter::assign(const Expr& target, Value value, const ScopePtr& scope) {
  if (target.kind == ExprKind::kTuple) {
    std::vector<Value> items = iterate(value, meter_);
    if (items.size() != target.items.size())
      trouble("cannot unpack ", items.size(), " values into ", target.items.size(), " names");
    for (size_t i = 0; i < items.size(); ++i) assign(*target.items[i], std::move(items[i]), scope);
    return;
  }
  if (target.kind == ExprKind::kName) {
    if (scope->top) context_[target.name] = value;
    if (Value* own = scope->own(target.name)) {
      *own = std::move(value);
    } else {
      scope->variables.emplace_back(target.name, std::move(value));
    }
    return;
  }
  const Value space = look_up(target.name, scope.get());
  if (!space.is(Kind::kNamespace)) trouble("cannot assign attribute on non-namespace object");
  if (target.attribute.starts_with('_')) trouble("names on a namespace cannot begin with an underscore");
  auto& object = space.as<NamespaceObject>();
  object.depth = std::max(object.depth, value.depth() + 1);
  if (object.depth > kMaxValueDepth) throw Trouble{ErrorCode::kLimitExceeded, str("lists nested deeper than ", kMaxValueDepth)};
  set_key(object.items, Value::string(target.attribute), std::move(value), meter_);
}

Interpreter::Flow Interpreter::exec_captured(const Stmt& s, const ScopePtr& scope) {
  const ScopePtr inner = enter(s.scope, scope);
  Value text;
  {
    Capture capture(*this);
    const Flow flow = exec(s.bodies[0], inner);
    if (flow != Flow::kOn) return flow;
    text = Value::string(std::move(capture.text));
  }
  if (s.exprs[0]) text = eval_filter(*s.exprs[0], inner, &text);
  place_ = s.place;
  if (s.kind == StmtKind::kSetBlock) {
    assign(*s.target, std::move(text), scope);
  } else {
    write(text);
  }
  return Flow::kOn;
}

Interpreter::Flow Interpreter::exec_with(const Stmt& s, const ScopePtr& scope) {
  const ScopePtr inner = enter(s.scope, scope);
  for (size_t i = 0; i < s.targets.size(); ++i) {
    Value value = eval(*s.exprs[i], scope);
    assign(*s.targets[i], std::move(value), inner);
  }
  return exec(s.bodies[0], inner);
}

void Interpreter::exec_macro(const Stmt& s, const ScopePtr& scope) {
  auto macro = std::make_shared<MacroObject>();
  macro->macro = &s;
  macro->scope = scope;
  meter_.bytes(sizeof(MacroObject) + sizeof(Scope));
  kept_.push_back(scope);
  const Value value = Value::object(Kind::kFunction, std::move(macro));
  if (scope->top) context_[s.name] = value;
  if (Value* own = scope->own(s.name)) *own = value;
}

void Interpreter::exec_call(const Stmt& s, const ScopePtr& scope) {
  auto caller = std::make_shared<MacroObject>();
  caller->macro = &s;
  caller->scope = scope;
  meter_.bytes(sizeof(MacroObject) + sizeof(Scope));
  kept_.push_back(scope);
  if (s.exprs.empty()) return write(call_macro(*caller, {}));
  const Expr& e = *s.exprs[0];
  const Value callee = eval(*e.items[0], scope);
  Arguments args = arguments(e, scope);
  args.keywords.emplace_back("caller", Value::object(Kind::kFunction, std::move(caller)));
  place_ = e.place;
  write(call(callee, std::move(args)));
}

}  // namespace kpd::text::jinja
