// gradient: the table of spec keys says what the parsers do: values, ranges and defaults of every method.
#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "kpd/base/error.h"
#include "kpd/gradient/codec.h"

namespace kpd::gradient {
namespace {

std::optional<WireParams> parsed(const std::string& text) {
  try {
    return Codec::parse(text).params();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument) << text;
    return std::nullopt;
  }
}

// Some values need another one beside them: dither=shared an entropy code.
bool accepted(const std::string& text) { return parsed(text) || parsed(text + ",code=entropy"); }

std::vector<std::string> split(std::string_view text, std::string_view separator) {
  std::vector<std::string> parts;
  for (size_t begin = 0, end = 0; end != std::string_view::npos; begin = end + separator.size()) {
    end = text.find(separator, begin);
    parts.emplace_back(text.substr(begin, end == std::string_view::npos ? end : end - begin));
  }
  return parts;
}

std::string number(double v) { return v == static_cast<int>(v) ? std::to_string(static_cast<int>(v)) : std::to_string(v); }

template <class Fn>
void for_each_key(const Fn& fn) {
  for (const MethodRow& row : methods()) {
    for (const SpecKey& key : row.keys) {
      const std::string prefix = std::string(row.name) + ":" + std::string(key.key) + "=";
      SCOPED_TRACE(prefix);
      fn(row, key, prefix);
    }
  }
}

TEST(SpecKeys, DefaultsAreWhatHoldsWithoutTheKey) {
  for_each_key([](const MethodRow& row, const SpecKey& key, const std::string& prefix) {
    const auto given = parsed(prefix + std::string(key.fallback)), absent = parsed(std::string(row.name));
    ASSERT_TRUE(absent.has_value());
    if (key.fallback.find(' ') != std::string_view::npos) {
      EXPECT_FALSE(given.has_value()) << "words where it depends, not " << key.fallback;
    } else {
      EXPECT_EQ(given, absent) << "default " << key.fallback;
    }
  });
}

TEST(SpecKeys, ValuesAreThoseThatParse) {
  int choices = 0, ranges = 0;
  for_each_key([&](const MethodRow&, const SpecKey& key, const std::string& prefix) {
    const std::string values = split(key.values, ",")[0];
    const std::vector<std::string> ends = split(values, ".."), words = split(values, "|");
    EXPECT_FALSE(accepted(prefix + "nothing"));
    if (words.size() > 1) {
      ++choices;
      for (const std::string& word : words) EXPECT_TRUE(accepted(prefix + word)) << word;
      return;
    }
    ++ranges;
    ASSERT_EQ(ends.size(), 2u) << key.values << ": expected A|B or A..B, then a note behind a comma";
    const double low = std::strtod(ends[0].c_str(), nullptr), high = std::strtod(ends[1].c_str(), nullptr);
    EXPECT_TRUE(accepted(prefix + ends[0]) && accepted(prefix + ends[1])) << key.values;
    EXPECT_FALSE(accepted(prefix + (low > 0 ? number(low / 2) : "-1"))) << key.values;
    EXPECT_FALSE(accepted(prefix + number(2 * high))) << key.values;
    EXPECT_FALSE(accepted(prefix + number(high + 1))) << key.values;
  });
  EXPECT_GT(choices, 4);
  EXPECT_GT(ranges, 10);
}

TEST(SpecKeys, AnUnknownKeyIsAnsweredWithThoseOfTheTable) {
  for (const MethodRow& row : methods()) {
    try {
      Codec::parse(std::string(row.name) + ":zzzzzz=1");
      FAIL() << row.name;
    } catch (const Error& e) {
      for (const SpecKey& key : row.keys) EXPECT_NE(std::string(e.what()).find(key.key), std::string::npos) << e.what();
    }
  }
}

}  // namespace
}  // namespace kpd::gradient
