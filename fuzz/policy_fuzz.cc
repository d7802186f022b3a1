// fuzz: codecs as users and checkpoints write them: a line is a spec or PATTERN=SPEC. An input that begins with '\1' is a
// pattern, a line end and a name, which a plain matcher decides too. Anything thrown but kpd::Error of one line is a finding,
// as is a policy that its own text does not give back.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kpd/base/error.h"
#include "kpd/gradient/codec.h"
#include "kpd/gradient/codec_policy.h"

namespace {

using namespace kpd;
using namespace kpd::gradient;

// Row after row: whether the pattern's first p characters match the name's first n.
bool plain_match(std::string_view pattern, std::string_view name) {
  std::vector<uint8_t> row(name.size() + 1, 0), next(name.size() + 1);
  row[0] = 1;
  for (const char c : pattern) {
    next[0] = c == '*' && row[0] != 0;
    for (size_t n = 1; n <= name.size(); ++n) {
      next[n] = c == '*' ? (row[n] | next[n - 1]) : ((c == '?' || c == name[n - 1]) ? row[n - 1] : 0);
    }
    row.swap(next);
  }
  return row[name.size()] != 0;
}

void match(std::string_view text) {
  const size_t line = text.find('\n');
  if (line == std::string_view::npos) return;
  const std::string_view pattern = text.substr(0, line), name = text.substr(line + 1);
  CodecPolicy policy;
  policy.by_name.emplace_back(std::string(pattern), Codec());
  if ((&policy.of(name) != &policy.base) != plain_match(pattern, name)) __builtin_trap();
}

void parse(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty() && lines.size() < 8) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  const CodecPolicy policy = CodecPolicy::parse(lines);
  std::vector<std::string> again;
  for (const auto& [pattern, codec] : policy.by_name) again.push_back(pattern + "=" + codec.text());
  again.push_back(policy.base.text());
  const CodecPolicy back = CodecPolicy::parse(again);
  if (back.text() != policy.text() || !(back.base.params() == policy.base.params())) __builtin_trap();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    text.starts_with('\1') ? match(text.substr(1)) : parse(text);
  } catch (const Error& e) {
    const std::string_view what(e.what());
    if (what.find('\n') != std::string_view::npos) __builtin_trap();
  }
  return 0;
}
