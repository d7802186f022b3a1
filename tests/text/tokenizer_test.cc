// Ids and texts of every family against those of the Hugging Face tokenizers package, and what a broken tokenizer is answered
// with.
#include "kpd/text/tokenizer.h"

#include <nlohmann/json.hpp>
#include <thread>
#include <type_traits>

#include "base/expect_error.h"
#include "text/tokenizer_fixture.h"

namespace kpd::text {
namespace {

using nlohmann::json;
using testing::kTokenizers;

// It keeps a reference to its tokenizer: a temporary one would be gone.
static_assert(std::is_constructible_v<TokenStream, Tokenizer&> &&
              std::is_constructible_v<TokenStream, const Tokenizer&, bool, bool>);
static_assert(!std::is_constructible_v<TokenStream, Tokenizer> &&
              !std::is_constructible_v<TokenStream, const Tokenizer, bool, bool>);

class Families : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(All, Families,
                         ::testing::Values("gpt2", "smollm", "llama3", "qwen2", "cased", "llama2", "mistral", "gemma", "t5like",
                                           "scored", "scored_plain"),
                         [](const auto& p) { return std::string(p.param); });

TEST_P(Families, IdsOfMixedText) {
  const std::string name = GetParam();
  const Tokenizer tokenizer = testing::load_tokenizer(name);
  const testing::Expected expected = testing::read_expected(name);
  const std::string mixed = testing::read_text(kTokenizers + "mixed.txt");
  EXPECT_EQ(tokenizer.encode(mixed, testing::options_for(name)), expected.mixed);
  testing::IdHash hash;
  for (size_t at = 0; at <= mixed.size();) {
    const size_t end = std::min(mixed.find('\n', at), mixed.size());
    const auto ids = tokenizer.encode(std::string_view(mixed).substr(at, end - at), testing::options_for(name));
    hash.add(ids);
    at = end + 1;
  }
  EXPECT_EQ(hash.text(), expected.hashes.at("mixed_lines"));
}

TEST_P(Families, MalformedTextIsReplaced) {
  const std::string name = GetParam();
  const Tokenizer tokenizer = testing::load_tokenizer(name);
  constexpr unsigned char kPool[] = {0xE2, 0x82, 0xAC, 0xF0, 0x9F, 0x99, 0x82, 0xC3, 0xA9,
                                     0xED, 0xA0, 0x80, 0xF4, 0x90, 0xC0, 0xFF, 0x41, 0x20};
  testing::Lcg lcg;
  testing::IdHash hash;
  for (int i = 0; i < 500; ++i) {
    std::string text;
    for (int k = 0; k < 40; ++k) text += static_cast<char>(kPool[lcg.below(sizeof kPool)]);
    hash.add(tokenizer.encode(text, testing::options_for(name)));
  }
  EXPECT_EQ(hash.text(), testing::read_expected(name).hashes.at("malformed"));
}

// Any tokens: texts are whole UTF-8, a stream's pieces too, and together they are what decode() gives.
TEST_P(Families, StreamsGiveWhatDecodeGives) {
  const Tokenizer tokenizer = testing::load_tokenizer(GetParam());
  testing::Lcg lcg;
  for (int i = 0; i < 300; ++i) {
    std::vector<TokenId> ids;
    // Few of many: the first 300 hold the bytes in all families.
    const uint32_t range = i % 2 == 0 ? static_cast<uint32_t>(tokenizer.vocabulary_size()) : 300;
    for (uint32_t k = lcg.below(40); k > 0; --k) ids.push_back(static_cast<TokenId>(lcg.below(range)));
    for (const bool skip : {true, false}) {
      const std::string whole = tokenizer.decode(ids, skip);
      TokenStream stream(tokenizer, skip);
      std::string joined;
      for (const TokenId id : ids) {
        const std::string piece = stream.push(id);
        EXPECT_TRUE(is_utf8(piece));
        joined += piece;
      }
      const std::string rest = stream.finish();
      EXPECT_TRUE(is_utf8(rest));
      EXPECT_EQ(joined + rest, whole);
    }
  }
}

TEST_P(Families, BytesOfTokensJoinToTheText) {
  const std::string name = GetParam();
  const Tokenizer tokenizer = testing::load_tokenizer(name);
  const std::string mixed = testing::read_text(kTokenizers + "mixed.txt");
  size_t parts = 0;
  for (size_t at = 0; at <= mixed.size();) {
    const size_t end = std::min(mixed.find('\n', at), mixed.size());
    const auto ids = tokenizer.encode(std::string_view(mixed).substr(at, end - at), testing::options_for(name));
    std::string joined;
    for (size_t i = 0; i < ids.size(); ++i) {
      const std::string bytes = tokenizer.token_bytes(ids[i], i == 0);
      if (!is_utf8(bytes)) ++parts;
      joined += bytes;
    }
    ASSERT_EQ(joined, tokenizer.decode(ids, false));
    at = end + 1;
  }
  if (name == "gpt2" || name == "llama2") {
    EXPECT_GT(parts, 0u) << "no character is spread over tokens";
  }
}

// An answer that goes on from a text: the space before its first word is not lost.
TEST_P(Families, AStreamThatGoesOnGivesTheRestOfTheText) {
  const std::string name = GetParam();
  const Tokenizer tokenizer = testing::load_tokenizer(name);
  const auto ids = tokenizer.encode("The capital of France is Paris, of course.", testing::options_for(name));
  const std::string whole = tokenizer.decode(ids, false);
  for (size_t cut = 1; cut < ids.size(); ++cut) {
    TokenStream first(tokenizer, false), rest(tokenizer, false, /*opens_text=*/false);
    std::string joined;
    for (size_t i = 0; i < cut; ++i) joined += first.push(ids[i]);
    joined += first.finish();
    for (size_t i = cut; i < ids.size(); ++i) joined += rest.push(ids[i]);
    joined += rest.finish();
    EXPECT_EQ(joined, whole) << cut;
  }
}

TEST_P(Families, DecodeGivesTheTextBack) {
  const std::string name = GetParam();
  const Tokenizer tokenizer = testing::load_tokenizer(name);
  for (const std::string text : {"Hello world", "one  two   three\n\n x", "naïve 你好 🙂"}) {
    if (name == "t5like" && text != "Hello world") continue;  // drops what it does not know
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
  }
  EXPECT_EQ(tokenizer.decode({}), "");
  EXPECT_EQ(tokenizer.encode("", {false, true}), std::vector<TokenId>());
}

TEST(Tokenizer, DecodesAsHuggingFace) {
  const Tokenizer llama2 = testing::load_tokenizer("llama2");
  const auto id = [&](const char* token) { return llama2.find(token).value(); };
  // A run of bytes that is not text is replaced byte by byte, whole characters in it too.
  EXPECT_EQ(llama2.decode(std::vector{id("<0xE2>"), id("<0x82>"), id("<0xAC>")}), "\xE2\x82\xAC");
  EXPECT_EQ(llama2.decode(std::vector{id("<0x41>"), id("<0xE2>"), id("a")}),
            "\xEF\xBF\xBD\xEF\xBF\xBD"
            "a");
  // The first space goes, once; special tokens are left out before that.
  EXPECT_EQ(llama2.decode(std::vector{id("<s>"), id("\u2581"), id("\u2581"), id("a")}), " a");
  EXPECT_EQ(llama2.decode(std::vector{id("<s>"), id("\u2581"), id("a")}, false), "<s> a");
}

// Qwen2.5's head has 151,936 outputs and its tokenizer 151,665 tokens: a model may choose what no token is.
TEST(Tokenizer, IdsOfNoTokenAreNoText) {
  for (const char* name : {"llama2", "gpt2", "t5like"}) {
    SCOPED_TRACE(name);
    const Tokenizer t = testing::load_tokenizer(name);
    const auto last = static_cast<TokenId>(t.vocabulary_size()) - 1;
    const TokenId a = t.encode("a", {false, false}).back();
    EXPECT_EQ(t.decode(std::vector{last + 1, a, 100000, a, kMaxVocabulary - 1}), t.decode(std::vector{a, a}));
    TokenStream stream(t);
    EXPECT_EQ(stream.push(last + 1), "");
    EXPECT_EQ(stream.push(a), "a");
    EXPECT_EQ(stream.finish(), "");
    EXPECT_EQ(t.token(last + 1), "");
    EXPECT_EQ(t.token_bytes(last + 1), "");
    EXPECT_FALSE(t.is_special(last + 1));
    EXPECT_KPD_ERROR(kInvalidArgument, "token -1, expected one from 0 to 16777215", t.decode(std::vector<TokenId>{-1}));
    EXPECT_KPD_ERROR(kInvalidArgument, "token 16777216", t.decode(std::vector<TokenId>{kMaxVocabulary}));
  }
}

TEST(Tokenizer, StreamsWaitForWholeCharacters) {
  const Tokenizer gpt2 = testing::load_tokenizer("gpt2");
  const auto ids = gpt2.encode("\xE2\x82\xACx");
  ASSERT_GT(ids.size(), 1u);
  TokenStream stream(gpt2);
  EXPECT_EQ(stream.push(ids[0]), "");
  TokenStream cut(gpt2);
  EXPECT_EQ(cut.push(ids[0]), "");
  EXPECT_EQ(cut.finish(), "\xEF\xBF\xBD");
}

TEST(Tokenizer, KnowsItsTokens) {
  const Tokenizer t = Tokenizer::from_json(testing::read_text(kTokenizers + "qwen2.json"),
                                           R"({"bos_token":null,"eos_token":{"content":"<|im_end|>"},"chat_template":[
                                             {"name":"tool_use","template":"T"},{"name":"default","template":"D"}]})",
                                           "tokenizer.json", R"({"eos_token_id":[5,7,999999]})");
  EXPECT_FALSE(t.bos());
  EXPECT_FALSE(t.adds_bos());
  EXPECT_EQ(t.eos(), t.find("<|im_end|>"));
  EXPECT_TRUE(t.is_special(*t.eos()));
  EXPECT_FALSE(t.is_special(*t.find("<tool_call>")));
  EXPECT_EQ(t.token(*t.find("<tool_call>")), "<tool_call>");
  EXPECT_EQ(t.chat_template(), "D");
  const std::vector<TokenId> ends(t.end_of_turn().begin(), t.end_of_turn().end());
  EXPECT_EQ(ends, (std::vector<TokenId>{5, 7, *t.find("<|endoftext|>"), *t.find("<|im_end|>")}));
  EXPECT_FALSE(t.find("no such token"));
  const Tokenizer llama3 = Tokenizer::from_json(testing::read_text(kTokenizers + "llama3.json"),
                                                R"({"bos_token":"<|begin_of_text|>"})", "tokenizer.json");
  EXPECT_TRUE(llama3.adds_bos());
}

