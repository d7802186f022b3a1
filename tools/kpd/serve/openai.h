// tools: OpenAI's interface over a scheduler: completions and chat completions, whole or as a stream.
#pragma once

#include <optional>
#include <string>

#include "serve/http_server.h"
#include "kpd/text/chat.h"
#include "kpd/llm/scheduler.h"
#include "serve/request.h"

namespace kpd::tool {

// What all routes share. Immutable but for the scheduler, which is thread-safe.
struct Service {
  llm::Scheduler& scheduler;
  const text::Tokenizer& tokenizer;
  std::optional<text::ChatTemplate> chat{};  // none: no chat, for the reason in no_chat
  text::ChatOptions chat_options{};
  bool special_in_content = false;  // control tokens in messages are read
  std::string no_chat{};
  std::string model{};  // its name, without the path
  int64_t created = 0;
  uint64_t model_bytes = 0;             // of the weights, in memory
  llm::SamplingOptions sampling{};      // where a request says nothing
  int timeout_seconds = 600;            // of silence
  size_t max_requests = 0;              // that one HTTP request may ask for
  std::vector<std::string> api_keys{};  // none: no key is needed
};

HttpReply serve_completions(const Service& service, const HttpRequest& http);
HttpReply serve_chat(const Service& service, const HttpRequest& http);

// serve_info.cc
HttpReply serve_models(const Service& service, const HttpRequest& http);
HttpReply serve_tokenize(const Service& service, const HttpRequest& http);
HttpReply serve_detokenize(const Service& service, const HttpRequest& http);
HttpReply serve_tokenizer_info(const Service& service, const HttpRequest& http);
HttpReply serve_props(const Service& service, const HttpRequest& http);
HttpReply serve_health(const Service& service, const HttpRequest& http);
HttpReply serve_metrics(const Service& service, const HttpRequest& http);

// serve_page.cc
HttpReply serve_page();

// Compares in a time that depends on the length of what the client sent alone.
bool authorized(const Service& service, const std::string& authorization);

// The handler, with the key checked and what it throws as a reply.
HttpHandler guarded(const Service& service, HttpReply (*handler)(const Service&, const HttpRequest&), bool open = false);

}  // namespace kpd::tool
