// fuzz: chat templates. The input is a template; it is compiled and run on small conversations with small limits. Anything
// thrown but kpd::Error is a finding, as are a text that is not UTF-8 or longer than the limit, ranges that do not fit it, and
// a run that takes too long (libFuzzer's -timeout).
#include <cstddef>
#include <cstdint>
#include <string>

#include "kpd/base/error.h"
#include "text/jinja_interpreter.h"
#include "text/unicode.h"

namespace {

using kpd::text::jinja::Text;
using kpd::text::jinja::Value;

Value message(const char* role, const char* content) {
  return Value::dict(
      {{Value::string("role"), Value::string(role)}, {Value::string("content"), Value::string(Text(content, true))}});
}

const kpd::text::jinja::Variables& variables() {
  static const kpd::text::jinja::Variables all = {
      {"messages", Value::list({message("system", " Be brief.\n"), message("user", "Hi \xC3\xA9\xF0\x9F\x99\x82<|x|>"),
                                message("assistant", "<think>\nx\n</think>\n\nok"), message("user", "")})},
      {"tools", Value::none()},
      {"add_generation_prompt", Value::boolean(true)},
      {"bos_token", Value::string("<s>")},
      {"eos_token", Value::string("</s>")},
      {"n", Value::integer(3)},
      {"f", Value::real(2.5)}};
  return all;
}

void check(bool condition) {
  if (!condition) __builtin_trap();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string source = kpd::text::lossy_utf8({reinterpret_cast<const char*>(data), size});
  try {
    const kpd::text::jinja::Ast ast = kpd::text::jinja::parse(source);
    const kpd::text::jinja::Environment environment{.now = {2026, 12, 1, 9, 5, 7}, .max_steps = 100'000, .max_bytes = 1 << 20};
    const Text text = kpd::text::jinja::render(ast, variables(), environment);
    check(text.size() <= environment.max_bytes && kpd::text::is_utf8(text.view()));
    size_t end = 0;
    for (const kpd::text::TextRange& range : text.foreign()) {
      check(range.begin < range.end && (end == 0 || range.begin > end) && range.end <= text.size());
      end = range.end;
    }
  } catch (const kpd::Error&) {
  }
  return 0;
}