TEST(Tokenizer, SpecialTokensAreParsedOnRequest) {
  const Tokenizer t = testing::load_tokenizer("smollm");
  const TokenId start = t.find("<|im_start|>").value();
  EXPECT_EQ(t.encode("<|im_start|>", {false, true}), std::vector{start});
  const auto spelled = t.encode("<|im_start|>", {false, false});
  EXPECT_GT(spelled.size(), 1u);
  EXPECT_EQ(t.decode(spelled), "<|im_start|>");
}

TEST(Tokenizer, ThreadsShareOne) {
  const Tokenizer t = testing::load_tokenizer("cased");
  const std::string mixed = testing::read_text(kTokenizers + "mixed.txt");
  const auto expected = t.encode(mixed);
  std::vector<std::thread> threads;
  std::atomic<int> same = 0;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] { same += t.encode(mixed) == expected; });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(same, 4);
}

// A tokenizer.json with one part replaced, by its JSON pointer.
Tokenizer changed(const char* pointer, const json& value) {
  json tokenizer = {{"model", {{"type", "BPE"}, {"vocab", {{"a", 0}, {"b", 1}, {"ab", 2}}}, {"merges", {"a b"}}}},
                    {"added_tokens", json::array()}};
  tokenizer[json::json_pointer(pointer)] = value;
  return Tokenizer::from_json(tokenizer.dump(), "", "t.json");
}

