// llm: the style of a chat template, read off its Jinja source. Only what is in a family's published templates is taken for it:
// a text that a known template does not hold (another kind of turn, a reasoning switch) makes it unknown, since a prompt that
// is nearly right is worse than a refusal.
#include "llm/chat_style.h"

#include <algorithm>
#include <initializer_list>

namespace kpd::llm {
namespace {

// The source with one spelling of quotes and breaks: ' and a line's end.
std::string unified(std::string_view jinja) {
  std::string out;
  for (size_t i = 0; i < jinja.size(); ++i) {
    if (jinja[i] == '\\' && i + 1 < jinja.size() && jinja[i + 1] == 'n') {
      out += '\n';
      ++i;
    } else {
      out += jinja[i] == '"' ? '\'' : jinja[i];
    }
  }
  return out;
}

class Source {
 public:
  explicit Source(std::string text) : text_(std::move(text)) {}

  bool has(std::string_view part) const { return text_.find(part) != text_.npos; }
  bool has_any(std::initializer_list<std::string_view> parts) const {
    return std::any_of(parts.begin(), parts.end(), [&](std::string_view p) { return has(p); });
  }
  // What stands between the two where both are and nothing of `without` is between them; the first such place. `last` and
  // `bad` are searched for again only once `first` is past them: the text of a hostile file is read once, not once an `open`.
  std::optional<std::string> between(std::string_view open, std::string_view close, std::string_view without) const {
    size_t last = 0, bad = 0;
    for (size_t at = text_.find(open); at != text_.npos; at = text_.find(open, at + 1)) {
      const size_t first = at + open.size();
      if (last < first) last = text_.find(close, first);
      if (last == text_.npos) return std::nullopt;
      if (bad < first) bad = std::min(text_.find_first_of(without, first), text_.size());
      if (bad >= last) return text_.substr(first, last - first);
    }
    return std::nullopt;
  }

 private:
  std::string text_;
};

std::optional<ChatStyle> chatml(const Source& s) {
  // Phi-4's separator and SmolLM3's modes make other formats of it.
  if (s.has_any({"<|im_sep|>", "/no_think", "custom_instructions", "reasoning_effort"})) return std::nullopt;
  const bool qwen = s.has("Qwen") || s.has("<tool_call>") || s.has("You are a helpful assistant.<|im_end|>");
  ChatStyle style = default_chat_style(qwen ? ChatFamily::kQwen : ChatFamily::kChatMl);
  style.bos = s.has("bos_token");
  style.trim = !qwen && s.has_any({"| trim", "|trim", ".strip()"});
  style.thinking = qwen && s.has("</think>");
  style.default_system = s.between("<|im_start|>system\n", "<|im_end|>", "'{}").value_or("");
  return style;
}

std::optional<ChatStyle> llama3(const Source& s) {
  ChatStyle style = default_chat_style(ChatFamily::kLlama3);
  style.bos = s.has("bos_token");
  style.dated_system = s.has("Cutting Knowledge Date: December 2023");
  style.system_anywhere = true;
  return style;
}

std::optional<ChatStyle> mistral(const Source& s) {
  ChatStyle style = default_chat_style(ChatFamily::kMistral);
  if (s.has("[SYSTEM_PROMPT]")) return std::nullopt;
  style.open_user = s.has("' [INST] '") ? " [INST] " : s.has("'[INST] '") ? "[INST] " : s.has("'[INST]'") ? "[INST]" : "";
  style.close_user = s.has("' [/INST]'") ? " [/INST]" : s.has("'[/INST]'") ? "[/INST]" : "";
  if (style.open_user.empty() || style.close_user.empty()) return std::nullopt;
  const bool space = s.has_any({"' ' + message['content']", "' ' + content"});
  style.open_assistant = space ? " " : "";
  style.trim = s.has_any({"message['content']|trim", "message['content'] | trim"});
  style.close_assistant = s.has_any({"eos_token + ' '", "eos_token+' '"}) ? " " : "";
  style.system = s.has("system_message");
  style.system_last = s.has("loop.last and system_message");
  return style;
}

std::optional<ChatStyle> phi3(const Source& s) {
  ChatStyle style = default_chat_style(ChatFamily::kPhi3);
  style.bos = s.has("bos_token");
  style.opens_after_user = !s.has("add_generation_prompt");
  style.one_line = !s.has_any({"<|end|>\n", "'<|end|>' + '\n'"});
  style.system = s.has_any({"<|system|>", "'<|' + message['role'] + '|>'"});
  return style;
}

std::optional<ChatStyle> gemma(const Source& s) {
  ChatStyle style = default_chat_style(ChatFamily::kGemma);
  style.bos = s.has("bos_token");
  style.system = s.has("first_user_prefix");
  return style;
}

}  // namespace

ChatStyle default_chat_style(ChatFamily family) {
  ChatStyle style;
  style.family = family;
  switch (family) {
    case ChatFamily::kChatMl:
    case ChatFamily::kQwen:
      style.system_anywhere = true;
      break;
    case ChatFamily::kLlama2:
      style.alternates = true;
      break;
    case ChatFamily::kLlama3:
      style.bos = true;
      break;
    case ChatFamily::kMistral:
      style.bos = style.alternates = true;
      style.open_user = "[INST] ";
      style.close_user = " [/INST]";
      break;
    case ChatFamily::kGemma:
      style.bos = style.alternates = true;
      break;
    case ChatFamily::kPhi3:
      break;
  }
  return style;
}

std::optional<ChatStyle> read_chat_style(std::string_view jinja) {
  const Source s(unified(jinja));
  if (s.has("<|im_start|>")) return chatml(s);
  if (s.has("<|start_header_id|>") && s.has("<|eot_id|>")) return llama3(s);
  if (s.has("<start_of_turn>") && s.has("<end_of_turn>")) return gemma(s);
  if (s.has("[INST]") && s.has("<<SYS>>")) return default_chat_style(ChatFamily::kLlama2);
  if (s.has("[INST]")) return mistral(s);
  if (s.has("<|end|>") && (s.has("<|user|>") || s.has("'<|' + message['role'] + '|>'"))) return phi3(s);
  return std::nullopt;
}

}  // namespace kpd::llm
