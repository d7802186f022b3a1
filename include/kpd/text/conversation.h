// text: a conversation that outgrows its context loses its oldest turns.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "kpd/text/chat.h"
#include "kpd/text/tokenizer.h"

namespace kpd::text {

struct FittedPrompt {
  std::vector<TokenId> tokens;
  size_t n_dropped = 0;  // messages that were taken out, to be said to the user
};

// The prompt of a conversation whose last message asks. encode() gives the tokens of messages, as the model's template has
// them. If they leave less room in the `context` tokens than answer_tokens (no more than a quarter of the context is asked
// for), the oldest turns are taken out of `messages`: a user's message and all up to the next user's. System messages at the
// front and the last turn stay. So many go that at most half of the context is taken: every time what stays is read anew, so it
// should not be every time. A last turn that alone leaves no room for a token gives its prompt of `context` tokens or more, and
// `messages` as they were. Throws what encode() throws.
FittedPrompt fit_conversation(std::vector<ChatMessage>& messages, size_t context, size_t answer_tokens,
                              const std::function<std::vector<TokenId>(std::span<const ChatMessage>)>& encode);

}  // namespace kpd::text