TEST(Tokenizer, RefusesWhatItDoesNotKnow) {
  EXPECT_EQ(changed("/version", "1.0").encode("abba"), (std::vector<TokenId>{2, 1, 0}));
  EXPECT_KPD_ERROR(kUnsupported, "t.json: model.type is 'Unigram', supported is BPE", changed("/model/type", "Unigram"));
  EXPECT_KPD_ERROR(kUnsupported, "t.json: normalizer.type is 'NFKC', supported is NFC,",
                   changed("/normalizer", {{"type", "NFKC"}}));
  EXPECT_KPD_ERROR(kUnsupported, "pre_tokenizer.pretokenizers[0].type is 'Whitespace'",
                   changed("/pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", {{{"type", "Whitespace"}}}}}));
  EXPECT_KPD_ERROR(kUnsupported, "post_processor.type is 'BertProcessing'",
                   changed("/post_processor", {{"type", "BertProcessing"}}));
  EXPECT_KPD_ERROR(kUnsupported, "decoder.type is 'CTC'", changed("/decoder", {{"type", "CTC"}}));
  EXPECT_KPD_ERROR(kUnsupported, "model.dropout", changed("/model/dropout", 0.1));
  EXPECT_KPD_ERROR(kUnsupported, "model.end_of_word_suffix is '</w>'", changed("/model/end_of_word_suffix", "</w>"));
  EXPECT_KPD_ERROR(kUnsupported, "pattern.Regex: the regular expression '(a' is not understood",
                   changed("/normalizer", {{"type", "Replace"}, {"pattern", {{"Regex", "(a"}}}, {"content", ""}}));
}

