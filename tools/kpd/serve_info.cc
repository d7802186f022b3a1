// tools: what `kpd serve` says about itself and its tokenizer.
#include <fmt/format.h>

#include "kpd/base/error.h"
#include "serve_openai.h"

namespace kpd::tool {
namespace {

Json spelling(const llm::Tokenizer& tokenizer, std::optional<llm::TokenId> token) {
  return token ? Json(std::string(tokenizer.token(*token))) : Json();
}

}  // namespace

HttpReply serve_models(const Service& service, const HttpRequest&) {
  return json_reply({{"object", "list"},
                     {"data", Json::array({{{"id", service.model},
                                            {"object", "model"},
                                            {"created", service.created},
                                            {"owned_by", "kpd"},
                                            {"max_model_len", service.scheduler.context()}}})}});
}

HttpReply serve_tokenize(const Service& service, const HttpRequest& http) {
  const nlohmann::json body = parse_body(http.body);
  Fields fields(body);
  fields.text("model");
  const auto prompt = fields.text("prompt"), content = fields.text("content");  // two servers' names for it
  const bool add_special = fields.flag("add_special_tokens", true), parse_special = fields.flag("parse_special", true);
  fields.finish();
  if (!prompt && !content) throw ApiError(400, "'prompt': expected a text", "prompt");
  const auto tokens = service.tokenizer.encode(prompt ? *prompt : *content, {add_special, parse_special});
  return json_reply({{"count", tokens.size()}, {"max_model_len", service.scheduler.context()}, {"tokens", tokens}});
}

HttpReply serve_detokenize(const Service& service, const HttpRequest& http) {
  const nlohmann::json body = parse_body(http.body);
  Fields fields(body);
  fields.text("model");
  const nlohmann::json* list = fields.get("tokens");
  fields.finish();
  if (list == nullptr || !list->is_array()) throw ApiError(400, "'tokens': expected a list of token ids", "tokens");
  const std::string text = service.tokenizer.decode(read_tokens(*list, "tokens", service.tokenizer.vocabulary_size()), false);
  return json_reply({{"prompt", text}, {"content", text}});
}

HttpReply serve_tokenizer_info(const Service& service, const HttpRequest&) {
  const llm::Tokenizer& t = service.tokenizer;
  return json_reply({{"vocab_size", t.vocabulary_size()},
                     {"model_max_length", service.scheduler.context()},
                     {"add_bos_token", t.adds_bos()},
                     {"bos_token", spelling(t, t.bos())},
                     {"eos_token", spelling(t, t.eos())},
                     {"pad_token", spelling(t, t.eos())},
                     {"chat_template", t.chat_template().empty() ? Json() : Json(t.chat_template())}});
}

HttpReply serve_health(const Service&, const HttpRequest&) { return json_reply({{"status", "ok"}}); }

HttpReply serve_metrics(const Service& service, const HttpRequest&) {
  const llm::SchedulerStats s = service.scheduler.stats();
  HttpReply reply;
  reply.type = "text/plain; version=0.0.4";
  const auto add = [&](const char* name, const char* kind, const char* help, double value) {
    reply.body += fmt::format("# HELP kpd_{0} {1}\n# TYPE kpd_{0} {2}\nkpd_{0} {3}\n", name, help, kind, value);
  };
  const auto n = [](uint64_t value) { return static_cast<double>(value); };
  add("requests_total", "counter", "Answers asked for and taken up.", n(s.requests));
  add("requests_refused_total", "counter", "Answers refused because the queue was full.", n(s.refused));
  add("requests_finished_total", "counter", "Answers finished.", n(s.finished));
  add("requests_cancelled_total", "counter", "Answers cancelled.", n(s.cancelled));
  add("requests_failed_total", "counter", "Answers that failed.", n(s.failed));
  add("prompt_tokens_total", "counter", "Tokens of prompts.", n(s.prompt_tokens));
  add("prompt_tokens_cached_total", "counter", "Tokens of prompts that the cache held.", n(s.cached_tokens));
  add("generated_tokens_total", "counter", "Tokens of answers.", n(s.tokens));
  add("steps_total", "counter", "Forward passes.", n(s.steps));
  add("step_tokens_total", "counter", "Tokens in all forward passes.", n(s.rows));
  add("busy_seconds_total", "counter", "Time in forward passes.", s.busy_seconds);
  add("requests_active", "gauge", "Answers being computed.", n(s.active));
  add("requests_waiting", "gauge", "Answers waiting.", n(s.waiting));
  add("slots", "gauge", "Answers computed at once at most.", n(s.n_slots));
  add("context_tokens", "gauge", "Tokens of a prompt and its answer at most.", n(s.context));
  add("model_bytes", "gauge", "Memory of the weights.", n(service.model_bytes));
  add("cache_bytes", "gauge", "Memory of the cache of keys and values.", n(s.cache_bytes));
  return reply;
}

bool authorized(const Service& service, const std::string& authorization) {
  if (service.api_key.empty()) return true;
  constexpr std::string_view kScheme = "Bearer ";
  if (!authorization.starts_with(kScheme)) return false;
  const std::string_view given = std::string_view(authorization).substr(kScheme.size());
  const std::string& key = service.api_key;
  volatile unsigned char difference = given.size() == key.size() ? 0 : 1;
  for (size_t i = 0; i < given.size(); ++i) {
    const auto bits = static_cast<unsigned char>(given[i] ^ key[i % key.size()]);
    difference = static_cast<unsigned char>(difference | bits);
  }
  return difference == 0;
}

HttpHandler guarded(const Service& service, HttpReply (*handler)(const Service&, const HttpRequest&), bool open) {
  return [&service, handler, open](const HttpRequest& http) {
    try {
      if (!open && !authorized(service, http.authorization))
        throw ApiError(401, "a key is needed: Authorization: Bearer KEY", "", "invalid_api_key");
      return handler(service, http);
    } catch (const ApiError& e) {
      return e.reply();
    } catch (const Error& e) {
      const bool clients = e.code() == ErrorCode::kInvalidArgument || e.code() == ErrorCode::kUnsupported;
      return ApiError(clients ? 400 : 500, e.what()).reply();
    } catch (const std::exception&) {
      // Its text is about the inside of the program.
      return ApiError(500, "internal error").reply();
    }
  };
}

}  // namespace kpd::tool
