// text: statements of chat templates, and what they assign to.
#include "kpd/base/error.h"
#include "text/jinja_parser.h"

namespace kpd::text::jinja {
namespace {

using Ends = std::initializer_list<std::string_view>;

class Parser : ExprParser {
 public:
  explicit Parser(std::string_view source) : ExprParser(tokenize(source)) {}

  Ast run() {
    Ast ast;
    ast.body = statements({});
    if (now().type != TokenType::kEnd) fail_here("the template's end");
    ast.names = std::move(names_);
    return ast;
  }

 private:
  bool is_end(Ends ends) const {
    for (const std::string_view end : ends) {
      if (is_name(end)) return true;
    }
    return false;
  }

  // Up to one of the tags in `ends`, whose name is then the current token; with none, to the template's end.
  Body statements(Ends ends) {
    const Deeper deeper(*this);
    Body body;
    for (;;) {
      const Token& token = now();
      if (token.type == TokenType::kData) {
        body.push_back(make(StmtKind::kData, token.place));
        body.back()->data = Text(next().text);
      } else if (token.type == TokenType::kVariableBegin) {
        body.push_back(make(StmtKind::kOutput, next().place));
        body.back()->exprs.push_back(tuple());
        expect(TokenType::kVariableEnd, "}}");
      } else if (token.type == TokenType::kBlockBegin) {
        next();
        if (is_end(ends)) return body;
        body.push_back(statement());
        expect(TokenType::kBlockEnd, "%}");
      } else if (ends.size() > 0) {
        fail_here(str("{% ", *(ends.end() - 1), " %}"));
      } else {
        return body;
      }
    }
  }

  Body block(Ends ends) {
    skip_op(":");  // as in Python
    expect(TokenType::kBlockEnd, "%}");
    return statements(ends);
  }
  Body block_to(std::string_view end) {
    Body body = block({end});
    next();
    return body;
  }

  void expect(TokenType type, std::string_view text) {
    if (now().type != type) fail_here(text);
    next();
  }

  static StmtPtr make(StmtKind kind, const Place& place) { return std::make_unique<Stmt>(Stmt{.kind = kind, .place = place}); }

  StmtPtr statement() {
    const Place place = now().place;
    const std::string tag = expect_any_name();
    if (tag == "if") return parse_if(place);
    if (tag == "for") return parse_for(place);
    if (tag == "set") return parse_set(place);
    if (tag == "macro") return parse_macro(place);
    if (tag == "call") return parse_call(place);
    if (tag == "filter") return parse_filter(place);
    if (tag == "with") return parse_with(place);
    if (tag == "generation") return parse_generation(place);
    if (tag == "break" || tag == "continue") return parse_jump(place, tag);
    if (tag == "print") return parse_print(place);
    for (const char* other : {"extends", "block", "include", "import", "from", "autoescape"}) {
      if (tag == other) fail_unsupported(place, str("{% ", tag, " %} is not supported"));
    }
    fail_syntax(place, str("the tag '", tag.substr(0, 40), "' is unknown"));
  }

  StmtPtr parse_if(const Place& place) {
    StmtPtr s = make(StmtKind::kIf, place);
    for (;;) {
      s->exprs.push_back(tuple(false));
      s->bodies.push_back(block({"elif", "else", "endif"}));
      if (skip_name("elif")) continue;
      const bool otherwise = is_name("else");
      next();
      s->bodies.push_back(otherwise ? block_to("endif") : Body());
      return s;
    }
  }

  StmtPtr parse_for(const Place& place) {
    StmtPtr s = make(StmtKind::kFor, place);
    s->target = target("in", false);
    expect_name("in");
    s->exprs.push_back(tuple(false, "recursive"));
    if (skip_name("if")) s->test = expression();
    if (is_name("recursive")) fail_unsupported(now().place, "a recursive loop is not supported");
    ++loops_;
    s->bodies.push_back(block({"endfor", "else"}));
    --loops_;
    s->bodies.push_back(next().text == "else" ? block_to("endfor") : Body());
    return s;
  }

  StmtPtr parse_set(const Place& place) {
    StmtPtr s = make(StmtKind::kSet, place);
    s->target = target({}, true);
    if (skip_op("=")) {
      s->exprs.push_back(tuple());
      return s;
    }
    s->kind = StmtKind::kSetBlock;
    s->exprs.push_back(filters(nullptr));
    s->bodies.push_back(block_to("endset"));
    return s;
  }