TEST(Tokenizer, RefusesDamage) {
  EXPECT_KPD_ERROR(kCorruptData, "t.json: byte 1: not valid JSON here", Tokenizer::from_json("{", "", "t.json"));
  EXPECT_KPD_ERROR(kCorruptData, "not valid JSON", Tokenizer::from_json("", "", "t.json"));
  EXPECT_KPD_ERROR(kCorruptData, "expected an object", Tokenizer::from_json("[]", "", "t.json"));
  EXPECT_KPD_ERROR(kLimitExceeded, "levels", Tokenizer::from_json(std::string(100000, '['), "", "t.json"));
  EXPECT_KPD_ERROR(kLimitExceeded, "token 'a' has the id 4294967295, expected", changed("/model/vocab/a", 4294967295u));
  EXPECT_KPD_ERROR(kCorruptData, "token 'a' has the id -1, expected", changed("/model/vocab/a", -1));
  EXPECT_KPD_ERROR(kCorruptData, "have both the id 1, expected one token an id", changed("/model/vocab/a", 1));
  EXPECT_KPD_ERROR(kCorruptData, "model.merges[0]: 'c' is no token of model.vocab", changed("/model/merges", {"a c"}));
  EXPECT_KPD_ERROR(kCorruptData, "model.merges[0]: 'ba' is no token", changed("/model/merges", json::array({{"b", "a"}})));
  EXPECT_KPD_ERROR(kCorruptData, "model.merges[0] is 'ab', expected two tokens", changed("/model/merges", {"ab"}));
  EXPECT_KPD_ERROR(kCorruptData, "model.unk_token is '?', expected a token", changed("/model/unk_token", "?"));
  EXPECT_KPD_ERROR(kCorruptData, "added_tokens[0]: token 'x' has the id 9, expected 3",
                   changed("/added_tokens", json::array({{{"id", 9}, {"content", "x"}}})));
  EXPECT_KPD_ERROR(kCorruptData, "expected one character",
                   changed("/pre_tokenizer", {{"type", "Metaspace"}, {"replacement", "__"}}));
  EXPECT_KPD_ERROR(kIo, "tokenizer.json", Tokenizer::from_directory("/nonexistent"));
}

