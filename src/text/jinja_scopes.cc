// text: which names a chat template's scopes own. jinja2 settles it when it compiles, and its rules show: in a loop that
// assigns a name the name starts every round with what it was outside, in a condition it does not get a scope of its own.
#include <algorithm>
#include <set>

#include "kpd/base/error.h"
#include "text/jinja_ast.h"

namespace kpd::text::jinja {
namespace {

// What is known of the names of one scope, by name: templates may have many conditions, and each looks at all of them.
class Symbols {
 public:
  Symbols(size_t n_names, const Symbols* parent) : parent_(parent), loads_(n_names, kNone), stores_(n_names, false) {}

  void parameter(NameId name) {
    stores_[name] = true;
    set(name, Load::kParameter);
  }
  void load(NameId name) {
    if (!known(name)) set(name, Load::kResolve);
  }
  void store(NameId name) {
    stores_[name] = true;
    if (loads_[name] == kNone) set(name, known_outside(name) ? Load::kAlias : Load::kUndefined);
  }
  bool stores(NameId name) const { return stores_[name]; }

  // After an if: what only some branches assign keeps its value from before in the others.
  void join(const std::vector<Symbols>& branches) {
    for (NameId name = 0; name < loads_.size(); ++name) {
      bool fresh = false;
      for (const Symbols& branch : branches) {
        if (branch.loads_[name] != kNone) loads_[name] = branch.loads_[name];
        fresh |= branch.stores_[name] && !stores_[name];
      }
      if (!fresh) continue;
      stores_[name] = true;
      set(name, known_outside(name) ? Load::kAlias : Load::kResolve);
    }
  }

  ScopeTable table() const {
    ScopeTable out;
    for (NameId name = 0; name < loads_.size(); ++name) {
      if (loads_[name] != kNone) out.names.emplace_back(name, static_cast<Load>(loads_[name]));
    }
    return out;
  }

 private:
  static constexpr uint8_t kNone = 255;

  void set(NameId name, Load load) { loads_[name] = static_cast<uint8_t>(load); }
  bool known(NameId name) const { return loads_[name] != kNone || known_outside(name); }
  bool known_outside(NameId name) const { return parent_ && parent_->known(name); }

  const Symbols* parent_;
  std::vector<uint8_t> loads_;
  std::vector<bool> stores_;
};

class ScopeFinder {
 public:
  explicit ScopeFinder(Ast& ast) : ast_(ast) {
    const auto find = [&](std::string_view name) {
      const auto it = std::find(ast.names.begin(), ast.names.end(), name);
      return it == ast.names.end() ? kNoName : static_cast<NameId>(it - ast.names.begin());
    };
    loop_ = find("loop");
    caller_ = find("caller");
    kwargs_ = find("kwargs");
    varargs_ = find("varargs");
  }

  void run() {
    Symbols top = symbols(nullptr);
    visit(ast_.body, top);
    inner(ast_.body, top, false);
    ast_.scope = top.table();
  }

 private:
  static constexpr NameId kNoName = ~NameId{0};

  Symbols symbols(const Symbols* outer) const { return {ast_.names.size(), outer}; }

  // Names that an expression reads.
  static void reads(const ExprPtr& e, Symbols& to) {
    if (!e) return;
    if (e->kind == ExprKind::kName) to.load(e->name);
    for (const ExprPtr& item : e->items) reads(item, to);
    for (const Keyword& k : e->keywords) reads(k.value, to);
    reads(e->more_items, to);
    reads(e->more_keywords, to);
  }
  static void assigns(const Expr& target, Symbols& to, bool parameters) {
    if (target.kind == ExprKind::kName) parameters ? to.parameter(target.name) : to.store(target.name);
    if (target.kind == ExprKind::kNamespace) to.load(target.name);
    for (const ExprPtr& item : target.items) assigns(*item, to, parameters);
  }

  static void visit(const Body& body, Symbols& to) {
    for (const StmtPtr& s : body) visit(*s, to);
  }

  // What a statement does with the names of the scope that it stands in.
  static void visit(const Stmt& s, Symbols& to) {
    if (s.kind == StmtKind::kIf) return visit_if(s, 0, to);
    if (s.kind == StmtKind::kMacro) return to.store(s.name);
    if (s.kind != StmtKind::kSetBlock) {
      for (const ExprPtr& e : s.exprs) reads(e, to);
    }
    if (s.kind == StmtKind::kSet || s.kind == StmtKind::kSetBlock) assigns(*s.target, to, false);
  }

  // The condition `i` with all that depends on it; an elif is an if in the branch of what it follows.
  static void visit_if(const Stmt& s, size_t i, Symbols& to) {
    reads(s.exprs[i], to);
    std::vector<Symbols> branches(3, to);
    visit(s.bodies[i], branches[0]);
    if (i == 0) {
      for (size_t j = 1; j < s.exprs.size(); ++j) visit_if(s, j, branches[1]);
      visit(s.bodies.back(), branches[2]);
    }
    to.join(branches);
  }

  // The scopes within a body; `soft`: in an if, where unknown filters fail only when they are run.
  void inner(Body& body, const Symbols& outer, bool soft) {
    for (const StmtPtr& s : body) inner(*s, outer, soft);
  }

