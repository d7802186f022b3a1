// Ids of large texts, of every Unicode block and of a million characters without a space, against the hashes recorded for them.
#include <cstdlib>
#include <filesystem>

#include "text/tokenizer_words.h"

namespace kpd::text {
namespace {

class Large : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const char* path = variable() ? getenv(variable()) : "";
    if (!path || (variable() && !std::filesystem::exists(path))) GTEST_SKIP() << variable() << " names no file";
  }
  std::string name() const { return GetParam(); }
  // The tokenizers of real models are not in the repository.
  const char* variable() const {
    return name() == "smollm2" ? "KPD_SMOLLM2_GGUF" : name() == "scored_gemma3" ? "KPD_GEMMA3_GGUF" : nullptr;
  }
  Tokenizer load() const {
    if (!variable()) return testing::load_tokenizer(name());
    return Tokenizer::from_gguf(io::load_gguf_metadata(getenv(variable())));
  }
};
INSTANTIATE_TEST_SUITE_P(All, Large,
                         ::testing::Values("gpt2", "smollm", "llama3", "qwen2", "cased", "llama2", "mistral", "gemma", "t5like",
                                           "scored", "scored_plain", "smollm2", "scored_gemma3"),
                         [](const auto& p) { return std::string(p.param); });

TEST_P(Large, EveryUnicodeBlock) {
  const Tokenizer tokenizer = load();
  testing::IdHash hash;
  for (uint32_t first = name().starts_with("scored") ? 0x100 : 0; first < 0x32400; first += 256) {
    if (first >= 0xD800 && first < 0xE000) continue;
    hash.add(tokenizer.encode(testing::block_text(first), testing::options_for(name())));
  }
  EXPECT_EQ(hash.text(), testing::read_expected(name()).hashes.at("blocks"));
}

class Unbroken : public Large {};
INSTANTIATE_TEST_SUITE_P(Some, Unbroken, ::testing::Values("gpt2", "llama2", "scored", "smollm2"),
                         [](const auto& p) { return std::string(p.param); });

TEST_P(Unbroken, AMillionCharactersWithoutASpace) {
  testing::Lcg lcg;
  std::string text;
  for (int i = 0; i < 1'000'000; ++i) text += static_cast<char>('a' + lcg.below(16));
  testing::IdHash hash;
  hash.add(load().encode(text, testing::options_for(name())));
  EXPECT_EQ(hash.text(), testing::read_expected(name()).hashes.at("no_space"));
}

TEST_P(Large, Texts) {
  const char* shared = getenv("KPD_SHARED_DATA");
  if (!shared) GTEST_SKIP() << "KPD_SHARED_DATA names no folder";
  const Tokenizer tokenizer = load();
  size_t compared = 0;
  for (const auto& [input, expected] : testing::read_expected(name()).hashes) {
    const std::string path = std::string(shared) + "/text/" + input;
    if (!std::filesystem::exists(path)) continue;
    testing::IdHash hash;
    hash.add(tokenizer.encode(testing::read_text(path), testing::options_for(name())));
    EXPECT_EQ(hash.text(), expected) << input;
    ++compared;
  }
  EXPECT_GT(compared, 0u) << "no text of the recorded names under " << shared;
}

// Runs of spaces are tokens of their own: a file of code has half the tokens that its single spaces would make.
TEST_P(Large, MixedText) {
  EXPECT_EQ(load().encode(testing::read_text(testing::kTokenizers + "mixed.txt"), testing::options_for(name())),
            testing::read_expected(name()).mixed);
}

class LargeWords : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(All, LargeWords, ::testing::ValuesIn(testing::word_cuts()), testing::word_cut_name);

TEST_P(LargeWords, EveryUnicodeBlock) {
  const Tokenizer tokenizer = testing::word_tokenizer(GetParam(), testing::is_gguf_name(GetParam()));
  testing::IdHash hash;
  for (uint32_t first = 0; first < 0x32400; first += 256) {
    if (first >= 0xD800 && first < 0xE000) continue;
    hash.add(tokenizer.encode(testing::block_text(first)));
  }
  EXPECT_EQ(hash.text(), testing::read_expected("words").hashes.at(GetParam() + "/blocks"));
}

}  // namespace
}  // namespace kpd::text
