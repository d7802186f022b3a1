// io: text from files and command lines, made safe for one line of an error.
#pragma once

#include <string>
#include <string_view>

namespace kpd::io {

// At most max_bytes, control characters replaced.
inline std::string printable(std::string_view text, size_t max_bytes = 80) {
  std::string out(text.substr(0, max_bytes));
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  if (text.size() > max_bytes) out += "...";
  return out;
}

inline std::string printable_path(std::string_view path) { return printable(path, 1024); }

}  // namespace kpd::io
