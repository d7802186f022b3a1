// text: see kpd/text/text_file.h.
#include "kpd/text/text_file.h"

namespace kpd::text {

std::string_view without_byte_order_mark(std::string_view bytes) {
  constexpr std::string_view kMark = "\xEF\xBB\xBF";
  if (bytes.starts_with(kMark)) bytes.remove_prefix(kMark.size());
  return bytes;
}

std::string with_unix_lines(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] != '\r') {
      out += text[at];
    } else if (at + 1 == text.size() || text[at + 1] != '\n') {
      out += '\n';
    }
  }
  return out;
}

std::string prompt_of_file(std::string_view bytes) {
  std::string text = with_unix_lines(without_byte_order_mark(bytes));
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

}  // namespace kpd::text
