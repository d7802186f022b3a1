// tools: log-probabilities in the two shapes that OpenAI's interface has for them.
#pragma once

#include <span>

#include "serve/request.h"

namespace kpd::tool {

// A token's own text; characters that it holds a part of are U+FFFD.
std::string token_text(const text::Tokenizer& tokenizer, text::TokenId token);

// Where each token of a text begins, in characters of the text. A token that goes on with a character begins where that does.
class TextOffsets {
 public:
  // The text begins `start` characters into what is returned. Special tokens are part of it or not. `opens_text`: no text
  // stands before it (TokenStream).
  TextOffsets(const text::Tokenizer& tokenizer, bool skip_special, bool opens_text, size_t start)
      : tokenizer_(tokenizer), skip_special_(skip_special), at_(start), opens_text_(opens_text) {}
  size_t next(text::TokenId token);

 private:
  const text::Tokenizer& tokenizer_;
  bool skip_special_;
  size_t at_;
  bool opens_text_;
  std::string begun_;  // the bytes of a character that is not whole yet
};

// The shape of completions: tokens, token_logprobs, top_logprobs ({text: logprob}), text_offset.
Json completion_logprobs(const text::Tokenizer& tokenizer, std::span<const llm::TokenScore> scores,
                         std::span<const size_t> offsets);
// The shape of chat: content, a list of objects. Their bytes joined are the text, which has no special tokens: theirs are none.
// `opens_text`: the first token is the answer's first; it is set for the next call.
Json chat_logprobs(const text::Tokenizer& tokenizer, std::span<const llm::TokenScore> scores, bool& opens_text);

size_t count_characters(std::string_view text);

}  // namespace kpd::tool
