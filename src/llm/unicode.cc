// llm: UTF-8 and classes of characters.
#include "llm/unicode.h"

#include <array>
#include <vector>

#include "llm/unicode_tables.h"

namespace kpd::llm {
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

// The length of the longest start of a well-formed character at text[at] that is there, and whether it is a whole one.
struct Sequence {
  uint32_t bytes;
  bool whole;
  bool cut;  // not whole because the text ends
};

Sequence sequence_at(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[at + i]); };
  const unsigned char b = byte(0);
  if (b < 0x80) return {1, true, false};
  if (b < 0xC2 || b > 0xF4) return {1, false, false};
  const uint32_t length = b < 0xE0 ? 2 : b < 0xF0 ? 3 : 4;
  // The second byte's range excludes overlong forms, surrogates and what is beyond U+10FFFF.
  const unsigned char low = b == 0xE0 ? 0xA0 : b == 0xF0 ? 0x90 : 0x80;
  const unsigned char high = b == 0xED ? 0x9F : b == 0xF4 ? 0x8F : 0xBF;
  for (uint32_t i = 1; i < length; ++i) {
    if (at + i == text.size()) return {i, false, true};
    if (byte(i) < (i == 1 ? low : 0x80) || byte(i) > (i == 1 ? high : 0xBF)) return {i, false, false};
  }
  return {length, true, false};
}

}  // namespace

uint8_t char_class(uint32_t c) {
  static const ClassTable table;
  return table.at(c);
}

void append_utf8(std::string& out, uint32_t code) {
  const auto put = [&](uint32_t byte) { out += static_cast<char>(byte); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | code >> 6);
    put(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    put(0xE0 | code >> 12);
    put(0x80 | (code >> 6 & 0x3F));
    put(0x80 | (code & 0x3F));
  } else {
    put(0xF0 | code >> 18);
    put(0x80 | (code >> 12 & 0x3F));
    put(0x80 | (code >> 6 & 0x3F));
    put(0x80 | (code & 0x3F));
  }
}

bool is_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const Sequence s = sequence_at(text, at);
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
    const Sequence s = sequence_at(text, at);
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

}  // namespace kpd::llm
