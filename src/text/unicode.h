// text: UTF-8, classes of characters and canonical composition (NFC), as the Hugging Face tokenizers package has them: its
// answers are recorded in unicode_tables.cc, not a version of Unicode.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "kpd/base/utf8.h"

namespace kpd::text {

constexpr std::string_view kReplacementChar = "\xEF\xBF\xBD";  // U+FFFD

enum CharClass : uint8_t {
  kLetter = 1,        // \p{L} of the regex engine
  kNumber = 2,        // \p{N} of the regex engine
  kSpace = 4,         // White_Space
  kDigit = 8,         // what the step Digits cuts at
  kWordChar = 16,     // \w, for added tokens that are single words
  kPunctuation = 32,  // what the step Punctuation cuts at
};

// The bits of CharClass of a code point.
uint8_t char_class(uint32_t c);

// The code point at text[at] and its length in bytes; the text must be valid UTF-8 and `at` the start of a character.
struct Char {
  uint32_t code;
  uint32_t bytes;
};
inline Char char_at(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<unsigned char>(text[at + i])); };
  const uint32_t b = byte(0);
  if (b < 0x80) return {b, 1};
  if (b < 0xE0) return {(b & 0x1F) << 6 | (byte(1) & 0x3F), 2};
  if (b < 0xF0) return {(b & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), 3};
  return {(b & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F), 4};
}

// The start of the character before `at` > 0.
inline size_t char_before(std::string_view text, size_t at) {
  do {
    --at;
  } while ((static_cast<unsigned char>(text[at]) & 0xC0) == 0x80);
  return at;
}

bool is_utf8(std::string_view text);
// Every maximal part of a malformed sequence becomes one U+FFFD (Unicode 3.9, "Substitution of Maximal Subparts"). With
// `incomplete`, a sequence that only lacks its end at the end of the text is left out and *incomplete is its length.
std::string lossy_utf8(std::string_view text, size_t* incomplete = nullptr);

// Normalisation form C of valid UTF-8.
std::string nfc(std::string_view text);

}  // namespace kpd::text
