#include "kpd/text/conversation.h"

#include <algorithm>
#include <utility>

namespace kpd::text {
namespace {

using Messages = std::vector<ChatMessage>;

// The oldest turn: from the first message behind those of the system to the next one of the user behind it. Nothing (first ==
// end) if no other turn follows.
struct Turn {
  size_t first, end;
};
Turn oldest_turn(const Messages& messages) {
  const auto role_is = [&](size_t i, const char* role) { return messages[i].role == role; };
  size_t first = 0;
  while (first < messages.size() && (role_is(first, "system") || role_is(first, "developer"))) ++first;
  for (size_t end = first + 1; end < messages.size(); ++end) {
    if (role_is(end, "user")) return {first, end};
  }
  return {first, first};
}

}  // namespace

FittedPrompt fit_conversation(std::vector<ChatMessage>& messages, size_t context, size_t answer_tokens,
                              const std::function<std::vector<TokenId>(std::span<const ChatMessage>)>& encode) {
  FittedPrompt prompt{encode(messages), 0};
  if (prompt.tokens.size() + std::min(answer_tokens, context / 4) <= context) return prompt;
  Messages left = messages;
  while (prompt.tokens.size() > context / 2) {
    const Turn turn = oldest_turn(left);
    if (turn.first == turn.end) break;
    left.erase(left.begin() + static_cast<std::ptrdiff_t>(turn.first), left.begin() + static_cast<std::ptrdiff_t>(turn.end));
    prompt.n_dropped += turn.end - turn.first;
    prompt.tokens = encode(left);
  }
  if (prompt.tokens.size() >= context) {
    prompt.n_dropped = 0;
  } else {
    messages = std::move(left);
  }
  return prompt;
}

}  // namespace kpd::text
