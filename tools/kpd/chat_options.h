// tools: the options about chat templates, which generate and serve share, and how a template is found and its prompt encoded.
#pragma once

#include <string>
#include <vector>

#include "cli.h"
#include "kpd/text/chat.h"

namespace kpd::tool {

struct ChatArgs {
  std::string template_text, thinking, date;
  bool special_in_content = false;

  void add_options(CLI::App& app);
  // The option that was given, or null: commands that do not chat refuse it.
  const char* given() const;
  // Throws UsageError for values that make no sense.
  text::ChatOptions options() const;
};

// What --chat-template names: a built-in template, one of the model's own by its name, a file; else the model's own. Errors
// name the option.
text::ChatTemplate choose_template(const ChatArgs& args, const text::Tokenizer& tokenizer);

// Control tokens in the messages stay text, unless `special_in_content`.
inline std::vector<text::TokenId> encode_prompt(const text::Tokenizer& tokenizer, const text::ChatPrompt& prompt,
                                                bool special_in_content) {
  if (special_in_content) return tokenizer.encode(prompt.text, {.add_special = false, .parse_special = true});
  return tokenizer.encode(prompt.text, prompt.foreign);
}

}  // namespace kpd::tool