  Signature signature() {
    Signature out;
    expect_op("(");
    while (!is_op(")")) {
      if (!out.parameters.empty()) expect_op(",");
      if (now().type != TokenType::kName) fail_here("the name of an argument");
      out.parameters.push_back(id(next().text));
      if (skip_op("=")) {
        out.defaults.push_back(expression());
      } else if (!out.defaults.empty()) {
        fail_here("'=', as after other arguments with a value");
      }
    }
    next();
    return out;
  }

  StmtPtr parse_macro(const Place& place) {
    StmtPtr s = make(StmtKind::kMacro, place);
    s->name = id(expect_any_name());
    s->signature = signature();
    s->bodies.push_back(apart("endmacro"));
    return s;
  }

  // The body of a macro: a break in it is not one of the loop around it.
  Body apart(std::string_view end) {
    const int outside = loops_;
    loops_ = 0;
    Body body = block_to(end);
    loops_ = outside;
    return body;
  }

  StmtPtr parse_call(const Place& place) {
    StmtPtr s = make(StmtKind::kCallBlock, place);
    if (is_op("(")) s->signature = signature();
    s->exprs.push_back(expression());
    if (s->exprs[0]->kind != ExprKind::kCall) fail_syntax(place, "{% call %} of what is no call");
    s->bodies.push_back(apart("endcall"));
    return s;
  }

  // transformers' own tag: it marks the assistant's text for training and changes nothing in it, but is a scope of its own.
  StmtPtr parse_generation(const Place& place) {
    StmtPtr s = make(StmtKind::kCallBlock, place);
    s->bodies.push_back(apart("endgeneration"));
    return s;
  }

  StmtPtr parse_filter(const Place& place) {
    StmtPtr s = make(StmtKind::kFilterBlock, place);
    s->exprs.push_back(filters(nullptr, true));
    s->bodies.push_back(block_to("endfilter"));
    return s;
  }

  StmtPtr parse_with(const Place& place) {
    StmtPtr s = make(StmtKind::kWith, place);
    while (now().type != TokenType::kBlockEnd) {
      if (!s->targets.empty()) expect_op(",");
      s->targets.push_back(target({}, false));
      if (s->targets.back()->kind == ExprKind::kTuple)
        fail_unsupported(place, "{% with %} of several names at once is not supported");
      expect_op("=");
      s->exprs.push_back(expression());
    }
    s->bodies.push_back(block_to("endwith"));
    return s;
  }

  StmtPtr parse_jump(const Place& place, const std::string& tag) {
    if (loops_ == 0) fail_syntax(place, str("{% ", tag, " %} outside of a loop"));
    return make(tag == "break" ? StmtKind::kBreak : StmtKind::kContinue, place);
  }

  StmtPtr parse_print(const Place& place) {
    StmtPtr s = make(StmtKind::kOutput, place);
    while (now().type != TokenType::kBlockEnd) {
      if (!s->exprs.empty()) expect_op(",");
      s->exprs.push_back(expression());
    }
    return s;
  }

  int loops_ = 0;
};

}  // namespace

ExprPtr ExprParser::target_part(bool attributes) {
  const Deeper deeper(*this);
  const Place place = now().place;
  if (skip_op("(")) {
    // What is in parentheses is a tuple, or one target.
    ExprPtr e = target({}, attributes);
    expect_op(")");
    return e;
  }
  if (now().type != TokenType::kName) fail_here("a name to assign to");
  const std::string name = next().text;
  for (const char* constant : {"true", "false", "none", "True", "False", "None"}) {
    if (name == constant) fail_syntax(place, str("assigning to '", name, "'"));
  }
  ExprPtr e = make(ExprKind::kName, place);
  e->name = id(name);
  if (attributes && skip_op(".")) {
    e->kind = ExprKind::kNamespace;
    e->attribute = expect_any_name();
  }
  return e;
}

ExprPtr ExprParser::target(std::string_view end, bool attributes) {
  return comma_list(end, false, "a name to assign to", [&] { return target_part(attributes); });
}

Ast parse(std::string_view source) {
  Ast ast = Parser(source).run();
  find_scopes(ast);
  return ast;
}

}  // namespace kpd::text::jinja