// The ids are those of the tokenizers package (0.23.3).
TEST(Tokenizer, AddedTokensTakeSpacesAsHuggingFace) {
  const json x = {{"id", 3}, {"content", "<x>"}, {"rstrip", true}, {"normalized", false}};
  const json spaces = {{"id", 4}, {"content", "  "}, {"lstrip", true}, {"rstrip", true}, {"normalized", false}};
  const Tokenizer t = changed("/added_tokens", json::array({x, spaces}));
  EXPECT_EQ(t.encode("a  b"), (std::vector<TokenId>{0, 4, 1}));
  EXPECT_EQ(t.encode("a<x>  b"), (std::vector<TokenId>{0, 3, 1})) << "what one token took is no other's";
}

TEST(Tokenizer, OfATokenListedTwiceTheLastEntryCounts) {
  const json word = {{"id", 3}, {"content", "<x>"}, {"single_word", true}, {"special", true}, {"normalized", false}};
  const json plain = {{"id", 3}, {"content", "<x>"}, {"special", false}, {"normalized", false}};
  const Tokenizer last = changed("/added_tokens", json::array({word, plain}));
  EXPECT_EQ(last.vocabulary_size(), 4u);
  EXPECT_EQ(last.encode("a<x>b"), (std::vector<TokenId>{0, 3, 1}));
  EXPECT_TRUE(last.is_special(3)) << "special if either entry says so";
  EXPECT_EQ(changed("/added_tokens", json::array({plain, word})).encode("a<x>b"), std::vector<TokenId>{2});
}

TEST(Tokenizer, GapsAndEmptyVocabulariesAreLegal) {
  const Tokenizer gaps = changed("/model/vocab", {{"a", 7}, {"b", 1}, {"ab", 3}});
  EXPECT_EQ(gaps.vocabulary_size(), 8u);
  EXPECT_EQ(gaps.encode("aab"), (std::vector<TokenId>{7, 3}));
  EXPECT_EQ(gaps.token(0), "");
  // A new token takes the number of tokens there are, if that is free.
  const json vocabulary = {{"a", 7}, {"b", 1}, {"ab", 2}};
  const auto with_added = [&](int id) {
    const json tokenizer = {{"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", json::array()}}},
                            {"added_tokens", {{{"id", id}, {"content", "x"}}}}};
    return Tokenizer::from_json(tokenizer.dump(), "", "t.json");
  };
  EXPECT_EQ(with_added(3).encode("xa"), (std::vector<TokenId>{3, 7}));
  EXPECT_EQ(with_added(3).token(3), "x");
  EXPECT_KPD_ERROR(kCorruptData, "token 'x' has the id 8, expected 3", with_added(8));
  const Tokenizer empty = Tokenizer::from_json(R"({"model":{"type":"BPE","vocab":{},"merges":[]}})", "", "t.json");
  EXPECT_EQ(empty.vocabulary_size(), 0u);
  EXPECT_TRUE(empty.encode("anything").empty());
}

TEST(Tokenizer, ExpressionsMayNotTakeForever) {
  const Tokenizer slow =
      changed("/pre_tokenizer", {{"type", "Split"}, {"behavior", "Isolated"}, {"pattern", {{"Regex", "(a+)+$|b"}}}});
  EXPECT_KPD_ERROR(kLimitExceeded, "needs more than the allowed steps", slow.encode(std::string(64, 'a') + "c"));
}

io::GgufMetadata metadata(const char* model, const char* pre) {
  io::GgufMetadata m;
  m.name = "m.gguf";
  m.values = {{"tokenizer.ggml.model", std::string(model)},
              {"tokenizer.ggml.pre", std::string(pre)},
              {"tokenizer.ggml.tokens", std::vector<std::string>{"a", "b", "ab"}},
              {"tokenizer.ggml.merges", std::vector<std::string>{"a b"}}};
  return m;
}

