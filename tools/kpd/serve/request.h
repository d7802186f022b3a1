// tools: bodies of `kpd serve` requests read and checked: what OpenAI's interface names but kpd lacks is refused by its name,
// never ignored.
#pragma once

#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "serve/http_server.h"
#include "kpd/text/chat.h"
#include "kpd/llm/scheduler.h"

namespace kpd::tool {

using Json = nlohmann::ordered_json;

// A refusal in OpenAI's shape.
class ApiError : public std::runtime_error {
 public:
  ApiError(int status, const std::string& text, std::string param = "", std::string code = "")
      : std::runtime_error(text), status_(status), param_(std::move(param)), code_(std::move(code)) {}
  HttpReply reply() const;

 private:
  int status_;
  std::string param_, code_;
};

std::string dump(const Json& json);  // text that is no UTF-8 is replaced
HttpReply json_reply(const Json& json);

// The body as an object; ApiError 400 for what is none, or is nested too deep.
nlohmann::json parse_body(const std::string& body);

// A request for text, of either kind.
struct TextQuery {
  bool chat = false, stream = false, include_usage = false, echo = false, ignore_eos = false;
  std::optional<size_t> logprobs;  // how many of the most probable tokens
  std::optional<size_t> max_tokens;
  std::optional<size_t> comment_seconds;  // a stream's silence until it says that it waits; 0: it does not
  size_t n = 1;
  bool has_seed = false;
  std::vector<std::string> stop;
  llm::SamplingOptions sampling;
  // Of a chat.
  bool add_generation_prompt = true;
  bool split_thoughts = true;    // what a model thinks goes into reasoning_content
  std::string chat_variables{};  // chat_template_kwargs, a JSON object; empty: none
};

// All fields but prompt and messages. `defaults`: where a request says nothing of sampling.
TextQuery read_query(const nlohmann::json& body, bool chat, const llm::SamplingOptions& defaults, size_t n_vocabulary);

struct Prompt {
  std::vector<text::TokenId> tokens;
  std::string text;            // as the client wrote it, or decoded
  size_t n_added = 0;          // leading tokens that the tokenizer put before it
  bool opens_thought = false;  // the answer begins with what the model thinks, as the prompt has it
};
// A token stands for no more bytes of text than this, in any vocabulary that people use.
inline constexpr size_t kMaxBytesPerToken = 256;
// ApiError 400 for what llm::prompt_refusal says.
void check_prompt_fits(size_t tokens, size_t context, bool answers, const char* param);
// A text that cannot fit into a context of so many tokens is not even tokenized: ApiError 400. `what` begins the sentence: "the
// prompt has".
void check_text_fits(size_t bytes, size_t context, const char* what, const char* param);
// "prompt": a text, texts, token ids, or lists of them. Texts that cannot fit in `context` are not even tokenized.
std::vector<Prompt> read_prompts(const nlohmann::json& body, const text::Tokenizer& tokenizer, size_t context);
std::vector<text::ChatMessage> read_messages(const nlohmann::json& body);
std::vector<text::TokenId> read_tokens(const nlohmann::json& list, const std::string& name, size_t n_vocabulary);

// A field that kpd lacks, with the values that ask for nothing beside null.
struct Neutral {
  const char* name;
  std::vector<nlohmann::json> values;
};

// The fields of an object one by one; each getter marks its field as known.
class Fields {
 public:
  // `where` goes before the names in refusals: "messages[0]."
  explicit Fields(const nlohmann::json& body, std::string where = "") : body_(body), where_(std::move(where)) {}
  const nlohmann::json* get(const std::string& name);  // null and absent are the same
  bool flag(const std::string& name, bool otherwise);
  double number(const std::string& name, double otherwise, double min, double max);
  std::optional<size_t> count(const std::string& name, size_t min, size_t max);
  // -1, which asks for as much as there is, gives kAll.
  static constexpr size_t kAll = SIZE_MAX;
  std::optional<size_t> count_or_all(const std::string& name, size_t max);
  std::optional<std::string> text(const std::string& name);
  // Refuses fields that no getter asked for, but for those that ask for nothing.
  void finish(std::span<const Neutral> neutral = {}) const;

 private:
  const nlohmann::json& body_;
  std::string where_;
  std::vector<std::string> known_;
};

}  // namespace kpd::tool
