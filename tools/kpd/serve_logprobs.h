// tools: log-probabilities in the two shapes that OpenAI's interface has for them.
#pragma once

#include <span>

#include "serve_request.h"

namespace kpd::tool {

// A token's own text; characters that it holds a part of are U+FFFD.
std::string token_text(const llm::Tokenizer& tokenizer, llm::TokenId token);

// The shape of completions: tokens, token_logprobs, top_logprobs ({text: logprob}), text_offset (in characters from `offset`
// on, which is moved).
Json completion_logprobs(const llm::Tokenizer& tokenizer, std::span<const llm::TokenScore> scores, size_t& offset);
// The shape of chat: content, a list of objects.
Json chat_logprobs(const llm::Tokenizer& tokenizer, std::span<const llm::TokenScore> scores);

size_t count_characters(std::string_view text);

}  // namespace kpd::tool
