// tests: the vocabulary of tests/golden/tokenizers/words.json with the cuts of words.cuts, as tokenizer.json and as GGUF.
#pragma once

#include <nlohmann/json.hpp>

#include "text/tokenizer_fixture.h"

namespace kpd::testing {

inline const nlohmann::json& words_file(const char* name) {
  static std::map<std::string, nlohmann::json> files;
  auto& file = files[name];
  if (file.is_null()) file = nlohmann::json::parse(read_text(kTokenizers + name));
  return file;
}

inline std::vector<std::string> word_cuts() {
  std::vector<std::string> names;
  for (const auto& [name, cut] : words_file("words.cuts").items()) names.push_back(name);
  return names;
}

inline bool is_gguf_name(const std::string& name) { return words_file("words.cuts")[name]["gguf"].get<bool>(); }

inline std::string word_cut_name(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  for (char& c : name) c = isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
}

// A GGUF file's metadata of the vocabulary.
inline io::GgufMetadata word_metadata(const std::string& pre) {
  const nlohmann::json& model = words_file("words.json")["model"];
  std::vector<std::string> tokens(model["vocab"].size()), merges;
  for (const auto& [token, id] : model["vocab"].items()) tokens[id.get<size_t>()] = token;
  for (const auto& merge : model["merges"]) merges.push_back(merge[0].get<std::string>() + " " + merge[1].get<std::string>());
  io::GgufMetadata m;
  m.name = "m.gguf";
  m.values = {{"tokenizer.ggml.model", std::string("gpt2")},
              {"tokenizer.ggml.pre", pre},
              {"tokenizer.ggml.eos_token_id", uint64_t{0}},
              {"tokenizer.ggml.add_bos_token", false},
              {"tokenizer.ggml.token_type", std::vector<int64_t>(tokens.size(), 1)},
              {"tokenizer.ggml.tokens", std::move(tokens)},
              {"tokenizer.ggml.merges", std::move(merges)}};
  return m;
}

inline text::Tokenizer word_tokenizer(const std::string& name, bool gguf) {
  if (gguf) return text::Tokenizer::from_gguf(word_metadata(name));
  nlohmann::json file = words_file("words.json");
  const nlohmann::json& cut = words_file("words.cuts")[name];
  file["normalizer"] = cut["normalizer"];
  file["pre_tokenizer"] = cut["pre_tokenizer"];
  file["model"]["ignore_merges"] = cut["ignore_merges"];
  return text::Tokenizer::from_json(file.dump(), "", name + ".json");
}

}  // namespace kpd::testing
