// llm: what distinguishes the chat templates of one family.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "kpd/llm/chat.h"

namespace kpd::llm {

struct ChatStyle {
  ChatFamily family = ChatFamily::kChatMl;
  bool bos = false;              // the prompt opens with BOS
  bool system = true;            // a first message may be the system's
  bool system_anywhere = false;  // so may later ones
  bool alternates = false;       // user, assistant, user ...
  bool trim = false;             // contents are stripped (Mistral: the assistant's)
  std::string default_system;    // ChatML, Qwen: the system message of a conversation without one
  bool thinking = false;         // Qwen: thoughts are cut out of earlier turns
  bool dated_system = false;     // Llama 3.1 and later: always a system message, with dates
  bool system_last = false;      // Mistral: before the last user's message, not the first
  std::string_view open_user, close_user, open_assistant, close_assistant;  // Mistral
  bool opens_after_user = false;                                            // Phi-3: the first template
  bool one_line = false;                                                    // Phi-4-mini: no breaks
};

// Nothing if the template is not of a known family.
std::optional<ChatStyle> read_chat_style(std::string_view jinja);
// Of a model that brings no template of the family.
ChatStyle default_chat_style(ChatFamily family);

}  // namespace kpd::llm
