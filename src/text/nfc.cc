// text: normalisation form C (Unicode Standard Annex 15): decompose, order the marks, compose.
#include <algorithm>
#include <vector>

#include "text/unicode.h"
#include "text/unicode_tables.h"

namespace kpd::text {
namespace {

// Hangul syllables are composed by arithmetic (Unicode 3.12).
constexpr uint32_t kSyllables = 0xAC00, kLeads = 0x1100, kVowels = 0x1161, kTails = 0x11A7;
constexpr uint32_t kLeadCount = 19, kVowelCount = 21, kTailCount = 28;
constexpr uint32_t kSyllableCount = kLeadCount * kVowelCount * kTailCount;

// Below this nothing decomposes, combines or composes with what stands before it.
constexpr uint32_t kFirstOfInterest = 0xC0;

struct Mark {
  uint32_t code;
  uint32_t combining_class;
};

uint32_t combining_class(uint32_t c) {
  const CombiningRange* end = kCombining + kCombiningCount;
  const CombiningRange* at = std::upper_bound(kCombining, end, c, [](uint32_t v, const auto& r) { return v < r.first; });
  return at != kCombining && c <= at[-1].last ? at[-1].combining_class : 0;
}

void decompose(uint32_t c, std::vector<Mark>& out) {
  if (c < kFirstOfInterest) {
    out.push_back({c, 0});
    return;
  }
  if (c >= kSyllables && c < kSyllables + kSyllableCount) {
    const uint32_t i = c - kSyllables;
    out.push_back({kLeads + i / (kVowelCount * kTailCount), 0});
    out.push_back({kVowels + i % (kVowelCount * kTailCount) / kTailCount, 0});
    if (i % kTailCount != 0) out.push_back({kTails + i % kTailCount, 0});
    return;
  }
  const Decomposition* end = kDecompositions + kDecompositionsCount;
  const Decomposition* at = std::lower_bound(kDecompositions, end, c, [](const auto& d, uint32_t v) { return d.composed < v; });
  if (at == end || at->composed != c) {
    out.push_back({c, combining_class(c)});
    return;
  }
  for (const uint32_t part : at->parts) {
    if (part != 0) out.push_back({part, combining_class(part)});
  }
}

// The character that the two make, 0 if there is none.
uint32_t compose(uint32_t a, uint32_t b) {
  if (a >= kLeads && a < kLeads + kLeadCount && b >= kVowels && b < kVowels + kVowelCount) {
    return kSyllables + ((a - kLeads) * kVowelCount + (b - kVowels)) * kTailCount;
  }
  if (a >= kSyllables && a < kSyllables + kSyllableCount && (a - kSyllables) % kTailCount == 0 && b > kTails &&
      b < kTails + kTailCount) {
    return a + (b - kTails);
  }
  const Composition* end = kCompositions + kCompositionsCount;
  const Composition* at = std::lower_bound(kCompositions, end, std::pair(a, b), [](const Composition& c, const auto& v) {
    return std::pair(c.first, c.second) < v;
  });
  return at != end && at->first == a && at->second == b ? at->composed : 0;
}

// Composes text in canonical order in place; the removed are cut off at the end.
void compose_all(std::vector<Mark>& text) {
  size_t size = 0;            // of what is composed
  size_t starter = SIZE_MAX;  // the last character of class 0 in it
  for (const Mark mark : text) {
    if (starter != SIZE_MAX) {
      // A mark is blocked from the starter by one between them of its class or a higher one.
      const bool adjacent = size == starter + 1;
      if (adjacent || (text[size - 1].combining_class != 0 && text[size - 1].combining_class < mark.combining_class)) {
        if (const uint32_t composed = compose(text[starter].code, mark.code)) {
          text[starter].code = composed;
          continue;
        }
      }
    }
    if (mark.combining_class == 0) starter = size;
    text[size++] = mark;
  }
  text.resize(size);
}

}  // namespace

std::string nfc(std::string_view text) {
  const auto plain = [](char c) { return static_cast<unsigned char>(c) < 0x80; };
  if (std::all_of(text.begin(), text.end(), plain)) return std::string(text);
  std::vector<Mark> marks;
  marks.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const Char c = char_at(text, at);
    decompose(c.code, marks);
    at += c.bytes;
  }
  for (auto first = marks.begin(); first != marks.end();) {
    if (first->combining_class == 0) {
      ++first;
      continue;
    }
    const auto last = std::find_if(first, marks.end(), [](const Mark& m) { return m.combining_class == 0; });
    std::stable_sort(first, last, [](const Mark& a, const Mark& b) { return a.combining_class < b.combining_class; });
    first = last;
  }
  compose_all(marks);
  std::string out;
  out.reserve(text.size());
  for (const Mark& mark : marks) append_utf8(out, mark.code);
  return out;
}

}  // namespace kpd::text
