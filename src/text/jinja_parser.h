// text: the parser of chat templates: a cursor over tokens, expressions, and statements on top of them. Private.
#pragma once

#include <initializer_list>
#include <string_view>
#include <unordered_map>

#include "text/jinja_ast.h"

namespace kpd::text::jinja {

class ExprParser {
 protected:
  explicit ExprParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  // Counts how deep the parser is in itself.
  class Deeper {
   public:
    explicit Deeper(ExprParser& parser);
    ~Deeper() { --parser_.depth_; }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;

   private:
    ExprParser& parser_;
  };

  const Token& now() const { return tokens_[at_]; }
  const Token& after_now() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  Token next();
  bool is_op(std::string_view op) const { return now().type == TokenType::kOperator && now().text == op; }
  bool is_name(std::string_view name) const { return now().type == TokenType::kName && now().text == name; }
  bool skip_op(std::string_view op);
  bool skip_name(std::string_view name);
  void expect_op(std::string_view op);
  void expect_name(std::string_view name);
  std::string expect_any_name();
  [[noreturn]] void fail_here(std::string_view expected) const;
  NameId id(std::string_view name);

  ExprPtr expression(bool choices = true);  // choices: x if y else z
  ExprPtr tuple(bool choices = true, std::string_view end = {}, bool parentheses = false);
  ExprPtr target(std::string_view end, bool attributes);
  ExprPtr filters(ExprPtr of, bool first_has_no_pipe = false);

  std::vector<std::string> names_;

 private:
  ExprPtr make(ExprKind kind, const Place& place, std::vector<ExprPtr> items = {});
  void grew(Expr& e, const ExprPtr& child);
  ExprPtr choice();
  ExprPtr either();
  ExprPtr both();
  ExprPtr negation();
  ExprPtr comparison();
  ExprPtr sum();
  ExprPtr concatenation();
  ExprPtr product();
  ExprPtr power();
  ExprPtr unary(bool with_filters = true);
  ExprPtr primary();
  ExprPtr constant();
  ExprPtr list();
  ExprPtr dict();
  ExprPtr postfix(ExprPtr of);
  ExprPtr filters_and_tests(ExprPtr of);
  ExprPtr subscript(ExprPtr of);
  ExprPtr subscript_part(ExprPtr of);
  ExprPtr test(ExprPtr of);
  void arguments(Expr& call);
  ExprPtr target_part(bool attributes);
  bool ends_tuple(std::string_view end) const;

  // Parts with commas between them: one without a comma is itself, any others are a tuple.
  template <class Part>
  ExprPtr comma_list(std::string_view end, bool may_be_empty, std::string_view expected, const Part& part) {
    const Place place = now().place;
    std::vector<ExprPtr> items;
    bool is_tuple = false;
    for (;;) {
      if (!items.empty()) expect_op(",");
      if (ends_tuple(end)) break;
      items.push_back(part());
      if (!is_op(",")) break;
      is_tuple = true;
    }
    if (!is_tuple && !items.empty()) return std::move(items[0]);
    if (items.empty() && !may_be_empty) fail_here(expected);
    return make(ExprKind::kTuple, place, std::move(items));
  }

  std::vector<Token> tokens_;
  size_t at_ = 0;
  uint32_t depth_ = 0;
  std::unordered_map<std::string, NameId> ids_;
};

}  // namespace kpd::text::jinja
