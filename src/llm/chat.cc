// llm: chat templates, recognised by the texts that they hold. A family has several templates that differ in a space or in what
// they do with a system message; those differences are read off the template too. What a template does with tools is left out.
#include "kpd/llm/chat.h"

#include <algorithm>

#include "kpd/base/error.h"
#include "llm/chat_style.h"
#include "llm/tokenizer_parts.h"

namespace kpd::llm {
namespace {

struct FamilyName {
  std::string_view name;
  ChatFamily family;
};
constexpr FamilyName kFamilies[] = {
    {"chatml", ChatFamily::kChatMl},   {"llama2", ChatFamily::kLlama2}, {"llama3", ChatFamily::kLlama3},
    {"mistral", ChatFamily::kMistral}, {"gemma", ChatFamily::kGemma},   {"phi3", ChatFamily::kPhi3},
    {"qwen", ChatFamily::kQwen},
};

std::string family_names() {
  std::string names;
  for (const FamilyName& f : kFamilies) names += str(names.empty() ? "" : ", ", f.name);
  return names;
}

// One conversation being written.
class Prompt {
 public:
  Prompt(const ChatStyle& style, const Tokenizer& tokenizer, std::span<const ChatMessage> messages)
      : style_(style), tokenizer_(tokenizer), messages_(messages) {
    if (messages_.front().role == "system") {
      system_ = &messages_.front().content;
      messages_ = messages_.subspan(1);
    }
    check_roles();
  }

  std::string chatml() {
    begin();
    if (system_) {
      turn_chatml("system", *system_);
    } else if (!style_.default_system.empty()) {
      turn_chatml("system", style_.default_system);
    }
    for (size_t i = 0; i < messages_.size(); ++i) {
      const ChatMessage& m = messages_[i];
      turn_chatml(m.role, style_.thinking && m.role == "assistant" ? thought(i) : m.content);
    }
    return out_ + "<|im_start|>assistant\n";
  }

  std::string llama2() {
    for (size_t i = 0; i < messages_.size(); ++i) {
      const std::string content =
          i == 0 && system_ ? str("<<SYS>>\n", *system_, "\n<</SYS>>\n\n", messages_[i].content) : messages_[i].content;
      if (messages_[i].role == "user") {
        out_ += str(spelling(tokenizer_.bos()), "[INST] ", stripped(content), " [/INST]");
      } else {
        out_ += str(" ", stripped(content), " ", spelling(tokenizer_.eos()));
      }
    }
    return out_;
  }

  std::string llama3() {
    begin();
    if (style_.dated_system || system_) {
      const std::string dates = style_.dated_system ? "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n" : "";
      turn_llama3("system", dates + (system_ ? stripped(*system_) : ""));
    }
    for (const ChatMessage& m : messages_) turn_llama3(m.role, stripped(m.content));
    return out_ + "<|start_header_id|>assistant<|end_header_id|>\n\n";
  }

  std::string mistral() {
    begin();
    for (size_t i = 0; i < messages_.size(); ++i) {
      const ChatMessage& m = messages_[i];
      if (m.role == "user") {
        const bool here = system_ && i == (style_.system_last ? messages_.size() - 1 : 0);
        out_ += str(style_.open_user, here ? str(*system_, "\n\n") : std::string(), m.content, style_.close_user);
      } else {
        out_ += str(style_.open_assistant, style_.trim ? stripped(m.content) : m.content, spelling(tokenizer_.eos()),
                    style_.close_assistant);
      }
    }
    return out_;
  }

  std::string gemma() {
    begin();
    for (size_t i = 0; i < messages_.size(); ++i) {
      const ChatMessage& m = messages_[i];
      const std::string before = i == 0 && system_ ? str(*system_, "\n\n") : std::string();
      out_ += str("<start_of_turn>", m.role == "assistant" ? "model" : m.role, "\n", before, stripped(m.content),
                  "<end_of_turn>\n");
    }
    return out_ + "<start_of_turn>model\n";
  }

  std::string phi3() {
    begin();
    const char* line = style_.one_line ? "" : "\n";
    if (system_) out_ += str("<|system|>", line, *system_, "<|end|>", line);
    for (const ChatMessage& m : messages_) {
      // The first template opens the assistant's turn at the end of every user's.
      const bool opened = style_.opens_after_user && m.role == "assistant";
      if (!opened) out_ += str("<|", m.role, "|>", line);
      out_ += str(m.content, "<|end|>", line);
      if (style_.opens_after_user && m.role == "user") out_ += str("<|assistant|>", line);
    }
    return style_.opens_after_user ? out_ : out_ + str("<|assistant|>", line);
  }

