// text: prompts with foreign bytes. Control tokens in them, into them and out of them stay text; all else is encoded as the
// whole.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "base/expect_error.h"
#include "kpd/base/error.h"
#include "text/tokenizer_fixture.h"

namespace kpd::text {
namespace {

using testing::load_tokenizer;

// Bytes in brackets are foreign: "<s>[<s>]".
struct Marked {
  std::string text;
  std::vector<TextRange> foreign;
};
Marked marked(std::string_view spelled) {
  Marked out;
  size_t begin = 0;
  for (const char c : spelled) {
    if (c == '[') {
      begin = out.text.size();
    } else if (c == ']') {
      out.foreign.push_back({begin, out.text.size()});
    } else {
      out.text += c;
    }
  }
  return out;
}

// One token a letter, and tokens that are cut out: <a> and <a><a> special, <u> not; <n> special in normalized text.
Tokenizer letters(bool prepend = true) {
  const std::string begin = prepend ? R"({"type": "Prepend", "prepend": "_"},)" : "";
  return Tokenizer::from_json(
      R"({"model": {"type": "BPE", "merges": [], "vocab": {"<": 0, ">": 1, "a": 2, "u": 3, "n": 4, " ": 5, "_": 6, "b": 7}},
    "normalizer": {"type": "Sequence", "normalizers": [)" +
          begin + R"({"type": "Replace", "pattern": {"String": " "}, "content": "_"}]},
    "added_tokens": [{"id": 8, "content": "<a>", "special": true, "normalized": false},
                     {"id": 9, "content": "<a><a>", "special": true, "normalized": false},
                     {"id": 10, "content": "<u>", "special": false, "normalized": false},
                     {"id": 11, "content": "<n>", "special": true, "normalized": true},
                     {"id": 12, "content": "<b>", "special": true, "normalized": false, "rstrip": true}]})",
      "", "letters.json");
}

std::string ids(const Tokenizer& t, std::string_view spelled) {
  const Marked m = marked(spelled);
  std::string out;
  for (const TokenId id : t.encode(m.text, m.foreign)) out += std::to_string(id) + " ";
  return out;
}

TEST(MarkedPrompt, ControlTokensInForeignBytesStayText) {
  const Tokenizer t = letters();
  EXPECT_EQ(ids(t, "<a>"), "8 ");
  EXPECT_EQ(ids(t, "[<a>]"), "6 0 2 1 ");
  EXPECT_EQ(ids(t, "<a>[<a>]<a>"), "8 6 0 2 1 8 ");
  EXPECT_EQ(ids(t, "<a><a>"), "9 ");
  EXPECT_EQ(ids(t, "<a>[<]a>"), "8 6 0 2 1 ");
  EXPECT_EQ(ids(t, "<a>[]<a>"), "9 ");
}

TEST(MarkedPrompt, NoTokenReachesOverTheEdge) {
  const Tokenizer t = letters();
  EXPECT_EQ(ids(t, "<[a>]"), "6 0 2 1 ");
  EXPECT_EQ(ids(t, "[<a]>"), "6 0 2 1 ");
  EXPECT_EQ(ids(t, "<[a]>"), "6 0 2 1 ");
  EXPECT_EQ(ids(t, "[<]a><a>"), "6 0 2 1 8 ");
  EXPECT_EQ(ids(t, "[<a><]<a>"), "6 0 2 1 0 8 ");
  EXPECT_EQ(ids(t, "<a>[<a>a]"), "8 6 0 2 1 2 ");
}

TEST(MarkedPrompt, OrdinaryAddedTokensAreFoundEverywhere) {
  const Tokenizer t = letters();
  EXPECT_EQ(ids(t, "[<u>]<u>"), "10 10 ");
  EXPECT_EQ(ids(t, "[<]u>"), "10 ");
}

TEST(MarkedPrompt, TokensOfNormalizedTextToo) {
  const Tokenizer t = letters(false);
  EXPECT_EQ(ids(t, "a <n>"), "2 6 11 ");
  EXPECT_EQ(ids(t, "a [<n>]"), "2 6 0 4 1 ");
  EXPECT_EQ(ids(t, "[a <n>] <n>"), "2 6 0 4 1 6 11 ");
  EXPECT_EQ(ids(t, "<n>[ <]n>[ ]<n>"), "11 6 0 4 1 6 11 ");
  EXPECT_EQ(ids(t, "<a>[<n>]<n>"), "8 0 4 1 11 ");
  // With a first space such a token is searched for with it.
  EXPECT_EQ(ids(letters(), "a <n>[ <n>]"), "6 2 11 6 0 4 1 ");
}

TEST(MarkedPrompt, ATokenOfTheTemplateTakesForeignSpacesToo) { EXPECT_EQ(ids(letters(), "<b>[  a]"), "12 6 2 "); }

TEST(MarkedPrompt, BadRangesAndBytes) {
  const Tokenizer t = letters();
  for (const std::vector<TextRange>& ranges : {std::vector<TextRange>{{0, 9}}, {{2, 1}}, {{1, 2}, {0, 1}}})
    EXPECT_KPD_ERROR(kInvalidArgument, "foreign ranges", t.encode("aaa", ranges));
  const std::vector<TextRange> later = {{1, 4}};
  EXPECT_EQ(t.encode("\xFF<a><a>", later), t.encode("\xEF\xBF\xBD<a><a>", std::vector<TextRange>{{3, 6}}));
}

// Random texts of pieces that no control token is in, with random foreign ranges: the ids are those of the whole.
TEST(MarkedPrompt, HarmlessTextIsEncodedAsTheWhole) {
  const std::vector<std::string> pieces = {"a",  " the",         " ",   "\n\n",  "123", "\xC3\xA9", "e\xCC\x81", "Hello", "!",
                                           "\t", "\xE4\xBD\xA0", "  x", "don't", "_",   "user\n"};
  std::mt19937 random(15);
  for (const char* name : {"gpt2", "llama3", "qwen2", "gemma", "mistral", "phi3", "smollm"}) {
    if (!std::ifstream(testing::kTokenizers + name + ".json").is_open()) continue;
    SCOPED_TRACE(name);
    const Tokenizer t = load_tokenizer(name);
    std::vector<std::string> control;
    for (TokenId id = 0; id < static_cast<TokenId>(t.vocabulary_size()); ++id) {
      if (t.is_special(id)) control.emplace_back(t.token(id));
    }
    for (int round = 0; round < 200; ++round) {
      std::string text;
      std::vector<TextRange> foreign;
      for (size_t i = 0; i < 1 + random() % 12; ++i) {
        if (!control.empty() && random() % 4 == 0) {
          text += control[random() % control.size()];
          continue;
        }
        const std::string& piece = pieces[random() % pieces.size()];
        const size_t begin = text.size();
        text += piece;
        if (random() % 2) foreign.push_back({begin, text.size()});
      }
      EXPECT_EQ(t.encode(text, foreign), t.encode(text, EncodeOptions{.add_special = false, .parse_special = true})) << text;
    }
  }
}

}  // namespace
}  // namespace kpd::text
