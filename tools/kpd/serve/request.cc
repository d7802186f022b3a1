#include "serve/request.h"

#include <algorithm>
#include <charconv>
#include <limits>

#include "kpd/base/error.h"
#include "kpd/base/json_shape.h"

namespace kpd::tool {
namespace {

constexpr size_t kMaxDepth = 32;
constexpr size_t kMaxPrompts = 4096, kMaxChoices = 128, kMaxStops = 16, kMaxStopBytes = 1024, kMaxLogprobs = 20,
                 kMaxBiases = 4096;
// Of one body: a number takes 8 times its text in memory, a text, list or object up to 40 times.
constexpr size_t kMaxJsonParts = size_t{1} << 17;

const char* error_type(int status) {
  if (status == 401) return "authentication_error";
  if (status == 403) return "permission_error";
  if (status == 404) return "not_found_error";
  return status < 500 ? "invalid_request_error" : "server_error";
}

[[noreturn]] void wrong(const std::string& name, const std::string& expected) {
  throw ApiError(400, str("'", name, "': expected ", expected), name);
}

// What OpenAI's interface, or another server's, has and kpd lacks: what asks for nothing is taken.
const std::vector<Neutral>& neutral_fields() {
  using J = nlohmann::json;
  static const std::vector<Neutral> fields = {
      {"best_of", {1}},
      {"suffix", {""}},
      {"tools", {J::array()}},
      {"tool_choice", {"none", "auto"}},
      {"functions", {J::array()}},
      {"function_call", {"none", "auto"}},
      {"response_format", {J::object({{"type", "text"}})}},
      {"modalities", {J::array({"text"})}},
      {"verbosity", {"medium"}},
      {"web_search_options", {}},
      {"prediction", {}},
      {"audio", {}},
      {"reasoning_effort", {}},
      // vLLM
      {"use_beam_search", {false}},
      {"length_penalty", {1}},
      {"min_tokens", {0}},
      {"skip_special_tokens", {true}},
      {"spaces_between_special_tokens", {true}},
      {"include_stop_str_in_output", {false}},
      {"stop_token_ids", {J::array()}},
      {"continue_final_message", {false}},
      {"documents", {J::array()}},
      // llama.cpp
      {"typical_p", {1}},
      {"typ_p", {1}},
      {"top_n_sigma", {-1, 0}},
      {"tfs_z", {1}},
      {"mirostat", {0}},
      {"dynatemp_range", {0}},
      {"xtc_probability", {0}},
      {"dry_multiplier", {0}},
      {"n_keep", {0}},
      {"n_probs", {0}},
      {"min_keep", {0}},
      {"grammar", {""}},
      {"json_schema", {J::object()}},
      {"lora", {J::array()}},
      {"samplers", {"", J::array()}},
      {"id_slot", {-1}},
      {"t_max_predict_ms", {0}},
      {"n_indent", {0}},
      {"response_fields", {J::array()}},
      {"verbose", {false}},
      {"return_tokens", {false}},
      {"post_sampling_probs", {false}},
  };
  return fields;
}

// Fields that change no token of an answer, whatever they say: how it is billed, kept, cached or computed elsewhere, what else
// another server tells of it; and what stands beside another field that asks for nothing.
constexpr const char* kIdleFields[] = {
    // OpenAI
    "user", "safety_identifier", "metadata", "store", "service_tier", "parallel_tool_calls", "prompt_cache_key",
    "prompt_cache_retention",
    // llama.cpp and its page
    "cache_prompt", "timings_per_token", "return_progress", "reasoning_control", "backend_sampling", "dynatemp_exponent",
    "xtc_threshold", "mirostat_tau", "mirostat_eta", "dry_base", "dry_allowed_length", "dry_penalty_last_n",
    "dry_sequence_breakers",
    // vLLM
    "priority", "request_id", "guided_decoding_backend"};

// The same of a message. Clients send back what the server gave them: an answer has its refusal, which is null.
const std::vector<Neutral>& neutral_of_message() {
  using J = nlohmann::json;
  static const std::vector<Neutral> fields = {
      {"refusal", {}},
      {"audio", {}},
      {"function_call", {}},
      {"annotations", {J::array()}},
      {"tool_calls", {J::array()}},
      {"type", {"text", "message"}},  // lm-evaluation-harness has the first, agents that send back a reply the second
  };
  return fields;
}

void read_stop(Fields& fields, TextQuery& q) {
  const nlohmann::json* stop = fields.get("stop");
  if (stop == nullptr) return;
  const nlohmann::json list = stop->is_string() ? nlohmann::json::array({*stop}) : *stop;
  const std::string expected = str("a string, or at most ", kMaxStops, " strings of at most ", kMaxStopBytes, " bytes");
  if (!list.is_array() || list.size() > kMaxStops) wrong("stop", expected);
  for (const nlohmann::json& text : list) {
    if (!text.is_string() || text.get_ref<const std::string&>().size() > kMaxStopBytes) wrong("stop", expected);
    if (!text.get_ref<const std::string&>().empty()) q.stop.push_back(text.get<std::string>());
  }
}

void read_logprobs(Fields& fields, TextQuery& q) {
  if (!q.chat) {
    // Some clients send the chat's form.
    const nlohmann::json* value = fields.get("logprobs");
    if (value != nullptr && value->is_boolean()) {
      if (value->get<bool>()) q.logprobs = 1;
    } else {
      q.logprobs = fields.count("logprobs", 0, kMaxLogprobs);
    }
    return;
  }
  const auto top = fields.count("top_logprobs", 0, kMaxLogprobs);
  if (fields.flag("logprobs", false)) {
    q.logprobs = top.value_or(0);
  } else if (top.value_or(0) > 0) {
    wrong("top_logprobs", "\"logprobs\": true with it");
  }
}

// {"token id": bias}, as OpenAI has it; llama.cpp also takes a list of [token id, bias], false for never.
void read_logit_bias(Fields& fields, size_t n_vocabulary, llm::SamplingOptions& s) {
  const nlohmann::json* given = fields.get("logit_bias");
  if (given == nullptr) return;
  const std::string expected =
      str("at most ", kMaxBiases, " token ids below ", n_vocabulary, ", each with a number from -100 to 100");
  if (!given->is_structured() || given->size() > kMaxBiases) wrong("logit_bias", expected);
  const auto add = [&](uint64_t token, const nlohmann::json& bias) {
    const bool never = bias.is_boolean() && !bias.get<bool>();
    const double value = bias.is_number() ? bias.get<double>() : 0;
    if (token >= n_vocabulary || !(bias.is_number() || never) || !(value >= -100 && value <= 100))
      wrong("logit_bias", expected);
    const float added = never ? -std::numeric_limits<float>::infinity() : static_cast<float>(value);
    s.logit_bias.emplace_back(static_cast<text::TokenId>(token), added);
  };
  for (const auto& [name, value] : given->items()) {
    uint64_t token = UINT64_MAX;
    if (given->is_object()) {
      const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), token);
      if (error != std::errc() || end != name.data() + name.size()) wrong("logit_bias", expected);
      add(token, value);
    } else {
      if (!value.is_array() || value.size() != 2 || !value[0].is_number_unsigned()) wrong("logit_bias", expected);
      add(value[0].get<uint64_t>(), value[1]);
    }
  }
}

