// tests: the trained tokenizers of tests/golden/tokenizers and the ids recorded for them (make_tokenizers.py).
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "kpd/io/gguf.h"
#include "kpd/text/tokenizer.h"
#include "text/unicode.h"

namespace kpd::testing {

inline const std::string kTokenizers = std::string(KPD_TESTS_DIR) + "/golden/tokenizers/";

inline std::string read_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in.is_open()) << path;
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

inline text::Tokenizer load_tokenizer(const std::string& name) {
  if (name.starts_with("scored")) return text::Tokenizer::from_gguf(io::load_gguf_metadata(kTokenizers + name + ".gguf"));
  return text::Tokenizer::from_json(read_text(kTokenizers + name + ".json"), "", name + ".json");
}

// The golden models' 96 tokens, one a character; the first has no text.
inline text::Tokenizer character_tokenizer() {
  std::string vocabulary = R"("":0)";
  for (char c = ' '; c < '\x7F'; ++c) {
    const std::string spelled = c == '"' || c == '\\' ? std::string{'\\', c} : std::string{c};
    vocabulary += ", \"" + spelled + "\":" + std::to_string(c - ' ' + 1);
  }
  return text::Tokenizer::from_json(R"({"model": {"type": "BPE", "merges": [], "vocab": {)" + vocabulary + "}}}", "",
                                    "characters");
}

// SentencePiece does not see special tokens in a text.
inline text::EncodeOptions options_for(const std::string& name) { return {true, !name.starts_with("scored")}; }

struct Expected {
  std::vector<text::TokenId> mixed;
  std::map<std::string, std::string> hashes;  // by input: "COUNT FNV1A"
};

inline Expected read_expected(const std::string& name) {
  Expected expected;
  std::istringstream in(read_text(kTokenizers + name + ".expected"));
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string kind, input;
    words >> kind >> input;
    if (kind == "ids") {
      for (text::TokenId id; words >> id;) expected.mixed.push_back(id);
    } else {
      std::string count, hash;
      words >> count >> hash;
      expected.hashes[input] = count + " " + hash;
    }
  }
  return expected;
}

// 64-bit FNV-1a over ids as little-endian words, and how many they are.
class IdHash {
 public:
  void add(const std::vector<text::TokenId>& ids) {
    count_ += ids.size();
    for (const text::TokenId id : ids) {
      for (int shift = 0; shift < 32; shift += 8)
        hash_ = (hash_ ^ (static_cast<uint32_t>(id) >> shift & 0xFF)) * 0x100000001B3u;
    }
  }
  std::string text() const {
    char out[64];
    snprintf(out, sizeof out, "%zu %016llx", count_, static_cast<unsigned long long>(hash_));
    return out;
  }

 private:
  size_t count_ = 0;
  uint64_t hash_ = 0xCBF29CE484222325u;
};

class Lcg {
 public:
  uint32_t below(uint32_t n) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<uint32_t>(state_ >> 33) % n;
  }

 private:
  uint64_t state_ = 1;
};

// 256 code points from `first`, each between letters, digits, breaks and marks; every 16th of the large uniform blocks.
inline std::string block_text(uint32_t first) {
  const auto uniform = [&](uint32_t low, uint32_t high) { return low <= first && first < high; };
  const bool sparse =
      uniform(0x3400, 0xA000) || uniform(0xAC00, 0xD7A4) || uniform(0x17000, 0x18D00) || uniform(0x20000, 0x32400);
  std::string text;
  for (uint32_t code = first; code < first + 256; code += sparse ? 16 : 1) {
    if (code >= 0xD800 && code < 0xE000) continue;
    std::string c;
    append_utf8(c, code);
    text += "a" + c + "1'" + c + " " + c + c + "\n" + c + "\xCC\x81 ";
  }
  return text;
}

}  // namespace kpd::testing
