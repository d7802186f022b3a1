// How texts are cut into words: ids of one vocabulary whose merges cross every cut, for every name of a pre-tokenizer and for
// the same steps in a tokenizer.json, against those of the Hugging Face tokenizers package (tests/golden/make_words.py).
#include <nlohmann/json.hpp>

#include "base/expect_error.h"
#include "text/pre_tokenizer_names.h"
#include "text/regex.h"
#include "text/tokenizer_words.h"

namespace kpd::text {
namespace {

using nlohmann::json;

class Words : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(All, Words, ::testing::ValuesIn(testing::word_cuts()), testing::word_cut_name);

TEST_P(Words, IdsOfTexts) {
  const auto expected = testing::read_expected("words");
  for (const bool gguf : {false, true}) {
    if (gguf && !testing::is_gguf_name(GetParam())) continue;
    SCOPED_TRACE(gguf ? "GGUF" : "tokenizer.json");
    const Tokenizer tokenizer = testing::word_tokenizer(GetParam(), gguf);
    testing::IdHash mixed, random;
    mixed.add(tokenizer.encode(testing::read_text(testing::kTokenizers + "mixed.txt")));
    EXPECT_EQ(mixed.text(), expected.hashes.at(GetParam() + "/mixed"));
    const json pool = json::parse(testing::read_text(testing::kTokenizers + "words.pool"));
    testing::Lcg lcg;
    for (int i = 0; i < 500; ++i) {
      std::string text;
      for (uint32_t n = 1 + lcg.below(24); n > 0; --n) {
        text += pool[lcg.below(static_cast<uint32_t>(pool.size()))].get_ref<const std::string&>();
      }
      random.add(tokenizer.encode(text));
    }
    EXPECT_EQ(random.text(), expected.hashes.at(GetParam() + "/random"));
  }
}

// Every name cuts as one of those that are compared above.
TEST(WordNames, AllAreCompared) {
  std::vector<std::span<const CutStep>> compared;
  for (const std::string& name : testing::word_cuts()) {
    if (testing::is_gguf_name(name)) compared.push_back(find_pre_tokenizer(name)->steps);
  }
  std::string names = pre_tokenizer_names();
  size_t count = 0;
  for (size_t at = 0; at < names.size(); ++count) {
    const size_t end = std::min(names.find(", ", at), names.size());
    const PreTokenizerName* name = find_pre_tokenizer(names.substr(at, end - at));
    ASSERT_NE(name, nullptr);
    EXPECT_TRUE(std::any_of(compared.begin(), compared.end(), [&](const auto& s) { return s.data() == name->steps.data(); }))
        << name->name;
    at = end + 2;
  }
  EXPECT_GT(count, 40u);
  EXPECT_EQ(find_pre_tokenizer("kimi-k2"), nullptr);
}

// What Oniguruma reads otherwise than PCRE2 and cannot be spelled out: silently it would be another expression.
TEST(Expressions, AreRefusedWhereTheyWouldMeanSomethingElse) {
  const auto refuse = [](const char* expression, const char* part) {
    EXPECT_KPD_ERROR(kUnsupported, part, translate_regex(expression, "t.json: pattern"));
  };
  refuse(R"([\p{L}&&[^\p{Han}]]+)",
         "t.json: pattern: the regular expression '[\\p{L}&&[^\\p{Han}]]+' holds an intersection of "
         "sets at byte 6");
  refuse("[a[^b]]", "a set within a set at byte 2");
  refuse("[[:alpha:]]", "a set within a set");
  refuse(R"([\W_])", "'\\W' within a set");
  refuse(R"(\X)", "'\\X'");
  refuse(R"(a|(?i)b)", "an option that is not at its start");
  refuse("(?s:.)", "an unknown option");
  refuse("[a", "a '[' that is not closed");
  refuse("a\\", "a '\\' at its end");
}

}  // namespace
}  // namespace kpd::text