void read_sampling(Fields& fields, size_t n_vocabulary, TextQuery& q) {
  llm::SamplingOptions& s = q.sampling;
  s.temperature = fields.number("temperature", s.temperature, 0, 100);
  s.top_p = fields.number("top_p", s.top_p, 0, 1);
  if (s.top_p == 0) s.top_p = 1e-9;  // the most probable token only
  s.min_p = fields.number("min_p", s.min_p, 0, 1);
  if (const auto k = fields.count_or_all("top_k", 1 << 24)) s.top_k = *k <= 1 << 24 ? *k : 0;
  for (const char* name : {"repetition_penalty", "repeat_penalty"})
    s.repeat_penalty = fields.number(name, s.repeat_penalty, 0.01, 100);
  s.presence_penalty = fields.number("presence_penalty", s.presence_penalty, -2, 2);
  s.frequency_penalty = fields.number("frequency_penalty", s.frequency_penalty, -2, 2);
  read_logit_bias(fields, n_vocabulary, s);
  // How far back llama.cpp's penalties look; kpd's see everything.
  if (const nlohmann::json* last = fields.get("repeat_last_n"); last != nullptr && *last != -1 && s.repeat_penalty != 1)
    throw ApiError(400, "'repeat_last_n' is not supported", "repeat_last_n", "unsupported_parameter");
  const nlohmann::json* seed = fields.get("seed");
  if (seed == nullptr) return;
  if (!seed->is_number_integer()) wrong("seed", "an integer");
  if (!seed->is_number_unsigned() && *seed == -1) return;  // "any", to users of llama.cpp
  q.has_seed = true;
  s.seed = seed->is_number_unsigned() ? seed->get<uint64_t>() : static_cast<uint64_t>(seed->get<int64_t>());
}

}  // namespace

