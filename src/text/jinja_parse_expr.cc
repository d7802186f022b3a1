// text: expressions of chat templates, by jinja2's own precedences: or, and, not, comparisons, + and -, ~, * / // %, **, signs,
// then subscripts, calls, filters and tests.
#include <algorithm>
#include <charconv>

#include "kpd/base/error.h"
#include "text/jinja_parser.h"

namespace kpd::text::jinja {
namespace {

constexpr size_t kMaxNames = 1024;

constexpr std::pair<std::string_view, Op> kComparisons[] = {{"==", Op::kEqual},  {"!=", Op::kNotEqual},
                                                            {"<", Op::kLess},    {"<=", Op::kLessEqual},
                                                            {">", Op::kGreater}, {">=", Op::kGreaterEqual}};
constexpr std::pair<std::string_view, Op> kProducts[] = {
    {"*", Op::kMultiply}, {"/", Op::kDivide}, {"//", Op::kFloorDivide}, {"%", Op::kModulo}};

template <size_t n>
const Op* find_op(const std::pair<std::string_view, Op> (&table)[n], const Token& token) {
  if (token.type != TokenType::kOperator) return nullptr;
  const auto* row = std::find_if(std::begin(table), std::end(table), [&](const auto& r) { return r.first == token.text; });
  return row == std::end(table) ? nullptr : &row->second;
}

std::vector<ExprPtr> pair_of(ExprPtr a, ExprPtr b) {
  std::vector<ExprPtr> out;
  out.push_back(std::move(a));
  out.push_back(std::move(b));
  return out;
}

std::vector<ExprPtr> one(ExprPtr a) {
  std::vector<ExprPtr> out;
  out.push_back(std::move(a));
  return out;
}

std::string shown(const Token& token) {
  switch (token.type) {
    case TokenType::kEnd:
      return "the template's end";
    case TokenType::kData:
      return "text";
    case TokenType::kVariableBegin:
      return "{{";
    case TokenType::kVariableEnd:
      return "}}";
    case TokenType::kBlockBegin:
      return "{%";
    case TokenType::kBlockEnd:
      return "%}";
    case TokenType::kString:
      return "a string";
    default:
      return str("'", token.text.substr(0, 40), "'");
  }
}

}  // namespace

ExprParser::Deeper::Deeper(ExprParser& parser) : parser_(parser) {
  if (++parser_.depth_ <= kMaxTreeDepth) return;
  --parser_.depth_;
  fail(ErrorCode::kLimitExceeded, at_place(parser_.now().place), "nested deeper than ", kMaxTreeDepth, " levels");
}

Token ExprParser::next() {
  Token token = tokens_[at_];
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}

bool ExprParser::skip_op(std::string_view op) {
  if (!is_op(op)) return false;
  next();
  return true;
}

bool ExprParser::skip_name(std::string_view name) {
  if (!is_name(name)) return false;
  next();
  return true;
}

void ExprParser::expect_op(std::string_view op) {
  if (!skip_op(op)) fail_here(str("'", op, "'"));
}

void ExprParser::expect_name(std::string_view name) {
  if (!skip_name(name)) fail_here(str("'", name, "'"));
}

std::string ExprParser::expect_any_name() {
  if (now().type != TokenType::kName) fail_here("a name");
  return next().text;
}

void ExprParser::fail_here(std::string_view expected) const {
  fail_syntax(now().place, str(shown(now()), " where ", expected, " is expected"));
}

NameId ExprParser::id(std::string_view name) {
  const auto [it, fresh] = ids_.emplace(std::string(name), static_cast<NameId>(names_.size()));
  if (fresh) names_.emplace_back(name);
  // Scopes hold lists of them.
  if (names_.size() > kMaxNames) fail(ErrorCode::kLimitExceeded, at_place(now().place), "more than ", kMaxNames, " names");
  return it->second;
}

void ExprParser::grew(Expr& e, const ExprPtr& child) {
  if (child) e.depth = std::max(e.depth, child->depth + 1);
  if (e.depth > kMaxTreeDepth)
    fail(ErrorCode::kLimitExceeded, at_place(e.place), "an expression of more than ", kMaxTreeDepth, " levels");
}

ExprPtr ExprParser::make(ExprKind kind, const Place& place, std::vector<ExprPtr> items) {
  auto e = std::make_unique<Expr>(Expr{.kind = kind, .place = place});
  e->items = std::move(items);
  for (const ExprPtr& item : e->items) grew(*e, item);
  return e;
}

ExprPtr ExprParser::expression(bool choices) {
  const Deeper deeper(*this);
  return choices ? choice() : either();
}

ExprPtr ExprParser::choice() {
  ExprPtr value = either();
  while (is_name("if")) {
    const Place place = next().place;
    ExprPtr condition = either();
    ExprPtr otherwise;
    if (skip_name("else")) otherwise = expression();
    std::vector<ExprPtr> items = pair_of(std::move(value), std::move(condition));
    items.push_back(std::move(otherwise));
    value = make(ExprKind::kChoice, place, std::move(items));
  }
  return value;
}

ExprPtr ExprParser::either() {
  ExprPtr left = both();
  while (is_name("or")) {
    const Place place = next().place;
    left = make(ExprKind::kOr, place, pair_of(std::move(left), both()));
  }
  return left;
}

ExprPtr ExprParser::both() {
  ExprPtr left = negation();
  while (is_name("and")) {
    const Place place = next().place;
    left = make(ExprKind::kAnd, place, pair_of(std::move(left), negation()));
  }
  return left;
}

ExprPtr ExprParser::negation() {
  const Deeper deeper(*this);
  if (!is_name("not")) return comparison();
  const Place place = next().place;
  return make(ExprKind::kNot, place, one(negation()));
}

ExprPtr ExprParser::comparison() {
  const Place place = now().place;
  std::vector<ExprPtr> items = one(sum());
  std::vector<Op> ops;
  for (;;) {
    if (const Op* op = find_op(kComparisons, now())) {
      ops.push_back(*op);
      next();
    } else if (skip_name("in")) {
      ops.push_back(Op::kIn);
    } else if (is_name("not") && after_now().type == TokenType::kName && after_now().text == "in") {
      next();
      next();
      ops.push_back(Op::kNotIn);
    } else {
      break;
    }
    items.push_back(sum());
  }
  if (ops.empty()) return std::move(items[0]);
  ExprPtr e = make(ExprKind::kCompare, place, std::move(items));
  e->ops = std::move(ops);
  return e;
}

ExprPtr ExprParser::sum() {
  ExprPtr left = concatenation();
  while (is_op("+") || is_op("-")) {
    const Token op = next();
    left = make(ExprKind::kBinary, op.place, pair_of(std::move(left), concatenation()));
    left->ops.push_back(op.text == "+" ? Op::kAdd : Op::kSubtract);
  }
  return left;
}

ExprPtr ExprParser::concatenation() {
  const Place place = now().place;
  std::vector<ExprPtr> items = one(product());
  while (skip_op("~")) items.push_back(product());
  if (items.size() == 1) return std::move(items[0]);
  return make(ExprKind::kConcat, place, std::move(items));
}

ExprPtr ExprParser::product() {
  ExprPtr left = power();
  while (const Op* op = find_op(kProducts, now())) {
    const Place place = next().place;
    left = make(ExprKind::kBinary, place, pair_of(std::move(left), power()));
    left->ops.push_back(*op);
  }
  return left;
}

ExprPtr ExprParser::power() {
  ExprPtr left = unary();
  while (is_op("**")) {
    const Place place = next().place;
    left = make(ExprKind::kBinary, place, pair_of(std::move(left), unary()));
    left->ops.push_back(Op::kPower);
  }
  return left;
}

ExprPtr ExprParser::unary(bool with_filters) {
  const Deeper deeper(*this);
  ExprPtr e;
  if (is_op("-") || is_op("+")) {
    const Token sign = next();
    e = make(sign.text == "-" ? ExprKind::kNegative : ExprKind::kPositive, sign.place, one(unary(false)));
  } else {
    e = primary();
  }
  e = postfix(std::move(e));
  return with_filters ? filters_and_tests(std::move(e)) : std::move(e);
}

ExprPtr ExprParser::constant() {
  const Token token = next();
  ExprPtr e = make(ExprKind::kConst, token.place);
  const char *begin = token.text.data(), *end = begin + token.text.size();
  if (token.type == TokenType::kString) {
    std::string text = token.text;
    while (now().type == TokenType::kString) text += next().text;
    e->value = Value::string(std::move(text));
  } else if (token.type == TokenType::kInteger) {
    int64_t value = 0;
    if (std::from_chars(begin, end, value).ec != std::errc()) fail_unsupported(token.place, "an integer beyond 64 bits");
    e->value = Value::integer(value);
  } else {
    double value = 0;
    if (std::from_chars(begin, end, value).ec != std::errc())
      fail_unsupported(token.place, "a number beyond what a double holds");
    e->value = Value::real(value);
  }
  return e;
}

ExprPtr ExprParser::primary() {
  const Token& token = now();
  if (token.type == TokenType::kString || token.type == TokenType::kInteger || token.type == TokenType::kFloat)
    return constant();
  if (token.type == TokenType::kName) {
    const Token name = next();
    const std::string& t = name.text;
    const bool yes = t == "true" || t == "True", no = t == "false" || t == "False", none = t == "none" || t == "None";
    ExprPtr e = make(yes || no || none ? ExprKind::kConst : ExprKind::kName, name.place);
    if (yes || no) e->value = Value::boolean(yes);
    if (none) e->value = Value::none();
    if (e->kind == ExprKind::kName) e->name = id(t);
    return e;
  }
  if (skip_op("(")) {
    ExprPtr e = tuple(true, {}, true);
    expect_op(")");
    return e;
  }
  if (is_op("[")) return list();
  if (is_op("{")) return dict();
  fail_here("an expression");
}

ExprPtr ExprParser::list() {
  const Place place = next().place;
  std::vector<ExprPtr> items;
  while (!is_op("]")) {
    if (!items.empty()) expect_op(",");
    if (is_op("]")) break;
    items.push_back(expression());
  }
  next();
  return make(ExprKind::kList, place, std::move(items));
}

ExprPtr ExprParser::dict() {
  const Place place = next().place;
  std::vector<ExprPtr> items;
  while (!is_op("}")) {
    if (!items.empty()) expect_op(",");
    if (is_op("}")) break;
    items.push_back(expression());
    expect_op(":");
    items.push_back(expression());
  }
  next();
  return make(ExprKind::kDict, place, std::move(items));
}

bool ExprParser::ends_tuple(std::string_view end) const {
  return now().type == TokenType::kVariableEnd || now().type == TokenType::kBlockEnd || is_op(")") ||
         (!end.empty() && is_name(end));
}

ExprPtr ExprParser::tuple(bool choices, std::string_view end, bool parentheses) {
  return comma_list(end, parentheses, "an expression", [&] { return expression(choices); });
}

ExprPtr ExprParser::postfix(ExprPtr of) {
  for (;;) {
    if (is_op(".") || is_op("[")) {
      of = subscript(std::move(of));
    } else if (is_op("(")) {
      of = make(ExprKind::kCall, now().place, one(std::move(of)));
      arguments(*of);
    } else {
      return of;
    }
  }
}

ExprPtr ExprParser::filters_and_tests(ExprPtr of) {
  for (;;) {
    if (is_op("|")) {
      of = filters(std::move(of));
    } else if (is_name("is")) {
      of = test(std::move(of));
    } else if (is_op("(")) {
      of = make(ExprKind::kCall, now().place, one(std::move(of)));
      arguments(*of);
    } else {
      return of;
    }
  }
}

ExprPtr ExprParser::subscript(ExprPtr of) {
  const Token open = next();
  if (open.text == "[") {
    if (is_op("]")) fail_unsupported(now().place, "an empty subscript is not supported");
    ExprPtr e = subscript_part(std::move(of));
    if (is_op(",")) fail_unsupported(now().place, "a tuple as subscript is not supported");
    expect_op("]");
    return e;
  }
  if (now().type == TokenType::kInteger) return make(ExprKind::kItem, open.place, pair_of(std::move(of), constant()));
  if (now().type != TokenType::kName) fail_here("a name or a number");
  ExprPtr e = make(ExprKind::kAttribute, open.place, one(std::move(of)));
  e->attribute = next().text;
  return e;
}

ExprPtr ExprParser::subscript_part(ExprPtr of) {
  const Place place = now().place;
  ExprPtr first;
  if (!is_op(":")) {
    first = expression();
    if (!is_op(":")) return make(ExprKind::kItem, place, pair_of(std::move(of), std::move(first)));
  }
  std::vector<ExprPtr> items = pair_of(std::move(of), std::move(first));
  for (int part = 0; part < 2; ++part) {
    const bool there = part == 0 || is_op(":");
    if (there) next();
    items.push_back(there && !is_op(":") && !is_op("]") && !is_op(",") ? expression() : nullptr);
  }
  return make(ExprKind::kSlice, place, std::move(items));
}

void ExprParser::arguments(Expr& call) {
  const Place place = now().place;
  expect_op("(");
  for (bool first = true; !is_op(")"); first = false) {
    if (!first) {
      expect_op(",");
      if (is_op(")")) break;
    }
    const bool positional_over = call.more_items || call.more_keywords || !call.keywords.empty();
    if (skip_op("*")) {
      if (call.more_items || call.more_keywords) fail_syntax(place, "the order of arguments");
      call.more_items = expression();
      grew(call, call.more_items);
    } else if (skip_op("**")) {
      if (call.more_keywords) fail_syntax(place, "the order of arguments");
      call.more_keywords = expression();
      grew(call, call.more_keywords);
    } else if (now().type == TokenType::kName && after_now().type == TokenType::kOperator && after_now().text == "=") {
      if (call.more_keywords) fail_syntax(place, "the order of arguments");
      std::string name = next().text;
      next();
      for (const Keyword& k : call.keywords) {
        if (k.name == name) fail_syntax(place, "an argument given twice");
      }
      call.keywords.push_back({std::move(name), expression()});
      grew(call, call.keywords.back().value);
    } else {
      if (positional_over) fail_syntax(place, "the order of arguments");
      call.items.push_back(expression());
      grew(call, call.items.back());
    }
  }
  next();
}

ExprPtr ExprParser::filters(ExprPtr of, bool first_has_no_pipe) {
  while (first_has_no_pipe || is_op("|")) {
    if (!first_has_no_pipe) next();
    first_has_no_pipe = false;
    const Place place = now().place;
    ExprPtr e = make(ExprKind::kFilter, place, one(std::move(of)));
    e->attribute = expect_any_name();
    while (skip_op(".")) e->attribute.append(1, '.').append(expect_any_name());
    if (is_op("(")) arguments(*e);
    of = std::move(e);
  }
  return of;
}

ExprPtr ExprParser::test(ExprPtr of) {
  const Place place = next().place;
  const bool negated = skip_name("not");
  ExprPtr e = make(ExprKind::kTest, place, one(std::move(of)));
  e->attribute = expect_any_name();
  while (skip_op(".")) e->attribute.append(1, '.').append(expect_any_name());
  const TokenType type = now().type;
  const bool literal = type == TokenType::kString || type == TokenType::kInteger || type == TokenType::kFloat ||
                       type == TokenType::kName || is_op("[") || is_op("{");
  if (is_op("(")) {
    arguments(*e);
  } else if (literal && !is_name("else") && !is_name("or") && !is_name("and")) {
    if (is_name("is")) fail_here("no second test");
    e->items.push_back(postfix(primary()));
    grew(*e, e->items.back());
  }
  return negated ? make(ExprKind::kNot, place, one(std::move(e))) : std::move(e);
}

}  // namespace kpd::text::jinja