// The ids are those of the tokenizers package (0.23.3) with rstrip where Phi-3's own tokenizer.json has it.
TEST(Tokenizer, SpecialTokensOfPhi3TakeTheSpacesAfterThem) {
  const std::string mark = "\u2581";
  const auto load = [&](const char* architecture) {
    io::GgufMetadata m;
    m.name = "m.gguf";
    m.values = {
        {"general.architecture", std::string(architecture)},
        {"tokenizer.ggml.add_bos_token", false},
        {"tokenizer.ggml.model", std::string("llama")},
        {"tokenizer.ggml.tokens", std::vector<std::string>{"<unk>", "<s>", "</s>", "<0x0A>", mark, "H", "i", mark + "H",
                                                           mark + "Hi", "<|endoftext|>", "<|user|>", "<|end|>", "<mine>"}},
        {"tokenizer.ggml.scores", std::vector<double>{0, 0, 0, 0, -9, -9, -9, -1, -2, 0, 0, 0, 0}},
        {"tokenizer.ggml.token_type", std::vector<int64_t>{2, 3, 4, 6, 1, 1, 1, 1, 1, 3, 3, 3, 4}}};
    return Tokenizer::from_gguf(m);
  };
  using Ids = std::vector<TokenId>;
  const Tokenizer phi3 = load("phi3"), other = load("llama");
  EXPECT_EQ(phi3.encode("<|user|>\nHi<|end|>\n<|end|> Hi"), (Ids{10, 8, 11, 11, 8}));
  EXPECT_EQ(phi3.encode("<|user|> \n \tHi"), (Ids{10, 8}));
  EXPECT_EQ(phi3.encode("</s> Hi"), (Ids{2, 8}));
  EXPECT_EQ(phi3.encode("<s> Hi"), (Ids{1, 4, 8}));
  EXPECT_EQ(phi3.encode("<unk> Hi"), (Ids{0, 4, 8}));
  EXPECT_EQ(phi3.encode("<|endoftext|>\nHi"), (Ids{9, 4, 3, 5, 6}));
  EXPECT_EQ(phi3.encode("<mine> Hi"), (Ids{12, 4, 8}));
  EXPECT_EQ(other.encode("<|user|> Hi"), (Ids{10, 4, 8}));
}

TEST(Tokenizer, RefusesGgufKeysThatItDoesNotKnow) {
  EXPECT_EQ(Tokenizer::from_gguf(metadata("gpt2", "llama-bpe")).encode("ab"), std::vector<TokenId>{2});
  EXPECT_KPD_ERROR(kUnsupported, "m.gguf: tokenizer.ggml.model is 'bert', expected 'gpt2'",
                   Tokenizer::from_gguf(metadata("bert", "")));
  EXPECT_KPD_ERROR(kUnsupported, "tokenizer.ggml.pre is 'kimi-k2', expected one of default, gpt-2,",
                   Tokenizer::from_gguf(metadata("gpt2", "kimi-k2")));
  io::GgufMetadata m = metadata("gpt2", "qwen2");
  m.values.emplace_back("tokenizer.ggml.eos_token_id", uint64_t{3});
  EXPECT_KPD_ERROR(kCorruptData, "tokenizer.ggml.eos_token_id is 3, expected one of 3 tokens", Tokenizer::from_gguf(m));
  m = metadata("gpt2", "qwen2");
  std::get<std::vector<std::string>>(m.values[3].second)[0] = "ab";
  EXPECT_KPD_ERROR(kCorruptData, "tokenizer.ggml.merges: entry 0 is 'ab'", Tokenizer::from_gguf(m));
  m = metadata("llama", "");
  m.values.emplace_back("tokenizer.ggml.scores", std::vector<double>{0, 1});
  EXPECT_KPD_ERROR(kCorruptData, "tokenizer.ggml.scores has 2 entries, expected 3", Tokenizer::from_gguf(m));
}

}  // namespace
}  // namespace kpd::text