 private:
  void check_roles() {
    const char* family = chat_family_name(style_.family);
    if (system_ && !style_.system) {
      fail(ErrorCode::kInvalidArgument, "the ", family,
           " chat template of this model has no system messages, expected user and assistant");
    }
    for (size_t i = 0; i < messages_.size(); ++i) {
      const std::string& role = messages_[i].role;
      const bool known = role == "user" || role == "assistant" || (role == "system" && style_.system_anywhere);
      if (!known) {
        fail(ErrorCode::kInvalidArgument, "chat message ", i + (system_ ? 1 : 0), " has the role '", role, "', the ", family,
             " template knows ", style_.system ? "system (first), user and assistant" : "user and assistant");
      }
      if (style_.alternates && (role == "user") != (i % 2 == 0)) {
        fail(ErrorCode::kInvalidArgument, "chat message ", i + (system_ ? 1 : 0), " is of the ", role, ", the ", family,
             " template needs user and assistant in turn");
      }
    }
    if (messages_.empty() && style_.alternates) {
      fail(ErrorCode::kInvalidArgument, "a conversation of a system message alone, the ", family, " template needs a user's");
    }
  }

  std::string_view spelling(std::optional<TokenId> token) const {
    return token ? tokenizer_.token(*token) : std::string_view();
  }

  static std::string stripped(std::string_view text) {
    constexpr std::string_view kBlank = " \t\n\r\v\f";
    const size_t first = text.find_first_not_of(kBlank);
    if (first == text.npos) return {};
    return std::string(text.substr(first, text.find_last_not_of(kBlank) - first + 1));
  }

  void begin() {
    if (style_.bos) out_ += spelling(tokenizer_.bos());
  }
  void turn_chatml(std::string_view role, std::string_view content) {
    out_ += str("<|im_start|>", role, "\n", style_.trim ? stripped(content) : std::string(content), "<|im_end|>\n");
  }
  void turn_llama3(std::string_view role, std::string_view content) {
    out_ += str("<|start_header_id|>", role, "<|end_header_id|>\n\n", content, "<|eot_id|>");
  }

  // Qwen 3: thoughts of earlier turns are left out; an answer after the last question keeps a place for them.
  std::string thought(size_t i) const {
    constexpr std::string_view kOpen = "<think>", kClose = "</think>";
    const auto trimmed = [](std::string_view t, bool left, bool right) {
      while (left && t.starts_with('\n')) t.remove_prefix(1);
      while (right && t.ends_with('\n')) t.remove_suffix(1);
      return std::string(t);
    };
    std::string_view content = messages_[i].content, reasoning;
    const size_t first_close = content.find(kClose), last_close = content.rfind(kClose);
    if (first_close != content.npos) {
      reasoning = content.substr(0, first_close);
      while (reasoning.ends_with('\n')) reasoning.remove_suffix(1);
      if (const size_t open = reasoning.rfind(kOpen); open != reasoning.npos) reasoning.remove_prefix(open + kOpen.size());
      content = content.substr(last_close + kClose.size());
    }
    const std::string thoughts = trimmed(reasoning, true, false);
    const std::string answer = trimmed(content, first_close != std::string_view::npos, false);
    const bool after_last_question = std::none_of(messages_.begin() + static_cast<ptrdiff_t>(i), messages_.end(),
                                                  [](const ChatMessage& m) { return m.role == "user"; });
    if (after_last_question && (i + 1 == messages_.size() || !thoughts.empty())) {
      return str("<think>\n", trimmed(thoughts, true, true), "\n</think>\n\n", trimmed(answer, true, false));
    }
    return answer;
  }

  const ChatStyle& style_;
  const Tokenizer& tokenizer_;
  std::span<const ChatMessage> messages_;
  const std::string* system_ = nullptr;
  std::string out_;
};

}  // namespace

const char* chat_family_name(ChatFamily family) {
  for (const FamilyName& f : kFamilies) {
    if (f.family == family) return f.name.data();
  }
  return "unknown";
}

ChatFamily chat_family(std::string_view name) {
  for (const FamilyName& f : kFamilies) {
    if (f.name == name) return f.family;
  }
  fail(ErrorCode::kInvalidArgument, "no chat template '", name, "', expected one of ", family_names());
}

ChatFamily recognise_chat_template(std::string_view jinja) {
  if (const auto style = read_chat_style(jinja)) return style->family;
  fail(ErrorCode::kUnsupported,
       jinja.empty() ? "the model brings no chat template" : "the model's chat template is not one of the known",
       "; name the one that it was trained with (", family_names(), ") or give a finished prompt");
}

std::string render_chat(ChatFamily family, const Tokenizer& tokenizer, std::span<const ChatMessage> messages) {
  if (messages.empty()) fail(ErrorCode::kInvalidArgument, "a conversation without messages, expected one at least");
  const std::optional<ChatStyle>& own = tokenizer.parts().chat_style;
  const ChatStyle style = own && own->family == family ? *own : default_chat_style(family);
  Prompt prompt(style, tokenizer, messages);
  switch (family) {
    case ChatFamily::kChatMl:
    case ChatFamily::kQwen:
      return prompt.chatml();
    case ChatFamily::kLlama2:
      return prompt.llama2();
    case ChatFamily::kLlama3:
      return prompt.llama3();
    case ChatFamily::kMistral:
      return prompt.mistral();
    case ChatFamily::kGemma:
      return prompt.gemma();
    case ChatFamily::kPhi3:
      return prompt.phi3();
  }
  fail(ErrorCode::kInvalidArgument, "no such chat template, expected one of ", family_names());
}

}  // namespace kpd::llm
