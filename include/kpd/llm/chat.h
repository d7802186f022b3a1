// llm: chat templates. A model's Jinja template is not run but recognised by its content as one of the known families.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "kpd/llm/tokenizer.h"

namespace kpd::llm {

struct ChatMessage {
  std::string role;  // system, user, assistant
  std::string content;
};

enum class ChatFamily { kChatMl, kLlama2, kLlama3, kMistral, kGemma, kPhi3, kQwen };
const char* chat_family_name(ChatFamily family);  // "chatml", "llama2", ...

// Throws Error(kUnsupported) for an unknown template, listing the known ones and how to go on (name one, or give a finished
// prompt).
ChatFamily recognise_chat_template(std::string_view jinja);
// By name; throws Error(kInvalidArgument) listing the names.
ChatFamily chat_family(std::string_view name);

// The prompt that the template of tokenizer.chat_template() gives for the messages, followed by what opens the assistant's
// turn; the family's usual form if that template is of another family or absent. Llama 3.1's date is the template's own (26 Jul
// 2024), not today's. To be encoded with {add_special = false, parse_special = true}. Throws Error(kInvalidArgument) for no
// messages, roles that the family does not know, and an order that it refuses.
std::string render_chat(ChatFamily family, const Tokenizer& tokenizer, std::span<const ChatMessage> messages);

}  // namespace kpd::llm
