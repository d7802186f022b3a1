// tools: chat requests of `kpd serve`: messages become a prompt.
#pragma once

#include "serve/openai.h"

namespace kpd::tool {

// The prompt of a request's messages. Throws ApiError for messages that the template refuses or that cannot fit.
Prompt chat_prompt(const Service& service, const nlohmann::json& body, const TextQuery& query);

// POST /apply-template: the body of a chat request; the reply is {"prompt": ...}.
HttpReply serve_apply_template(const Service& service, const HttpRequest& http);

}  // namespace kpd::tool
