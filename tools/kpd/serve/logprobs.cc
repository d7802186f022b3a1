#include "serve/logprobs.h"

#include <algorithm>
#include <utility>

namespace kpd::tool {
namespace {

Json number(float logprob) { return logprob == llm::TokenScore::kUnknown ? Json() : Json(logprob); }

Json bytes_of(const std::string& text) {
  Json bytes = Json::array();
  for (const char c : text) bytes.push_back(static_cast<unsigned char>(c));
  return bytes;
}

// Of a character, by its first byte; 1 for a byte that begins none.
size_t character_bytes(char first) {
  const auto byte = static_cast<unsigned char>(first);
  if (byte < 0xC2 || byte > 0xF4) return 1;
  return byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

}  // namespace

std::string token_text(const text::Tokenizer& tokenizer, text::TokenId token) {
  if (static_cast<size_t>(token) >= tokenizer.vocabulary_size()) return "";
  text::TokenStream stream(tokenizer, false, /*opens_text=*/false);
  std::string text = stream.push(token);
  text += stream.finish();
  return text;
}

// By bytes and not by what a TokenStream gives: some decoders hold whole characters back until they know what follows.
size_t TextOffsets::next(text::TokenId token) {
  const size_t begin = at_;
  if (static_cast<size_t>(token) >= tokenizer_.vocabulary_size() || (skip_special_ && tokenizer_.is_special(token)))
    return begin;
  for (const char c : tokenizer_.token_bytes(token, std::exchange(opens_text_, false))) {
    if ((c & 0xC0) != 0x80) {
      if (!begun_.empty()) ++at_;  // a character that stays without its end is U+FFFD
      begun_.clear();
    }
    begun_ += c;
    if (begun_.size() < character_bytes(begun_.front())) continue;
    ++at_;
    begun_.clear();
  }
  return begin;
}

size_t count_characters(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

Json completion_logprobs(const text::Tokenizer& tokenizer, std::span<const llm::TokenScore> scores,
                         std::span<const size_t> offsets) {
  Json tokens = Json::array(), logprobs = Json::array(), top = Json::array();
  for (const llm::TokenScore& score : scores) {
    const std::string text = token_text(tokenizer, score.token);
    tokens.push_back(text);
    logprobs.push_back(number(score.logprob));
    Json most_probable = Json::object();
    // Of tokens with one text (parts of characters) the most probable stays.
    for (const auto& [token, logprob] : score.top) most_probable.emplace(token_text(tokenizer, token), logprob);
    if (score.logprob != llm::TokenScore::kUnknown) most_probable.emplace(text, score.logprob);
    top.push_back(score.logprob == llm::TokenScore::kUnknown ? Json() : most_probable);
  }
  return {{"tokens", tokens}, {"token_logprobs", logprobs}, {"top_logprobs", top}, {"text_offset", Json(offsets)}};
}

Json chat_logprobs(const text::Tokenizer& tokenizer, std::span<const llm::TokenScore> scores, bool& opens_text) {
  Json content = Json::array();
  const auto has_text = [&](text::TokenId token) {
    return static_cast<size_t>(token) < tokenizer.vocabulary_size() && !tokenizer.is_special(token);
  };
  const auto entry = [&](text::TokenId token, float logprob) {
    const std::string bytes = has_text(token) ? tokenizer.token_bytes(token, opens_text) : "";
    return Json{{"token", token_text(tokenizer, token)}, {"logprob", number(logprob)}, {"bytes", bytes_of(bytes)}};
  };
  for (const llm::TokenScore& score : scores) {
    Json item = entry(score.token, score.logprob);
    item["top_logprobs"] = Json::array();
    for (const auto& [token, logprob] : score.top) item["top_logprobs"].push_back(entry(token, logprob));
    content.push_back(std::move(item));
    if (has_text(score.token)) opens_text = false;
  }
  return {{"content", content}, {"refusal", nullptr}};
}

}  // namespace kpd::tool
