// text: what a file of text says, whichever editor wrote it.
#pragma once

#include <string>
#include <string_view>

namespace kpd::text {

// Without a byte order mark of UTF-8 at its start.
std::string_view without_byte_order_mark(std::string_view bytes);

// CR LF and CR as LF: what Python's text mode reads, and so what transformers and lm-eval see.
std::string with_unix_lines(std::string_view text);

// A prompt in a file: without byte order mark, with Unix lines, without the last line's end, which editors put there.
std::string prompt_of_file(std::string_view bytes);

}  // namespace kpd::text
