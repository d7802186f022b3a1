// tools: what `kpd serve` says about itself and its tokenizer.
#include <algorithm>

#include <fmt/format.h>

#include "kpd/base/ascii.h"
#include "kpd/base/error.h"
#include "serve/openai.h"

namespace kpd::tool {
namespace {

Json spelling(const text::Tokenizer& tokenizer, std::optional<text::TokenId> token) {
  return token ? Json(std::string(tokenizer.token(*token))) : Json();
}

// As llama-server gives it: a text, or its bytes where they are a part of a character.
Json piece(const text::Tokenizer& tokenizer, text::TokenId token) {
  const std::string bytes = tokenizer.token_bytes(token);
  try {
    static_cast<void>(Json(bytes).dump());
    return bytes;
  } catch (const Json::type_error&) {
    Json list = Json::array();
    for (const char c : bytes) list.push_back(static_cast<unsigned char>(c));
    return list;
  }
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
  // Two servers' names and defaults: vLLM's `prompt` with BOS, llama-server's `content` without.
  const auto prompt = fields.text("prompt"), content = fields.text("content");
  const bool add_special = fields.flag("add_special_tokens", fields.flag("add_special", prompt.has_value()));
  const bool parse_special = fields.flag("parse_special", true), with_pieces = fields.flag("with_pieces", false);
  fields.finish();
  if (!prompt && !content) throw ApiError(400, "'prompt': expected a text", "prompt");
  const std::string& text = prompt ? *prompt : *content;
  check_text_fits(text.size(), service.scheduler.context(), "the text has", prompt ? "prompt" : "content");
  const auto tokens = service.tokenizer.encode(text, {add_special, parse_special});
  Json list = tokens;
  if (with_pieces) {
    for (size_t i = 0; i < tokens.size(); ++i) list[i] = {{"id", tokens[i]}, {"piece", piece(service.tokenizer, tokens[i])}};
  }
  return json_reply({{"count", tokens.size()}, {"max_model_len", service.scheduler.context()}, {"tokens", list}});
}

HttpReply serve_detokenize(const Service& service, const HttpRequest& http) {
  const nlohmann::json body = parse_body(http.body);
  Fields fields(body);
  fields.text("model");
  const nlohmann::json* list = fields.get("tokens");
  fields.finish();
  if (list == nullptr || !list->is_array()) throw ApiError(400, "'tokens': expected a list of token ids", "tokens");
  // As many as /tokenize can give.
  const size_t most = service.scheduler.context() * kMaxBytesPerToken;
  if (list->size() > most)
    throw ApiError(400, str("'tokens': ", list->size(), " tokens, expected at most ", most), "tokens",
                   "context_length_exceeded");
  const std::string text = service.tokenizer.decode(read_tokens(*list, "tokens", service.tokenizer.vocabulary_size()), false);
  return json_reply({{"prompt", text}, {"content", text}});
}

HttpReply serve_tokenizer_info(const Service& service, const HttpRequest&) {
  const text::Tokenizer& t = service.tokenizer;
  return json_reply({{"vocab_size", t.vocabulary_size()},
                     {"model_max_length", service.scheduler.context()},
                     {"add_bos_token", t.adds_bos()},
                     {"bos_token", spelling(t, t.bos())},
                     {"eos_token", spelling(t, t.eos())},
                     {"pad_token", spelling(t, t.eos())},
                     {"chat_template", t.chat_template().empty() ? Json() : Json(t.chat_template())}});
}

// Of llama-server's, what holds here too.
HttpReply serve_props(const Service& service, const HttpRequest&) {
  const llm::SamplingOptions& o = service.sampling;
  const text::Tokenizer& t = service.tokenizer;
  const Json params = {{"temperature", o.temperature},
                       {"top_k", o.top_k},
                       {"top_p", o.top_p},
                       {"min_p", o.min_p},
                       {"repeat_penalty", o.repeat_penalty}};
  return json_reply({{"default_generation_settings", {{"n_ctx", service.scheduler.context()}, {"params", params}}},
                     {"total_slots", service.scheduler.stats().n_slots},
                     {"model_alias", service.model},
                     {"chat_template", t.chat_template()},
                     {"bos_token", spelling(t, t.bos())},
                     {"eos_token", spelling(t, t.eos())}});
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
  add("sequences_kept", "gauge", "Sequences kept for later requests beside those of the slots.", n(s.kept));
  add("cache_bytes", "gauge", "Memory of the cache of keys and values.", n(s.cache_bytes));
  add("cache_capacity_bytes", "gauge", "The same when the cache is full.", n(s.cache_capacity_bytes));
  return reply;
}

namespace {

bool equal_in_constant_time(std::string_view given, const std::string& key) {
  volatile unsigned char difference = given.size() == key.size() ? 0 : 1;
  for (size_t i = 0; i < given.size(); ++i) {
    const auto bits = static_cast<unsigned char>(given[i] ^ key[i % key.size()]);
    difference = static_cast<unsigned char>(difference | bits);
  }
  return difference == 0;
}

}  // namespace

bool authorized(const Service& service, const std::string& authorization) {
  if (service.api_keys.empty()) return true;
  constexpr std::string_view kScheme = "bearer";  // schemes are case-insensitive (RFC 9110, 11.1)
  const size_t space = authorization.find(' '), first = authorization.find_first_not_of(' ', space);
  if (first == std::string::npos) return false;
  if (ascii_lower(authorization.substr(0, space)) != kScheme) return false;
  const std::string_view given = std::string_view(authorization).substr(first);
  bool found = false;
  for (const std::string& key : service.api_keys) found |= equal_in_constant_time(given, key);
  return found;
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
