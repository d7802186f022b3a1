// text: characters as Python's str methods see them. Private.
#pragma once

#include <cstddef>
#include <cstdint>

#include "text/jinja_text.h"

namespace kpd::text::jinja {

struct CharRange {
  uint32_t first, last;
};
// Every step-th character from first to last becomes the one `delta` away.
struct CaseRun {
  uint32_t first, last, step;
  int32_t delta;
};
// A character that becomes several.
struct CaseSpecial {
  uint32_t code;
  const char* to;
};

// Of characters from U+0080 on.
extern const CharRange kNotPrintable[], kLower[], kUpper[], kCased[], kCaseIgnorable[];
extern const size_t kNotPrintableSize, kLowerSize, kUpperSize, kCasedSize, kCaseIgnorableSize;
extern const CaseRun kToLower[], kToUpper[], kToTitle[];
extern const size_t kToLowerSize, kToUpperSize, kToTitleSize;
extern const CaseSpecial kToLowerSpecial[], kToUpperSpecial[], kToTitleSpecial[];
extern const size_t kToLowerSpecialSize, kToUpperSpecialSize, kToTitleSpecialSize;

bool is_printable(uint32_t code);  // str.isprintable
bool is_lower(uint32_t code);      // str.islower of one character
bool is_upper(uint32_t code);      // upper or title case
bool is_title(uint32_t code);      // title case alone
bool is_cased(uint32_t code);

Text lower(const Text& text);
Text upper(const Text& text);
Text swapcase(const Text& text);
// str.title: a letter after what is no letter begins a word.
Text title(const Text& text);
// str.capitalize: the first character in title case, the rest in lower case.
Text capitalize(const Text& text);

}  // namespace kpd::text::jinja
