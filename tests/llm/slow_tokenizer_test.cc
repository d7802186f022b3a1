// Ids of large texts, of every Unicode block and of a million characters without a space, against the hashes recorded for them.
#include <cstdlib>
#include <filesystem>

#include "llm/tokenizer_fixture.h"

namespace kpd::llm {
namespace {

class Large : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    // A real model's tokenizer is not in the repository.
    if (name() == "smollm2" && !getenv("KPD_SMOLLM2_GGUF")) GTEST_SKIP() << "KPD_SMOLLM2_GGUF names no file";
  }
  std::string name() const { return GetParam(); }
  Tokenizer load() const {
    if (name() != "smollm2") return testing::load_tokenizer(name());
    return Tokenizer::from_gguf(io::load_gguf_metadata(getenv("KPD_SMOLLM2_GGUF")));
  }
};
INSTANTIATE_TEST_SUITE_P(All, Large,
                         ::testing::Values("gpt2", "smollm", "llama3", "qwen2", "cased", "llama2", "mistral", "gemma", "t5like",
                                           "scored", "scored_plain", "smollm2"),
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

}  // namespace
}  // namespace kpd::llm