  void inner(Stmt& s, const Symbols& outer, bool soft) {
    for (const ExprPtr& e : s.exprs) check(e, soft || s.kind == StmtKind::kIf);
    switch (s.kind) {
      case StmtKind::kIf:
        for (Body& body : s.bodies) inner(body, outer, true);
        return;
      case StmtKind::kFor:
        return inner_for(s, outer);
      case StmtKind::kMacro:
      case StmtKind::kCallBlock:
        return inner_macro(s, outer);
      case StmtKind::kSetBlock:
      case StmtKind::kFilterBlock:
      case StmtKind::kWith: {
        Symbols own = symbols(&outer);
        if (s.kind == StmtKind::kFilterBlock) reads(s.exprs[0], own);
        for (const ExprPtr& t : s.targets) assigns(*t, own, true);
        visit(s.bodies[0], own);
        inner(s.bodies[0], own, false);
        s.scope = own.table();
        return;
      }
      default:
        return;
    }
  }

  void inner_for(Stmt& s, const Symbols& outer) {
    if (loop_ != kNoName && assigns_loop(s)) fail_syntax(s.place, "assigning to 'loop' in a loop");
    Symbols body = symbols(&outer), test = body, otherwise = body;
    if (loop_ != kNoName) body.parameter(loop_);
    assigns(*s.target, body, true);
    visit(s.bodies[0], body);
    inner(s.bodies[0], body, false);
    s.scope = body.table();
    visit(s.bodies[1], otherwise);
    inner(s.bodies[1], otherwise, false);
    s.else_scope = otherwise.table();
    if (!s.test) return;
    assigns(*s.target, test, true);
    reads(s.test, test);
    check(s.test, false);
    s.test_scope = test.table();
  }

  void inner_macro(Stmt& s, const Symbols& outer) {
    Signature& sig = s.signature;
    const auto given = [&](NameId name) {
      return std::find(sig.parameters.begin(), sig.parameters.end(), name) != sig.parameters.end();
    };
    std::set<NameId> free{caller_, kwargs_, varargs_}, used;
    undeclared(s.bodies[0], free, used);
    used.erase(kNoName);
    if (used.contains(caller_) && given(caller_)) fail_unsupported(s.place, "an argument named 'caller' is not supported");
    sig.takes_caller = used.contains(caller_);
    sig.takes_keywords = used.contains(kwargs_) && !given(kwargs_);
    sig.takes_more = used.contains(varargs_) && !given(varargs_);
    Symbols own = symbols(&outer);
    for (const NameId name : sig.parameters) own.parameter(name);
    if (sig.takes_caller) own.parameter(caller_);
    if (sig.takes_keywords) own.parameter(kwargs_);
    if (sig.takes_more) own.parameter(varargs_);
    for (const ExprPtr& e : sig.defaults) {
      reads(e, own);
      check(e, false);
    }
    visit(s.bodies[0], own);
    inner(s.bodies[0], own, false);
    s.scope = own.table();
  }

  // Which of the names `free` are read before they are assigned, in the order of the text, in all scopes within.
  static void undeclared(const Body& body, std::set<NameId>& free, std::set<NameId>& used) {
    for (const StmtPtr& s : body) {
      if (s->target) undeclared_target(*s->target, free);
      for (const ExprPtr& e : s->exprs) undeclared(e, free, used);
      undeclared(s->test, free, used);
      for (const ExprPtr& t : s->targets) undeclared_target(*t, free);
      for (const NameId name : s->signature.parameters) free.erase(name);
      for (const ExprPtr& e : s->signature.defaults) undeclared(e, free, used);
      for (const Body& inside : s->bodies) undeclared(inside, free, used);
    }
  }
  static void undeclared_target(const Expr& target, std::set<NameId>& free) {
    if (target.kind == ExprKind::kName) free.erase(target.name);
    for (const ExprPtr& item : target.items) undeclared_target(*item, free);
  }
  static void undeclared(const ExprPtr& e, const std::set<NameId>& free, std::set<NameId>& used) {
    if (!e) return;
    if (e->kind == ExprKind::kName && free.contains(e->name)) used.insert(e->name);
    for (const ExprPtr& item : e->items) undeclared(item, free, used);
    for (const Keyword& k : e->keywords) undeclared(k.value, free, used);
    undeclared(e->more_items, free, used);
    undeclared(e->more_keywords, free, used);
  }

  bool assigns_loop(const Stmt& s) const {
    Symbols all = symbols(nullptr);
    if (s.target) assigns(*s.target, all, true);
    for (const ExprPtr& t : s.targets) assigns(*t, all, true);
    if (all.stores(loop_)) return true;
    return std::any_of(s.bodies.begin(), s.bodies.end(), [&](const Body& body) {
      return std::any_of(body.begin(), body.end(), [&](const StmtPtr& inside) { return assigns_loop(*inside); });
    });
  }

  void check(const ExprPtr& e, bool soft) const {
    if (!e) return;
    if (!soft && e->kind == ExprKind::kFilter && !is_filter_name(e->attribute))
      fail_syntax(e->place, str("the filter '", e->attribute.substr(0, 40), "' is unknown"));
    if (!soft && e->kind == ExprKind::kTest && !is_test_name(e->attribute))
      fail_syntax(e->place, str("the test '", e->attribute.substr(0, 40), "' is unknown"));
    const bool inside = soft || e->kind == ExprKind::kChoice;
    for (const ExprPtr& item : e->items) check(item, inside);
    for (const Keyword& k : e->keywords) check(k.value, inside);
    check(e->more_items, inside);
    check(e->more_keywords, inside);
  }

  Ast& ast_;
  NameId loop_, caller_, kwargs_, varargs_;
};

}  // namespace

void find_scopes(Ast& ast) { ScopeFinder(ast).run(); }

}  // namespace kpd::text::jinja
