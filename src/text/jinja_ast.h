// text: a chat template as a tree. Private.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja_lexer.h"
#include "text/jinja_value.h"

namespace kpd::text::jinja {

using NameId = uint32_t;  // index into Ast::names

enum class ExprKind : uint8_t {
  kConst,      // value
  kName,       // name
  kNamespace,  // target only: name.attribute
  kList,       // items
  kTuple,      // items
  kDict,       // items: key, value, key, value, ...
  kAttribute,  // items[0].attribute
  kItem,       // items[0][items[1]]
  kSlice,      // items[0][items[1]:items[2]:items[3]], the last three may be null
  kCall,       // items[0](items[1], ..., keywords)
  kFilter,     // items[0]|attribute(items[1], ...); items[0] null: the block's text
  kTest,       // items[0] is attribute(items[1], ...)
  kNegative,
  kPositive,
  kNot,
  kAnd,
  kOr,
  kBinary,   // items[0] ops[0] items[1]
  kConcat,   // items joined by ~
  kCompare,  // items[0] ops[0] items[1] ops[1] items[2] ...
  kChoice,   // items[0] if items[1] else items[2]; the last may be null
};

enum class Op : uint8_t {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn,
};

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct Keyword {
  std::string name;
  ExprPtr value;
};

struct Expr {
  ExprKind kind;
  Place place;
  NameId name = 0;
  std::string attribute{};
  Value value{};
  std::vector<ExprPtr> items{};
  std::vector<Op> ops{};
  std::vector<Keyword> keywords{};
  ExprPtr more_items{}, more_keywords{};  // *list, **dict
  uint32_t depth = 1;                     // of the tree under it
};

// What a scope does with a name when it is entered. jinja2 decides that when it compiles: a name that a scope assigns anywhere
// is the scope's own from its start, with the value of the scope around it.
enum class Load : uint8_t {
  kParameter,  // bound by the statement itself
  kResolve,    // from the template's variables
  kAlias,      // from the scopes around
  kUndefined,  // none before it is assigned
};
struct ScopeTable {
  std::vector<std::pair<NameId, Load>> names;
};

enum class StmtKind : uint8_t {
  kData,
  kOutput,
  kIf,
  kFor,
  kSet,
  kSetBlock,
  kMacro,
  kCallBlock,
  kFilterBlock,
  kWith,
  kBreak,
  kContinue
};

struct Stmt;
using StmtPtr = std::unique_ptr<Stmt>;
using Body = std::vector<StmtPtr>;

// Arguments of a macro or call block.
struct Signature {
  std::vector<NameId> parameters{};
  std::vector<ExprPtr> defaults{};  // of the last parameters
  bool takes_caller = false, takes_keywords = false, takes_more = false;
};

struct Stmt {
  StmtKind kind;
  Place place;
  Text data{};       // kData
  NameId name = 0;   // kMacro
  ExprPtr target{};  // kFor, kSet, kSetBlock
  std::vector<ExprPtr>
      exprs{};  // kOutput: what is written; kIf: the conditions; kWith: the values; else one: what the statement is about
  std::vector<ExprPtr> targets{};  // kWith
  ExprPtr test{};                  // kFor: if
  Signature signature{};           // kMacro, kCallBlock
  std::vector<Body> bodies{};      // kIf: one a condition and an else; kFor: body, else; else: one
  ScopeTable scope{}, test_scope{}, else_scope{};
};

struct Ast {
  std::vector<std::string> names;
  Body body;
  ScopeTable scope;
};

constexpr uint32_t kMaxTreeDepth = 200;

// Throws as tokenize() does.
Ast parse(std::string_view source);
// Fills the scope tables, and refuses unknown filters and tests where jinja2 refuses them before it runs anything. parse() does
// it.
void find_scopes(Ast& ast);

// Names that jinja2 knows, whether this interpreter has them or not.
bool is_filter_name(std::string_view name);
bool is_test_name(std::string_view name);

}  // namespace kpd::text::jinja