HttpReply ApiError::reply() const {
  HttpReply reply = json_reply({{"error",
                                 {{"message", what()},
                                  {"type", error_type(status_)},
                                  {"param", param_.empty() ? Json() : Json(param_)},
                                  {"code", code_.empty() ? Json() : Json(code_)}}}});
  reply.status = status_;
  if (status_ == 503) reply.headers.emplace("Retry-After", "1");
  if (status_ == 401) reply.headers.emplace("WWW-Authenticate", "Bearer");
  return reply;
}

std::string dump(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

HttpReply json_reply(const Json& json) {
  HttpReply reply;
  reply.body = dump(json);
  return reply;
}

nlohmann::json parse_body(const std::string& body) {
  const JsonShape shape = json_shape(body);
  if (shape.depth > kMaxDepth) throw ApiError(400, str("request body is nested deeper than ", kMaxDepth, " levels"));
  if (shape.parts > kMaxJsonParts)
    throw ApiError(400, str("request body has more than ", kMaxJsonParts, " strings, arrays and objects"));
  nlohmann::json parsed = nlohmann::json::parse(body, nullptr, /*allow_exceptions=*/false);
  if (parsed.is_discarded()) throw ApiError(400, "request body is not valid JSON");
  if (!parsed.is_object()) throw ApiError(400, "request body is not a JSON object");
  return parsed;
}

const nlohmann::json* Fields::get(const std::string& name) {
  known_.push_back(name);
  const auto it = body_.find(name);
  return it == body_.end() || it->is_null() ? nullptr : &*it;
}

bool Fields::flag(const std::string& name, bool otherwise) {
  const nlohmann::json* value = get(name);
  if (value == nullptr) return otherwise;
  if (!value->is_boolean()) wrong(where_ + name, "true or false");
  return value->get<bool>();
}

double Fields::number(const std::string& name, double otherwise, double min, double max) {
  const nlohmann::json* value = get(name);
  if (value == nullptr) return otherwise;
  if (!value->is_number() || !(value->get<double>() >= min && value->get<double>() <= max))
    wrong(where_ + name, str("a number from ", min, " to ", max));
  return value->get<double>();
}

std::optional<size_t> Fields::count(const std::string& name, size_t min, size_t max) {
  const nlohmann::json* value = get(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number_unsigned() || value->get<uint64_t>() < min || value->get<uint64_t>() > max)
    wrong(where_ + name, str("an integer from ", min, " to ", max));
  return value->get<size_t>();
}

std::optional<size_t> Fields::count_or_all(const std::string& name, size_t max) {
  const nlohmann::json* value = get(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_number_integer() && value->get<int64_t>() == -1 && !value->is_number_unsigned()) return kAll;
  if (!value->is_number_unsigned() || value->get<uint64_t>() > max)
    wrong(where_ + name, str("an integer from 0 to ", max, ", or -1"));
  return value->get<size_t>();
}

std::optional<std::string> Fields::text(const std::string& name) {
  const nlohmann::json* value = get(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) wrong(where_ + name, "a string");
  return value->get<std::string>();
}

void Fields::finish(std::span<const Neutral> neutral) const {
  for (auto field = body_.begin(); field != body_.end(); ++field) {
    const std::string& name = field.key();
    const nlohmann::json& value = field.value();
    if (value.is_null() || std::find(known_.begin(), known_.end(), name) != known_.end()) continue;
    const std::string shown = where_ + name.substr(0, 80);
    const auto it = std::find_if(neutral.begin(), neutral.end(), [&](const Neutral& f) { return name == f.name; });
    if (it == neutral.end()) throw ApiError(400, str("the field '", shown, "' is unknown"), shown, "unknown_parameter");
    if (std::find(it->values.begin(), it->values.end(), value) == it->values.end())
      throw ApiError(400, str("'", shown, "' is not supported"), shown, "unsupported_parameter");
  }
}

namespace {

void read_chat_fields(Fields& fields, TextQuery& q) {
  q.add_generation_prompt = fields.flag("add_generation_prompt", true);
  if (const auto format = fields.text("reasoning_format")) {
    if (*format != "none" && *format != "auto" && *format != "deepseek") wrong("reasoning_format", "none, auto or deepseek");
    q.split_thoughts = *format != "none";
  }
  if (const nlohmann::json* variables = fields.get("chat_template_kwargs")) {
    if (!variables->is_object()) wrong("chat_template_kwargs", "an object");
    q.chat_variables = variables->dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  }
}

}  // namespace

TextQuery read_query(const nlohmann::json& body, bool chat, const llm::SamplingOptions& defaults, size_t n_vocabulary) {
  TextQuery q;
  q.chat = chat;
  q.sampling = defaults;
  Fields fields(body);
  fields.text("model");  // there is one; clients name it as they like
  for (const char* name : kIdleFields) fields.get(name);
  fields.get(chat ? "messages" : "prompt");
  q.stream = fields.flag("stream", false);
  if (const nlohmann::json* options = fields.get("stream_options")) {
    if (!options->is_object()) wrong("stream_options", "an object");
    if (!q.stream) wrong("stream_options", "\"stream\": true with it");
    Fields inner(*options, "stream_options.");
    q.include_usage = inner.flag("include_usage", false);
    for (const char* name : {"include_obfuscation", "continuous_usage_stats"})
      if (inner.flag(name, false)) wrong(str("stream_options.", name), "false");
    inner.finish();
  }
  for (const char* name : {"n_predict", "max_tokens", "max_completion_tokens"})
    if (const auto n = fields.count_or_all(name, size_t{1} << 30)) q.max_tokens = n;
  if (chat) {
    read_chat_fields(fields, q);
  } else {
    q.echo = fields.flag("echo", false);
  }
  if (const auto seconds = fields.count_or_all("sse_ping_interval", 3600))
    q.comment_seconds = *seconds == Fields::kAll ? 0 : *seconds;
  q.n = fields.count("n", 1, kMaxChoices).value_or(1);
  q.ignore_eos = fields.flag("ignore_eos", false);
  read_logprobs(fields, q);
  read_stop(fields, q);
  read_sampling(fields, n_vocabulary, q);
  fields.finish(neutral_fields());
  return q;
}

std::vector<text::TokenId> read_tokens(const nlohmann::json& list, const std::string& name, size_t n_vocabulary) {
  std::vector<text::TokenId> tokens;
  for (const nlohmann::json& token : list) {
    if (!token.is_number_unsigned() || token.get<uint64_t>() >= n_vocabulary)
      wrong(name, str("token ids, integers below ", n_vocabulary));
    tokens.push_back(token.get<text::TokenId>());
  }
  return tokens;
}

void check_prompt_fits(size_t tokens, size_t context, bool answers, const char* param) {
  const std::string refusal = llm::prompt_refusal(tokens, context, answers);
  if (!refusal.empty()) throw ApiError(400, refusal, param, "context_length_exceeded");
}

void check_text_fits(size_t bytes, size_t context, const char* what, const char* param) {
  if (bytes / kMaxBytesPerToken <= context) return;
  throw ApiError(400, str(what, " ", bytes, " bytes, the context is ", context, " tokens"), param, "context_length_exceeded");
}

std::vector<Prompt> read_prompts(const nlohmann::json& body, const text::Tokenizer& tokenizer, size_t context) {
  const char* kExpected = "a string, a list of strings, a list of token ids or a list of such lists";
  const auto it = body.find("prompt");
  if (it == body.end() || it->is_null()) wrong("prompt", kExpected);
  std::vector<Prompt> prompts;
  const auto add = [&](const nlohmann::json& prompt) {
    if (prompt.is_array()) {
      check_prompt_fits(prompt.size(), context, false, "prompt");
      std::vector<text::TokenId> tokens = read_tokens(prompt, "prompt", tokenizer.vocabulary_size());
      std::string text = tokenizer.decode(tokens, false);
      prompts.push_back({std::move(tokens), std::move(text), 0});
    } else if (prompt.is_string()) {
      const std::string& text = prompt.get_ref<const std::string&>();
      check_text_fits(text.size(), context, "the prompt has", "prompt");
      std::vector<text::TokenId> tokens = tokenizer.encode(text);
      const bool adds = tokenizer.adds_bos() && !tokens.empty() && tokens.front() == tokenizer.bos();
      prompts.push_back({std::move(tokens), text, adds ? size_t{1} : size_t{0}});
    } else {
      wrong("prompt", kExpected);
    }
  };
  const bool several = it->is_array() && !it->empty() && !it->front().is_number();
  if (!several) {
    add(*it);
  } else {
    if (it->size() > kMaxPrompts) wrong("prompt", str("at most ", kMaxPrompts, " prompts"));
    for (const nlohmann::json& prompt : *it) add(prompt);
  }
  return prompts;
}

namespace {

// A text, or a list of parts that are texts.
std::string read_content(const nlohmann::json* content, const std::string& name) {
  if (content == nullptr || !(content->is_string() || content->is_array())) wrong(name, "a string");
  if (content->is_string()) return content->get<std::string>();
  std::string joined;
  for (size_t i = 0; i < content->size(); ++i) {
    const nlohmann::json& part = (*content)[i];
    if (!part.is_object() || part.value("type", nlohmann::json()) != "text")
      wrong(name, "text; images and audio are not supported");
    Fields fields(part, str(name, "[", i, "]."));
    fields.get("type");
    fields.get("cache_control");  // there is nothing to be billed
    const auto text = fields.text("text");
    if (!text) wrong(name, "a string 'text' in every part");
    fields.finish();
    if (i > 0) joined += '\n';  // as vLLM joins them
    joined += *text;
  }
  return joined;
}

}  // namespace

std::vector<text::ChatMessage> read_messages(const nlohmann::json& body) {
  const auto list = body.find("messages");
  if (list == body.end() || !list->is_array() || list->empty()) wrong("messages", "a list of messages");
  std::vector<text::ChatMessage> messages;
  for (size_t i = 0; i < list->size(); ++i) {
    const nlohmann::json& m = (*list)[i];
    const std::string name = str("messages[", i, "]");
    if (!m.is_object()) wrong(name, "an object with role and content");
    Fields fields(m, name + ".");
    std::string role = fields.text("role").value_or("");
    if (role.empty()) wrong(name + ".role", "system, user or assistant");
    if (role == "developer") role = "system";
    if (role == "tool" || role == "function")
      throw ApiError(400, str("'", name, ".role': tools are not supported"), "messages");
    fields.text("name");  // no template has a place for it
    std::string content = read_content(fields.get("content"), name + ".content");
    std::string reasoning = fields.text("reasoning_content").value_or("");
    fields.finish(neutral_of_message());
    messages.push_back({.role = std::move(role), .content = std::move(content), .reasoning_content = std::move(reasoning)});
  }
  return messages;
}

}  // namespace kpd::tool
