// base: letters of ASCII, whatever the locale says.
#pragma once

#include <string>
#include <string_view>

namespace kpd {

constexpr char ascii_lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

inline std::string ascii_lower(std::string_view text) {
  std::string low(text);
  for (char& c : low) c = ascii_lower(c);
  return low;
}

}  // namespace kpd
