#include "serve_logprobs.h"

#include <algorithm>

namespace kpd::tool {
namespace {

Json number(float logprob) { return logprob == llm::TokenScore::kUnknown ? Json() : Json(logprob); }

Json bytes_of(const std::string& text) {
  Json bytes = Json::array();
  for (const char c : text) bytes.push_back(static_cast<unsigned char>(c));
  return bytes;
}

}  // namespace

std::string token_text(const llm::Tokenizer& tokenizer, llm::TokenId token) {
  if (static_cast<size_t>(token) >= tokenizer.vocabulary_size()) return "";
  // Behind another token: some decoders drop a space at the start of a text.
  const auto before = tokenizer.find("a");
  llm::TokenStream stream(tokenizer, false);
  if (before) stream.push(*before);
  return stream.push(token) + stream.finish();
}

size_t count_characters(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

Json completion_logprobs(const llm::Tokenizer& tokenizer, std::span<const llm::TokenScore> scores, size_t& offset) {
  Json tokens = Json::array(), logprobs = Json::array(), top = Json::array(), offsets = Json::array();
  for (const llm::TokenScore& score : scores) {
    const std::string text = token_text(tokenizer, score.token);
    tokens.push_back(text);
    logprobs.push_back(number(score.logprob));
    offsets.push_back(offset);
    offset += count_characters(text);
    Json likeliest = Json::object();
    // Of tokens with one text (parts of characters) the likeliest stays.
    for (const auto& [token, logprob] : score.top) likeliest.emplace(token_text(tokenizer, token), logprob);
    if (score.logprob != llm::TokenScore::kUnknown) likeliest.emplace(text, score.logprob);
    top.push_back(score.logprob == llm::TokenScore::kUnknown ? Json() : likeliest);
  }
  return {{"tokens", tokens}, {"token_logprobs", logprobs}, {"top_logprobs", top}, {"text_offset", offsets}};
}

Json chat_logprobs(const llm::Tokenizer& tokenizer, std::span<const llm::TokenScore> scores) {
  Json content = Json::array();
  const auto entry = [&](llm::TokenId token, float logprob) {
    const std::string text = token_text(tokenizer, token);
    return Json{{"token", text}, {"logprob", number(logprob)}, {"bytes", bytes_of(text)}};
  };
  for (const llm::TokenScore& score : scores) {
    Json item = entry(score.token, score.logprob);
    item["top_logprobs"] = Json::array();
    for (const auto& [token, logprob] : score.top) item["top_logprobs"].push_back(entry(token, logprob));
    content.push_back(std::move(item));
  }
  return {{"content", content}, {"refusal", nullptr}};
}

}  // namespace kpd::tool
