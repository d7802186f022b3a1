// text: runs a chat template. Private.
#pragma once

#include <deque>
#include <memory>
#include <optional>

#include "text/jinja_runtime.h"

namespace kpd::text::jinja {

struct Environment {
  ChatTime now;
  size_t max_steps = 10'000'000;
  size_t max_bytes = size_t{64} << 20;
};
using Variables = std::vector<std::pair<std::string, Value>>;

// The template's text. Throws Error: kInvalidArgument (the template's own refusal, or what jinja2 fails at too), kUnsupported,
// kLimitExceeded; all but the template's own words with the place.
Text render(const Ast& ast, const Variables& variables, const Environment& environment);

// A name that templates can use without being given it.
std::optional<Value> global_function(std::string_view name);

struct Scope : Changing {
  std::vector<std::pair<NameId, Value>> variables{};
  std::shared_ptr<Scope> parent{};
  bool top = false;
  void release() override {
    variables.clear();
    parent.reset();
  }
  Value* own(NameId name) {
    for (auto& [id, value] : variables) {
      if (id == name) return &value;
    }
    return nullptr;
  }
};
using ScopePtr = std::shared_ptr<Scope>;

struct MacroObject : Object {
  const Stmt* macro = nullptr;
  ScopePtr scope;
};

enum class Global : int64_t { kRange, kDict, kLipsum, kCycler, kJoiner, kNamespace, kRaiseException, kStrftimeNow };

std::string strftime(std::string_view format, const ChatTime& now);

class Interpreter {
 public:
  Interpreter(const Ast& ast, const Variables& variables, const Environment& environment);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  Text run();
  const Place& place() const { return place_; }

  Meter& meter() { return meter_; }
  // Binds a for loop's target, or one of set.
  void assign(const Expr& target, Value value, const ScopePtr& scope);
  Value eval(const Expr& e, const ScopePtr& scope);

 private:
  enum class Flow : uint8_t { kOn, kBreak, kContinue };

  // Statements (jinja_statements.cc).
  Flow exec(const Body& body, const ScopePtr& scope);
  Flow exec(const Stmt& s, const ScopePtr& scope);
  Flow exec_if(const Stmt& s, const ScopePtr& scope);
  Flow exec_for(const Stmt& s, const ScopePtr& scope);
  Flow exec_captured(const Stmt& s, const ScopePtr& scope);
  Flow exec_with(const Stmt& s, const ScopePtr& scope);
  void exec_macro(const Stmt& s, const ScopePtr& scope);
  void exec_call(const Stmt& s, const ScopePtr& scope);
  void write(const Value& value);
  ScopePtr enter(const ScopeTable& table, const ScopePtr& parent);
  void fill(Scope& scope, const ScopeTable& table);
  Value look_up(NameId name, Scope* scope) const;

  // Expressions (jinja_expressions.cc).
  Value eval_node(const Expr& e, const ScopePtr& scope);
  Value eval_operation(const Expr& e, const ScopePtr& scope);
  Value eval_name(const Expr& e, const ScopePtr& scope);
  Value eval_dict(const Expr& e, const ScopePtr& scope);
  Value eval_compare(const Expr& e, const ScopePtr& scope);
  Value eval_concat(const Expr& e, const ScopePtr& scope);
  Value eval_slice(const Expr& e, const ScopePtr& scope);
  Value eval_filter(const Expr& e, const ScopePtr& scope, const Value* block);
  std::vector<Value> eval_all(const std::vector<ExprPtr>& items, size_t from, const ScopePtr& scope);
  Arguments arguments(const Expr& e, const ScopePtr& scope);

  // Calls (jinja_calls.cc).
  Value call(const Value& callee, Arguments args);
  Value call_macro(const MacroObject& macro, Arguments args);
  Value call_global(Global global, Arguments args);
  Value make_range(const Arguments& args);
  Value make_dict(Arguments& args);
  Value make_namespace(Arguments& args);
  void bind_macro(const Stmt& macro, Arguments& args, Scope& scope);

  class Deeper;
  class Capture;

  const Ast& ast_;
  const Environment& environment_;
  Meter meter_;
  Place place_;
  std::vector<Value> context_;  // by name: variables and what the template assigns at its top
  std::vector<std::shared_ptr<Changing>> kept_;
  Text* out_ = nullptr;
  uint32_t depth_ = 0;
};

}  // namespace kpd::text::jinja
