// What GGUF files say of their tokenizers, and what they leave out.
#include <algorithm>

#include "base/expect_error.h"
#include "io/temp_folder.h"
#include "kpd/text/tokenizer_export.h"
#include "text/tokenizer_words.h"

namespace kpd::text {
namespace {

using Ids = std::vector<TokenId>;

template <class T>
T& value(io::GgufMetadata& m, const char* key) {
  const auto it = std::find_if(m.values.begin(), m.values.end(), [&](const auto& v) { return v.first == key; });
  return std::get<T>(it->second);
}

void remove(io::GgufMetadata& m, const char* key) {
  std::erase_if(m.values, [&](const auto& v) { return v.first == key; });
}

// Converters spell spaces in a user's tokens as they are; older ones wrote the mark that texts have by then.
TEST(GgufTokenizer, SpacesOfUserTokensAreFoundHoweverTheyAreSpelled) {
  io::GgufMetadata m = io::load_gguf_metadata(testing::kTokenizers + "scored_plain.gguf");
  const Tokenizer marks = Tokenizer::from_gguf(m);
  auto& tokens = value<std::vector<std::string>>(m, "tokenizer.ggml.tokens");
  const auto types = m.integers("tokenizer.ggml.token_type");
  size_t spelled = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    constexpr std::string_view kMark = "\u2581";
    for (size_t at; types[i] == 4 && (at = tokens[i].find(kMark)) != std::string::npos; ++spelled) {
      tokens[i].replace(at, kMark.size(), " ");
    }
  }
  ASSERT_EQ(spelled, 2u);
  const Tokenizer spaces = Tokenizer::from_gguf(m);
  const TokenId two = spaces.find("  ").value();
  const auto ids = spaces.encode("a    b", {false, false});
  EXPECT_EQ(std::count(ids.begin(), ids.end(), two), 2);
  EXPECT_EQ(spaces.decode(ids), "a    b");
  const auto expected = testing::read_expected("scored_plain");
  const std::string mixed = testing::read_text(testing::kTokenizers + "mixed.txt");
  EXPECT_EQ(spaces.encode(mixed, {true, false}), expected.mixed);
  EXPECT_EQ(marks.encode(mixed, {true, false}), expected.mixed);
  // With parse_special off and on: these are no special tokens.
  EXPECT_EQ(spaces.encode("  x"), marks.encode("  x"));
}

class GgufExport : public testing::TempFolder {};

TEST_F(GgufExport, SpacesOfUserTokensStayFound) {
  io::GgufMetadata m = io::load_gguf_metadata(testing::kTokenizers + "scored_plain.gguf");
  auto& tokens = value<std::vector<std::string>>(m, "tokenizer.ggml.tokens");
  *std::find(tokens.begin(), tokens.end(), "\u2581\u2581") = "  ";
  const Tokenizer before = Tokenizer::from_gguf(m);
  write_tokenizer_directory(m, path("new"));
  const Tokenizer after = Tokenizer::from_directory(path("new"));
  for (const char* text : {"def f():\n    return 1\n\n\n  x", "     ", "a  b"}) {
    EXPECT_EQ(after.encode(text), before.encode(text)) << text;
  }
}

TEST(GgufTokenizer, FilesWithoutAPreTokenizerAreRefusedWhereGpt2sIsKnownToBeWrong) {
  const auto load = [](const char* architecture, const char* pre) {
    io::GgufMetadata m = testing::word_metadata(pre);
    if (!*pre) remove(m, "tokenizer.ggml.pre");
    if (*architecture) m.values.emplace_back("general.architecture", std::string(architecture));
    return Tokenizer::from_gguf(m);
  };
  EXPECT_KPD_ERROR(kCorruptData, "m.gguf: tokenizer.ggml.pre is missing, expected 'qwen2', as files of 'qwen3' have it",
                   load("qwen3", ""));
  EXPECT_KPD_ERROR(kCorruptData, "tokenizer.ggml.pre is 'default', expected 'qwen2', as files of 'qwen2'",
                   load("qwen2", "default"));
  EXPECT_KPD_ERROR(kCorruptData, "expected 'dbrx' or 'gpt-4o', as files of 'phi3'", load("phi3", ""));
  // Right for some, unknown for others: said, not refused.
  EXPECT_TRUE(load("gpt2", "").notes().empty());
  const Tokenizer llama = load("llama", "");
  ASSERT_EQ(llama.notes().size(), 1u);
  EXPECT_NE(llama.notes()[0].find("tokenizer.ggml.pre is missing; texts are cut into words as GPT-2's"), std::string::npos);
  EXPECT_EQ(llama.encode("don't 12"), load("llama", "gpt-2").encode("don't 12"));
  EXPECT_EQ(load("", "default").notes().size(), 1u);
  EXPECT_TRUE(load("qwen2", "qwen2").notes().empty());
}

TEST(GgufTokenizer, ALlama3FileWithoutAPreTokenizerIsRefused) {
  io::GgufMetadata m = testing::word_metadata("");
  remove(m, "tokenizer.ggml.pre");
  m.values.emplace_back("general.architecture", std::string("llama"));
  value<std::vector<std::string>>(m, "tokenizer.ggml.tokens").push_back("<|begin_of_text|>");
  value<std::vector<int64_t>>(m, "tokenizer.ggml.token_type").push_back(3);
  EXPECT_KPD_ERROR(kCorruptData, "tokenizer.ggml.pre is missing, expected 'llama-bpe'", Tokenizer::from_gguf(m));
}

TEST(GgufTokenizer, SpecialTokensTypedAsNormalAreSpecialAndSaid) {
  for (const bool has_types : {true, false}) {
    SCOPED_TRACE(has_types);
    io::GgufMetadata m = testing::word_metadata("gpt-2");
    auto& tokens = value<std::vector<std::string>>(m, "tokenizer.ggml.tokens");
    const auto first = static_cast<TokenId>(tokens.size());
    tokens.insert(tokens.end(), {"<|im_start|>", "<|im_end|>", "<|x"});
    value<std::vector<int64_t>>(m, "tokenizer.ggml.token_type").resize(tokens.size(), 1);
    if (!has_types) remove(m, "tokenizer.ggml.token_type");
    const Tokenizer t = Tokenizer::from_gguf(m);
    EXPECT_EQ(t.encode("<|im_start|><|im_end|>"), (Ids{first, first + 1}));
    EXPECT_TRUE(t.is_special(first));
    EXPECT_FALSE(t.is_special(first + 2));
    EXPECT_TRUE(std::ranges::equal(t.end_of_turn(), Ids{0, first + 1}));
    ASSERT_EQ(t.notes().size(), has_types ? 1u : 2u);
    EXPECT_EQ(t.notes().back(),
              "tokenizer.ggml.token_type has 2 special tokens as normal text, here taken as special: '<|im_start|>', "
              "'<|im_end|>'");
  }
}

TEST(GgufTokenizer, MissingEdgesOfTextsAreFoundOrSaid) {
  io::GgufMetadata m = testing::word_metadata("llama-bpe");
  remove(m, "tokenizer.ggml.eos_token_id");
  remove(m, "tokenizer.ggml.add_bos_token");
  const Tokenizer bare = Tokenizer::from_gguf(m);
  ASSERT_EQ(bare.notes().size(), 2u);
  EXPECT_NE(bare.notes()[0].find("tokenizer.ggml.bos_token_id is missing; texts begin without"), std::string::npos);
  EXPECT_EQ(bare.notes()[1], "tokenizer.ggml.eos_token_id is missing; no token ends a text");

  m = io::load_gguf_metadata(testing::kTokenizers + "scored.gguf");
  EXPECT_TRUE(Tokenizer::from_gguf(m).notes().empty());
  const auto ids = Tokenizer::from_gguf(m).encode("a b");
  remove(m, "tokenizer.ggml.bos_token_id");
  remove(m, "tokenizer.ggml.eos_token_id");
  const Tokenizer found = Tokenizer::from_gguf(m);
  EXPECT_EQ(found.encode("a b"), ids);
  EXPECT_EQ(found.eos(), found.find("</s>"));
  ASSERT_EQ(found.notes().size(), 2u);
  EXPECT_EQ(found.notes()[0], "tokenizer.ggml.bos_token_id is missing; taken to be 1, '<s>'");
}

// Gemma's first files lack the key, whose default is right for Llama 2 only.
TEST(GgufTokenizer, GemmaHasNoSpaceBeforeATextWithoutTheKeyEither) {
  io::GgufMetadata m = io::load_gguf_metadata(testing::kTokenizers + "scored_plain.gguf");
  const auto expected = Tokenizer::from_gguf(m).encode("word  two");
  remove(m, "tokenizer.ggml.add_space_prefix");
  auto& architecture = value<std::string>(m, "general.architecture");
  architecture = "gemma";
  EXPECT_EQ(Tokenizer::from_gguf(m).encode("word  two"), expected);
  architecture = "llama";
  EXPECT_NE(Tokenizer::from_gguf(m).encode("word  two"), expected);
}

// A word that merges make may look like one.
TEST(GgufTokenizer, WordsThatMergesMakeStayWords) {
  io::GgufMetadata m = testing::word_metadata("gpt-2");
  auto& tokens = value<std::vector<std::string>>(m, "tokenizer.ggml.tokens");
  for (const char* token : {"<|", "<|a", "|>", "<|a|>"}) {
    if (std::find(tokens.begin(), tokens.end(), token) == tokens.end()) tokens.emplace_back(token);
  }
  value<std::vector<int64_t>>(m, "tokenizer.ggml.token_type").resize(tokens.size(), 1);
  auto& merges = value<std::vector<std::string>>(m, "tokenizer.ggml.merges");
  merges.insert(merges.end(), {"< |", "<| a", "| >", "<|a |>"});
  EXPECT_TRUE(Tokenizer::from_gguf(m).notes().empty());
}

// Qwen's files name the outputs that no token has [PAD151646] and so on.
TEST(GgufTokenizer, FillersOfTheVocabularyHaveNoText) {
  io::GgufMetadata m = testing::word_metadata("gpt-2");
  auto& tokens = value<std::vector<std::string>>(m, "tokenizer.ggml.tokens");
  const auto pad = static_cast<TokenId>(tokens.size());
  tokens.insert(tokens.end(), {"[PAD" + std::to_string(pad) + "]", "[PAD7]"});
  value<std::vector<int64_t>>(m, "tokenizer.ggml.token_type").resize(tokens.size(), 5);
  const Tokenizer t = Tokenizer::from_gguf(m);
  EXPECT_EQ(t.vocabulary_size(), tokens.size());
  EXPECT_EQ(t.decode(Ids{pad}), "");
  EXPECT_FALSE(t.find("[PAD" + std::to_string(pad) + "]"));
  EXPECT_EQ(t.decode(Ids{pad + 1}), "[PAD7]") << "a token of another number is a token";
}

}  // namespace
}  // namespace kpd::text
