// text: what a tokenizer searches a text for: a literal, one of the known families' expressions (split by hand: faster, and
// with the same character classes as Hugging Face), or any other regular expression (PCRE2, whose Unicode is version 14: of
// characters that are newer it knows no letters and numbers).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace kpd::text {

class Regex;  // a compiled expression of PCRE2

// The expressions that are split by hand.
inline constexpr std::string_view kGpt2Expression =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kLlama3Expression =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kQwen2Expression =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// Immutable; thread-safe.
class Pattern {
 public:
  Pattern() = default;  // matches nothing
  static Pattern literal(std::string_view text);
  // `where` opens errors: Error(kUnsupported) if PCRE2 does not know the expression.
  static Pattern regex(std::string_view expression, const std::string& where);
  static Pattern gpt2_words();  // the expression inside ByteLevel
  const std::string& source() const { return source_; }
  bool is_literal() const { return kind_ == Kind::kLiteral; }

  // Calls match(begin, end) for every match in valid UTF-8, in order; matches do not overlap. Throws Error(kLimitExceeded) if
  // the search needs too many steps.
  void for_each(std::string_view text, const std::function<void(size_t, size_t)>& match) const;

 private:
  enum class Kind { kLiteral, kRegex, kGpt2, kLlama3, kQwen2 };
  Pattern(Kind kind, std::string_view source) : kind_(kind), source_(source) {}

  Kind kind_ = Kind::kLiteral;
  std::string source_;
  std::shared_ptr<const Regex> regex_;
};

}  // namespace kpd::text
