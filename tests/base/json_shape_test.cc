// tests: depth and parts of a JSON text, counted without parsing it.
#include "kpd/base/json_shape.h"

#include <gtest/gtest.h>

#include <string>

namespace kpd {
namespace {

void expect(std::string_view text, size_t depth, size_t parts) {
  const JsonShape shape = json_shape(text);
  EXPECT_EQ(shape.depth, depth) << text;
  EXPECT_EQ(shape.parts, parts) << text;
}

TEST(JsonShape, CountsLevelsAndParts) {
  expect("", 0, 0);
  expect("17", 0, 0);
  expect("\"a\"", 0, 1);
  expect("[1, 2.5e3, true, null]", 1, 1);
  expect("{\"a\": [[], {}], \"b\": \"c\"}", 3, 7);
  expect("[[1], [[2]], 3]", 3, 4);
}

TEST(JsonShape, TextsHaveNoShape) {
  expect(R"(["[[[{{{", "}]", "\"[", "\\", "[\\\"["])", 1, 6);
  expect(R"({"\u005b": "é\n"})", 1, 3);
}

TEST(JsonShape, OtherTextsEnd) {
  json_shape("]]]]}}");
  json_shape("\"never ended [");
  json_shape("\"\\");
  EXPECT_EQ(json_shape(std::string(1000000, '[')).depth, 1000000u);
}

}  // namespace
}  // namespace kpd
