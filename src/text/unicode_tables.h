// text: the tables of unicode_tables.cc, sorted by their first member.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kpd::text {

struct CharRange {
  uint32_t first, last;
};
struct CombiningRange {
  uint32_t first, last, combining_class;
};
struct Decomposition {
  uint32_t composed;
  uint32_t parts[4];  // the full canonical decomposition, 0 after its end
};
struct Composition {
  uint32_t first, second, composed;
};

extern const CharRange kLetters[], kNumbers[], kSpaces[], kDigits[], kWordChars[], kPunctuations[];
extern const size_t kLettersCount, kNumbersCount, kSpacesCount, kDigitsCount, kWordCharsCount, kPunctuationsCount;
extern const CombiningRange kCombining[];
extern const size_t kCombiningCount;
extern const Decomposition kDecompositions[];
extern const size_t kDecompositionsCount;
extern const Composition kCompositions[];
extern const size_t kCompositionsCount;

}  // namespace kpd::text
