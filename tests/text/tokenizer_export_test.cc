// A tokenizer written as a Hugging Face directory gives the ids that it gave from its GGUF file.
#include "kpd/text/tokenizer_export.h"

#include "base/expect_error.h"
#include "io/temp_folder.h"
#include "text/tokenizer_fixture.h"

namespace kpd::text {
namespace {

class TokenizerExport : public testing::TempFolder {
 protected:
  void expect_same(const io::GgufMetadata& metadata) {
    const Tokenizer before = Tokenizer::from_gguf(metadata);
    write_tokenizer_directory(metadata, path("new/folder"));
    const Tokenizer after = Tokenizer::from_directory(path("new/folder"));
    const std::string mixed = testing::read_text(testing::kTokenizers + "mixed.txt");
    for (const EncodeOptions options : {EncodeOptions{true, true}, EncodeOptions{false, false}}) {
      const auto ids = before.encode(mixed, options);
      EXPECT_EQ(after.encode(mixed, options), ids);
      EXPECT_EQ(after.decode(ids), before.decode(ids));
    }
    EXPECT_EQ(after.vocabulary_size(), before.vocabulary_size());
    EXPECT_EQ(after.bos(), before.bos());
    EXPECT_EQ(after.eos(), before.eos());
    EXPECT_EQ(after.adds_bos(), before.adds_bos());
    EXPECT_EQ(after.chat_template(), before.chat_template());
    EXPECT_TRUE(std::ranges::equal(after.end_of_turn(), before.end_of_turn()));
  }
};

TEST_F(TokenizerExport, SentencePieceModels) {
  for (const char* name : {"scored", "scored_plain"}) {
    SCOPED_TRACE(name);
    expect_same(io::load_gguf_metadata(testing::kTokenizers + name + ".gguf"));
  }
}

// A byte-level vocabulary of the bytes and a few merges, as every pre-tokenizer cuts for it.
TEST_F(TokenizerExport, ByteLevelModels) {
  for (const char* pre : {"gpt-2", "smollm", "llama-bpe", "qwen2"}) {
    SCOPED_TRACE(pre);
    const Tokenizer gpt2 = testing::load_tokenizer("gpt2");
    std::vector<std::string> tokens, merges;
    for (size_t i = 0; i < 257; ++i) tokens.emplace_back(gpt2.token(static_cast<TokenId>(i)));
    for (const auto& [a, b] : {std::pair("t", "h"), {"th", "e"}, {"\u0120", "the"}, {"1", "2"}, {"e", "r"}}) {
      merges.push_back(std::string(a) + " " + b);
      tokens.push_back(std::string(a) + b);
    }
    io::GgufMetadata m;
    m.name = "m.gguf";
    std::vector<int64_t> types(tokens.size(), 1);
    types[0] = 3;
    m.values = {{"tokenizer.ggml.model", std::string("gpt2")},
                {"tokenizer.ggml.pre", std::string(pre)},
                {"tokenizer.ggml.tokens", tokens},
                {"tokenizer.ggml.token_type", types},
                {"tokenizer.ggml.merges", merges},
                {"tokenizer.ggml.bos_token_id", uint64_t{0}},
                {"tokenizer.ggml.eos_token_id", uint64_t{0}},
                {"tokenizer.ggml.padding_token_id", uint64_t{0}},
                {"tokenizer.ggml.add_eos_token", true},
                {"tokenizer.chat_template", std::string("{{ \"x\n\" }}")}};
    expect_same(m);
  }
}

TEST_F(TokenizerExport, RefusesAFolderThatCannotBe) {
  put("file", {1});
  EXPECT_KPD_ERROR(kIo, "file/x",
                   write_tokenizer_directory(io::load_gguf_metadata(testing::kTokenizers + "scored.gguf"), path("file/x")));
}

}  // namespace
}  // namespace kpd::text
