// text: a regular expression in PCRE2, searched as Hugging Face's engine (Oniguruma) does.
#pragma once

#include <functional>
#include <string>
#include <string_view>

struct pcre2_real_code_8;

namespace kpd::text {

// Immutable; thread-safe.
class Regex {
 public:
  // Throws Error(kUnsupported) that opens with `where`.
  Regex(std::string_view expression, const std::string& where);
  ~Regex();
  Regex(const Regex&) = delete;
  Regex& operator=(const Regex&) = delete;

  // As Pattern::for_each.
  void for_each(std::string_view text, const std::function<void(size_t, size_t)>& match) const;

 private:
  pcre2_real_code_8* code_ = nullptr;
  std::string where_;
};

// An expression of Oniguruma for PCRE2 with UTF, UCP and MULTILINE. Throws Error(kUnsupported) that opens with `where` for what
// the two read differently and cannot be spelled out.
std::string translate_regex(std::string_view expression, const std::string& where);

}  // namespace kpd::text
