// tests: tokenizers whose steps would make an endless text of a short one. tests/corrupt/tokenizer holds each as a frozen file:
// what was refused once stays refused.
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "base/expect_error.h"
#include "text/tokenizer_fixture.h"

namespace kpd::text {
namespace {

using nlohmann::json;

const std::filesystem::path kFrozen = std::filesystem::path(KPD_TESTS_DIR) / "corrupt" / "tokenizer";

enum class Fails { kAtLoad, kAtEncode, kAtDecode };

struct Damage {
  std::string name;
  json tokenizer;
  Fails fails;
  ErrorCode code;
  std::string part;  // of the error's text
};

json with(const char* key, const json& value, const json& added = json::array()) {
  return {{"model", {{"type", "BPE"}, {"vocab", {{"a", 0}, {"b", 1}, {"ab", 2}}}, {"merges", {"a b"}}}},
          {"added_tokens", added},
          {key, value}};
}

// n times the steps.
json sequence(const char* list, size_t n, const std::vector<json>& steps) {
  json all = json::array();
  for (size_t i = 0; i < n; ++i) {
    for (const json& step : steps) all.push_back(step);
  }
  return {{"type", "Sequence"}, {list, all}};
}

json replace(const std::string& what, const std::string& by) {
  return {{"type", "Replace"}, {"pattern", {{"String", what}}}, {"content", by}};
}

std::vector<Damage> damages() {
  using enum ErrorCode;
  const std::string limit = "the tokenizer's steps make ";
  const json doubling = replace("a", "aa"), bytes = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  const json characters = {{"type", "Split"}, {"pattern", {{"Regex", "[^!]"}}}, {"behavior", "Isolated"}, {"invert", false}};
  const auto mark = [](const char* c) -> json {
    return {{"type", "Metaspace"}, {"replacement", c}, {"prepend_scheme", "always"}, {"split", false}};
  };
  const json added = {{{"id", 3}, {"content", "xa"}, {"normalized", true}, {"special", false}}};
  return {
      {"normalizer_replace", with("normalizer", sequence("normalizers", 60, {doubling})), Fails::kAtEncode, kLimitExceeded,
       limit},
      {"added_token_replace", with("normalizer", sequence("normalizers", 60, {doubling}), added), Fails::kAtLoad,
       kLimitExceeded, limit},
      {"pre_tokenizer_metaspace",
       with("pre_tokenizer", sequence("pretokenizers", 15, {characters, mark("_"), characters, mark("~")})), Fails::kAtEncode,
       kLimitExceeded, limit},
      {"pre_tokenizer_bytes_twice", with("pre_tokenizer", sequence("pretokenizers", 2, {bytes})), Fails::kAtLoad, kUnsupported,
       "pretokenizers[1].type is 'ByteLevel', supported is ByteLevel once"},
      {"decoder_replace", with("decoder", sequence("decoders", 60, {doubling})), Fails::kAtDecode, kLimitExceeded, limit},
      {"decoder_fused_replace", with("decoder", sequence("decoders", 30, {doubling, {{"type", "Fuse"}}})), Fails::kAtDecode,
       kLimitExceeded, limit},
      {"decoder_bytes_twice", with("decoder", sequence("decoders", 2, {bytes})), Fails::kAtLoad, kUnsupported,
       "decoders[1].type is 'ByteLevel', supported is ByteLevel once"},
  };
}

std::string file_of(const Damage& d) { return d.name + ".json"; }

void expect_damage(const Damage& d, const std::string& text) {
  SCOPED_TRACE(d.name);
  const auto load = [&] { return Tokenizer::from_json(text, "", "hostile.json"); };
  const auto expect = [&](const auto& fn) { testing::expect_error(d.code, d.part, fn, __FILE__, __LINE__); };
  if (d.fails == Fails::kAtLoad) return expect(load);
  const Tokenizer t = load();
  if (d.fails == Fails::kAtEncode) return expect([&] { t.encode("a!bab"); });
  expect([&] { t.decode(std::vector<TokenId>{0, 1, 2}); });
}

TEST(TokenizerCorrupt, StepsMayNotMakeAnEndlessText) {
  std::set<std::string> names;
  for (const Damage& d : damages()) {
    EXPECT_TRUE(names.insert(file_of(d)).second) << "two damages are named " << d.name;
    expect_damage(d, testing::read_text((kFrozen / file_of(d)).string()));
  }
  for (const auto& entry : std::filesystem::directory_iterator(kFrozen)) {
    EXPECT_EQ(names.count(entry.path().filename().string()), 1u) << entry.path() << " is in no list";
  }
}

// Writes tests/corrupt/tokenizer; run by hand after a new one was added: --gtest_also_run_disabled_tests
// --gtest_filter='*Record*'
TEST(TokenizerCorrupt, DISABLED_Record) {
  std::filesystem::create_directories(kFrozen);
  for (const Damage& d : damages()) {
    if (!std::filesystem::exists(kFrozen / file_of(d))) std::ofstream(kFrozen / file_of(d)) << d.tokenizer.dump() << '\n';
  }
}

// What is allowed is of the whole text: a token between every two characters does not give each of them its own.
TEST(TokenizerCorrupt, PartsOfATextShareWhatIsAllowed) {
  const json added = {{{"id", 3}, {"content", "!"}, {"normalized", false}, {"special", true}}};
  const json tokenizer = with("normalizer", {{"type", "Prepend"}, {"prepend", std::string(1000, 'a')}}, added);
  const Tokenizer t = Tokenizer::from_json(tokenizer.dump(), "", "hostile.json");
  std::string text;
  for (int i = 0; i < 50; ++i) text += "b!";
  EXPECT_EQ(t.encode(text).size(), 50u * 1001);
  for (int i = 0; i < 50; ++i) text += "b!";
  EXPECT_KPD_ERROR(kLimitExceeded, "hostile.json: the tokenizer's steps make ", t.encode(text));
}

}  // namespace
}  // namespace kpd::text
