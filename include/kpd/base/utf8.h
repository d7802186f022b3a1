// base: characters in UTF-8 (Unicode 15, table 3-7).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace kpd {

// The length of the longest start of a well-formed character at text[at] that is there, and whether it is a whole one.
struct Utf8Sequence {
  uint32_t bytes;
  bool whole;
  bool cut;  // not whole because the text ends
};

inline Utf8Sequence utf8_sequence_at(std::string_view text, size_t at) {
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

// `code` is a scalar value: at most U+10FFFF, no surrogate.
inline void append_utf8(std::string& out, uint32_t code) {
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

}  // namespace kpd
