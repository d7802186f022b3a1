// text: chat templates: a model's Jinja template, run as transformers runs it, turns a conversation into the prompt that the
// model was trained on. docs/design/0011 says what of Jinja is there and what its limits are.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kpd/text/tokenizer.h"

namespace kpd::text {

struct ChatMessage {
  std::string role;     // system, user, assistant, or what the template knows beside them
  std::string content;  // the text, where there are no parts
  // Given, the template sees a list of {"type": "text", "text": ...} instead, as OpenAI's interface has it.
  std::vector<std::string> parts{};
  std::string reasoning_content{};  // an assistant's thoughts, where they were cut from its answer
};

// A local time, for templates that write the date.
struct ChatTime {
  int year = 1970, month = 1, day = 1, hour = 0, minute = 0, second = 0;
};
// "2026-12-01"; throws Error(kInvalidArgument) for what is no date of the years 1 to 9999.
ChatTime parse_chat_date(std::string_view text);

struct ChatOptions {
  bool add_generation_prompt = true;  // end with what opens the assistant's turn
  std::optional<bool> thinking{};     // the template's `enable_thinking`; none: what the template does by itself
  std::optional<ChatTime> now{};      // none: this machine's local time
  // More variables of the template, a JSON object (`chat_template_kwargs`); they win over all others. Empty: none.
  std::string variables_json{};
};

// A prompt, and which of its bytes come from the messages and variables, not from the template: ascending, disjoint ranges.
// Tokenizer::encode(text, foreign) reads control tokens in the other bytes only.
struct ChatPrompt {
  std::string text;
  std::vector<TextRange> foreign;
};

// A compiled template. Immutable: const members are thread-safe.
class ChatTemplate {
 public:
  // Throws Error(kCorruptData) for what is not Jinja, Error(kUnsupported) for tags that are not there (include, extends,
  // import), each with line and column, Error(kLimitExceeded) for a template of more than 256 KiB or nested too deeply.
  static ChatTemplate from_source(std::string_view jinja);
  // One of names(); throws Error(kInvalidArgument) listing them.
  static ChatTemplate built_in(std::string_view name);
  static std::span<const std::string_view> names();  // chatml, llama2, llama3, mistral, gemma, phi3, qwen
  // The template that the model's files bring; throws Error(kUnsupported) if there is none.
  static ChatTemplate of_model(const Tokenizer& tokenizer);

  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  // Throws Error(kInvalidArgument) where the template refuses the conversation (its own words) or fails on it as jinja2 does
  // (with the place), for no messages and for variables that are no JSON object; Error(kUnsupported) with the place for what
  // this interpreter lacks; Error(kLimitExceeded) for too many steps, too deep nesting, or too much text.
  ChatPrompt render(const Tokenizer& tokenizer, std::span<const ChatMessage> messages, const ChatOptions& options = {}) const;

  const std::string& source() const;

 private:
  struct Program;
  explicit ChatTemplate(std::unique_ptr<const Program> program);
  std::unique_ptr<const Program> program_;
};

// Whether the prompt ends with <think> that the template wrote: the answer begins with what the model thinks.
bool opens_thought(const ChatPrompt& prompt);

}  // namespace kpd::text
