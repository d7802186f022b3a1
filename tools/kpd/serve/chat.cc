#include "serve/chat.h"

#include "chat_options.h"
#include "kpd/base/error.h"

namespace kpd::tool {
namespace {

text::ChatPrompt render(const Service& service, const nlohmann::json& body, const TextQuery& query) {
  const std::vector<text::ChatMessage> messages = read_messages(body);
  if (!service.chat) throw ApiError(400, service.no_chat, "messages");
  size_t bytes = 0;
  for (const text::ChatMessage& m : messages) bytes += m.content.size() + m.reasoning_content.size();
  check_text_fits(bytes, service.scheduler.context(), "the messages have", "messages");
  text::ChatOptions options = service.chat_options;
  options.variables_json = query.chat_variables;
  options.add_generation_prompt = query.add_generation_prompt;
  try {
    return service.chat->render(service.tokenizer, messages, options);
  } catch (const Error& e) {
    throw ApiError(400, e.what(), "messages");
  }
}

}  // namespace

Prompt chat_prompt(const Service& service, const nlohmann::json& body, const TextQuery& query) {
  text::ChatPrompt rendered = render(service, body, query);
  check_text_fits(rendered.text.size(), service.scheduler.context(), "the prompt of the messages has", "messages");
  Prompt prompt;
  prompt.tokens = encode_prompt(service.tokenizer, rendered, service.special_in_content);
  prompt.opens_thought = text::opens_thought(rendered);
  prompt.text = std::move(rendered.text);
  return prompt;
}

HttpReply serve_apply_template(const Service& service, const HttpRequest& http) {
  const nlohmann::json body = parse_body(http.body);
  const TextQuery query = read_query(body, true, service.sampling, service.scheduler.description().n_vocabulary);
  return json_reply({{"prompt", render(service, body, query).text}});
}

}  // namespace kpd::tool
