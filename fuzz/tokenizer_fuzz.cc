// fuzz: text's tokenizers. The input is a tokenizer.json, a zero byte, and a text to encode; where the first part is no
// tokenizer, nothing more happens. Anything thrown but kpd::Error is a finding, as are ids outside the vocabulary, texts that
// are not UTF-8, and a stream that gives another text than decode().
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "kpd/base/error.h"
#include "kpd/text/tokenizer.h"
#include "text/unicode.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t end = std::min(input.find('\0'), size);
  try {
    const auto tokenizer = kpd::text::Tokenizer::from_json(input.substr(0, end), "", "input.json");
    const std::string_view text = end < size ? input.substr(end + 1) : std::string_view("a b\xE2\x82\xAC 12");
    for (const bool special : {true, false}) {
      const auto ids = tokenizer.encode(text, {special, special});
      for (const auto id : ids) {
        if (id < 0 || static_cast<size_t>(id) >= tokenizer.vocabulary_size()) __builtin_trap();
      }
      kpd::text::TokenStream stream(tokenizer, special);
      std::string joined;
      for (const auto id : ids) {
        const std::string piece = stream.push(id);
        if (!kpd::text::is_utf8(piece)) __builtin_trap();
        joined += piece;
      }
      joined += stream.finish();
      if (joined != tokenizer.decode(ids, special) || !kpd::text::is_utf8(joined)) __builtin_trap();
    }
  } catch (const kpd::Error&) {
  }
  return 0;
}
