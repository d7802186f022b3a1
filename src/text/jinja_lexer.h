// text: a chat template cut into tokens, with the white space around tags removed as jinja2 removes it under trim_blocks and
// lstrip_blocks. Every line end is a line feed, and one at the template's end is dropped. Private.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kpd::text::jinja {

struct Place {
  uint32_t line = 1, column = 1;  // both from 1; columns count bytes
};

enum class TokenType : uint8_t {
  kData,
  kVariableBegin,
  kVariableEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenType type;
  Place place;
  std::string text{};  // of a string: without quotes and escapes
};

// Throws Error(kCorruptData) with the place for what is not Jinja, Error(kUnsupported) for identifiers and escapes beyond
// ASCII, Error(kLimitExceeded) for a template of more than 256 KiB. The template must be UTF-8.
std::vector<Token> tokenize(std::string_view source);

[[noreturn]] void fail_syntax(const Place& place, const std::string& text);
[[noreturn]] void fail_unsupported(const Place& place, const std::string& text);
std::string at_place(const Place& place);  // "chat template, line 3, column 7: "

}  // namespace kpd::text::jinja
