// text: case of characters, as Python's str methods change it.
#include "text/jinja_unicode.h"

#include <algorithm>
#include <span>

#include "text/unicode.h"

namespace kpd::text::jinja {
namespace {

constexpr uint32_t kSigma = 0x3A3;
constexpr std::string_view kFinalSigma = "\xCF\x82", kSmallSigma = "\xCF\x83";

bool in_table(std::span<const CharRange> table, uint32_t code) {
  const auto after =
      std::upper_bound(table.begin(), table.end(), code, [](uint32_t c, const CharRange& r) { return c < r.first; });
  return after != table.begin() && code <= std::prev(after)->last;
}

bool is_ascii_lower(uint32_t c) { return c >= 'a' && c <= 'z'; }
bool is_ascii_upper(uint32_t c) { return c >= 'A' && c <= 'Z'; }

struct CaseTables {
  std::span<const CaseRun> runs{};
  std::span<const CaseSpecial> specials{};
  bool to_lower = false;
};
CaseTables to_lower() { return {{kToLower, kToLowerSize}, {kToLowerSpecial, kToLowerSpecialSize}, true}; }
CaseTables to_upper() { return {{kToUpper, kToUpperSize}, {kToUpperSpecial, kToUpperSpecialSize}, false}; }
CaseTables to_title() { return {{kToTitle, kToTitleSize}, {kToTitleSpecial, kToTitleSpecialSize}, false}; }

std::string mapped(const CaseTables& tables, uint32_t code) {
  std::string out;
  if (code < 0x80) {
    const bool changes = tables.to_lower ? is_ascii_upper(code) : is_ascii_lower(code);
    return std::string(1, static_cast<char>(changes ? code ^ 0x20 : code));
  }
  const auto special = std::lower_bound(tables.specials.begin(), tables.specials.end(), code,
                                        [](const CaseSpecial& s, uint32_t c) { return s.code < c; });
  if (special != tables.specials.end() && special->code == code) return special->to;
  // Runs with a step of 2 may lie within one another, two deep.
  const auto after =
      std::upper_bound(tables.runs.begin(), tables.runs.end(), code, [](uint32_t c, const CaseRun& r) { return c < r.first; });
  for (auto run = after; run != tables.runs.begin() && after - run < 4;) {
    --run;
    if (code > run->last || (code - run->first) % run->step != 0) continue;
    append_utf8(out, static_cast<uint32_t>(static_cast<int64_t>(code) + run->delta));
    return out;
  }
  append_utf8(out, code);
  return out;
}

bool is_ignorable(uint32_t code) {
  if (code < 0x80) return code == '\'' || code == '.' || code == ':' || code == '^' || code == '`';
  return in_table({kCaseIgnorable, kCaseIgnorableSize}, code);
}

// A capital sigma at the end of a word: a cased letter before it, none after it, ignorable characters aside.
bool is_final_sigma(std::string_view text, size_t at) {
  size_t before = at;
  uint32_t code = 0;
  do {
    if (before == 0) return false;
    before = char_before(text, before);
    code = char_at(text, before).code;
  } while (is_ignorable(code) && !is_cased(code));
  if (!is_cased(code)) return false;
  for (size_t after = at + 2; after < text.size();) {
    const Char c = char_at(text, after);
    if (is_cased(c.code)) return false;
    if (!is_ignorable(c.code)) return true;
    after += c.bytes;
  }
  return true;
}

void append_mapped(Text& out, const Text& text, size_t at, const Char& c, const CaseTables& tables) {
  if (tables.to_lower && c.code == kSigma) {
    out.append(is_final_sigma(text.view(), at) ? kFinalSigma : kSmallSigma, text.foreign_at(at));
  } else {
    out.append(mapped(tables, c.code), text.foreign_at(at));
  }
}

// tables_of(code) is asked character by character, in order.
template <class Fn>
Text map_case(const Text& text, const Fn& tables_of) {
  Text out;
  for (size_t at = 0; at < text.size();) {
    const Char c = char_at(text.view(), at);
    append_mapped(out, text, at, c, tables_of(c.code));
    at += c.bytes;
  }
  return out;
}

}  // namespace

bool is_printable(uint32_t c) { return c < 0x80 ? c >= 0x20 && c < 0x7F : !in_table({kNotPrintable, kNotPrintableSize}, c); }
bool is_lower(uint32_t c) { return c < 0x80 ? is_ascii_lower(c) : in_table({kLower, kLowerSize}, c); }
bool is_upper(uint32_t c) { return c < 0x80 ? is_ascii_upper(c) : in_table({kUpper, kUpperSize}, c); }
bool is_title(uint32_t c) {
  std::string same;
  append_utf8(same, c);
  return c >= 0x80 && is_upper(c) && mapped(to_upper(), c) != same;
}
bool is_cased(uint32_t c) { return c < 0x80 ? is_ascii_lower(c) || is_ascii_upper(c) : in_table({kCased, kCasedSize}, c); }

Text lower(const Text& text) {
  return map_case(text, [](uint32_t) { return to_lower(); });
}

Text upper(const Text& text) {
  return map_case(text, [](uint32_t) { return to_upper(); });
}

Text swapcase(const Text& text) {
  return map_case(text, [](uint32_t c) { return is_title(c) ? CaseTables{} : is_upper(c) ? to_lower() : to_upper(); });
}

Text title(const Text& text) {
  bool in_word = false;
  return map_case(text, [&](uint32_t c) {
    const CaseTables tables = in_word ? to_lower() : to_title();
    in_word = is_cased(c);
    return tables;
  });
}

Text capitalize(const Text& text) {
  bool first = true;
  return map_case(text, [&](uint32_t) {
    const CaseTables tables = first ? to_title() : to_lower();
    first = false;
    return tables;
  });
}

}  // namespace kpd::text::jinja
