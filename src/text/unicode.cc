// text: UTF-8 and classes of characters.
#include "text/unicode.h"

#include <array>
#include <vector>

#include "kpd/base/utf8.h"
#include "text/unicode_tables.h"

namespace kpd::text {
namespace {

// Classes of all code points as pages of 256; equal pages are not shared: only those that hold a class are kept.
class ClassTable {
 public:
  ClassTable() : pages_(1) {
    add(kLetters, kLettersCount, kLetter);
    add(kNumbers, kNumbersCount, kNumber);
    add(kSpaces, kSpacesCount, kSpace);
    add(kDigits, kDigitsCount, kDigit);
    add(kWordChars, kWordCharsCount, kWordChar);
    add(kPunctuations, kPunctuationsCount, kPunctuation);
  }
  uint8_t at(uint32_t c) const { return c < 0x110000 ? pages_[page_[c >> 8]][c & 0xFF] : uint8_t{0}; }

 private:
  void add(const CharRange* ranges, size_t count, uint8_t bit) {
    for (size_t i = 0; i < count; ++i) {
      for (uint32_t c = ranges[i].first; c <= ranges[i].last; ++c) {
        uint16_t& page = page_[c >> 8];
        if (page == 0) {
          page = static_cast<uint16_t>(pages_.size());
          pages_.emplace_back();
        }
        pages_[page][c & 0xFF] |= bit;
      }
    }
  }

  std::array<uint16_t, 0x1100> page_{};
  std::vector<std::array<uint8_t, 256>> pages_;  // page 0: no class at all
};

}  // namespace

uint8_t char_class(uint32_t c) {
  static const ClassTable table;
  return table.at(c);
}

bool is_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const Utf8Sequence s = utf8_sequence_at(text, at);
    if (!s.whole) return false;
    at += s.bytes;
  }
  return true;
}

std::string lossy_utf8(std::string_view text, size_t* incomplete) {
  if (incomplete) *incomplete = 0;
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const Utf8Sequence s = utf8_sequence_at(text, at);
    if (s.whole) {
      out += text.substr(at, s.bytes);
    } else if (s.cut && incomplete) {
      *incomplete = s.bytes;
    } else {
      out += kReplacementChar;
    }
    at += s.bytes;
  }
  return out;
}

}  // namespace kpd::text
