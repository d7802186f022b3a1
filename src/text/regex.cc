// text: a regular expression in PCRE2.
#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/regex.h"

#include <pcre2.h>

#include <memory>

#include "io/text.h"
#include "kpd/base/error.h"
#include "text/unicode.h"

namespace kpd::text {
namespace {

// A tokenizer's expression comes from a file: it may not take the machine with it.
constexpr uint32_t kMaxSteps = 20'000'000, kMaxHeapKib = 64 * 1024;
constexpr size_t kMaxExpressionBytes = 1 << 16;

using MatchData = std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)>;
using CompileContext = std::unique_ptr<pcre2_compile_context, decltype(&pcre2_compile_context_free)>;
using MatchContext = std::unique_ptr<pcre2_match_context, decltype(&pcre2_match_context_free)>;

}  // namespace

Regex::Regex(std::string_view expression, const std::string& where) : where_(where) {
  if (expression.size() > kMaxExpressionBytes) {
    fail(ErrorCode::kLimitExceeded, where, ": a regular expression of ", expression.size(), " bytes, the limit is ",
         kMaxExpressionBytes);
  }
  const std::string translated = translate_regex(expression, where);
  int error = 0;
  size_t at = 0;
  const CompileContext context(pcre2_compile_context_create(nullptr), pcre2_compile_context_free);
  if (!context) fail(ErrorCode::kOutOfMemory, where, ": no memory for a regular expression");
  // Whatever the library was built with: a line ends with LF alone.
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  code_ = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                        PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error, &at, context.get());
  if (!code_) {
    unsigned char text[128] = "";
    pcre2_get_error_message(error, text, sizeof text);
    fail(ErrorCode::kUnsupported, where, ": the regular expression '", io::printable(expression), "' is not understood (",
         reinterpret_cast<const char*>(text), "), expected one that PCRE2 knows");
  }
  // Without it, on a machine where it is forbidden, the interpreter does the same.
  (void)pcre2_jit_compile(code_, PCRE2_JIT_COMPLETE);
}

Regex::~Regex() { pcre2_code_free(code_); }

void Regex::for_each(std::string_view text, const std::function<void(size_t, size_t)>& match) const {
  const MatchData data(pcre2_match_data_create_from_pattern(code_, nullptr), pcre2_match_data_free);
  const MatchContext context(pcre2_match_context_create(nullptr), pcre2_match_context_free);
  if (!data || !context) fail(ErrorCode::kOutOfMemory, where_, ": no memory for a search");
  pcre2_set_match_limit(context.get(), kMaxSteps);
  pcre2_set_heap_limit(context.get(), kMaxHeapKib);
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  size_t at = 0, last_end = SIZE_MAX;
  while (at <= text.size()) {
    int rc = pcre2_match(code_, subject, text.size(), at, PCRE2_NO_UTF_CHECK, data.get(), context.get());
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) {
      rc = pcre2_match(code_, subject, text.size(), at, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, data.get(), context.get());
    }
    if (rc == PCRE2_ERROR_NOMATCH) return;
    if (rc < 0) {
      fail(ErrorCode::kLimitExceeded, where_, ": the regular expression needs more than the allowed steps or memory at byte ",
           at, " of a text");
    }
    const size_t* range = pcre2_get_ovector_pointer(data.get());
    const size_t begin = range[0], end = range[1];
    const size_t step = begin < text.size() ? char_at(text, begin).bytes : 1;
    if (begin >= end) {
      // An empty match right after a match does not count (nor one that \K turned round).
      if (begin == end && begin != last_end) match(begin, end);
      at = std::max(at, begin) + step;
      if (begin == end) last_end = end;
      continue;
    }
    match(begin, end);
    at = last_end = end;
  }
}

}  // namespace kpd::text
