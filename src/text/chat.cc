// text: chat templates as callers see them: the variables that a template gets, after transformers' apply_chat_template.
#include "kpd/text/chat.h"

#include <algorithm>
#include <charconv>
#include <ctime>

#include "kpd/base/error.h"
#include "text/chat_builtin.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_json.h"
#include "text/tokenizer_parts.h"
#include "text/unicode.h"

namespace kpd::text {
namespace {

using jinja::Text;
using jinja::Value;

// What a rendering may make: some copies of all that goes in, and enough for small conversations in long templates.
constexpr size_t kBaseBytes = size_t{64} << 20, kBytesPerByte = 32;

Value foreign(const std::string& text) { return Value::string(Text(lossy_utf8(text), true)); }

// A role is structure, not text: templates make control tokens of it ('<|' + role + '|>'). What is no plain word is kept out.
Value role_of(const ChatMessage& message) {
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  };
  if (std::all_of(message.role.begin(), message.role.end(), plain)) return Value::string(message.role);
  return foreign(message.role);
}

Value content_of(const ChatMessage& message) {
  if (message.parts.empty()) return foreign(message.content);
  std::vector<Value> parts;
  for (const std::string& part : message.parts) {
    parts.push_back(Value::dict({{Value::string("type"), Value::string("text")}, {Value::string("text"), foreign(part)}}));
  }
  return Value::list(std::move(parts));
}

Value value_of(const ChatMessage& message) {
  std::vector<std::pair<Value, Value>> pairs;
  pairs.emplace_back(Value::string("role"), role_of(message));
  pairs.emplace_back(Value::string("content"), content_of(message));
  if (!message.reasoning_content.empty()) {
    // gpt-oss' template has its own name for it.
    for (const char* name : {"reasoning_content", "thinking"})
      pairs.emplace_back(Value::string(name), foreign(message.reasoning_content));
  }
  return Value::dict(std::move(pairs));
}

ChatTime local_time() {
  const std::time_t now = std::time(nullptr);
  std::tm t{};
  localtime_r(&now, &t);
  return {t.tm_year + 1900, t.tm_mon + 1, t.tm_mday, t.tm_hour, t.tm_min, t.tm_sec};
}

void check_time(const ChatTime& t) {
  const bool valid = t.year >= 1 && t.year <= 9999 && t.month >= 1 && t.month <= 12 && t.day >= 1 && t.day <= 31 &&
                     t.hour >= 0 && t.hour <= 23 && t.minute >= 0 && t.minute <= 59 && t.second >= 0 && t.second <= 60;
  if (!valid) fail(ErrorCode::kInvalidArgument, "the time of a chat template: expected a date of the years 1 to 9999");
}

}  // namespace

struct ChatTemplate::Program {
  std::string source;
  jinja::Ast ast;
};

ChatTemplate::ChatTemplate(std::unique_ptr<const Program> program) : program_(std::move(program)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

ChatTemplate ChatTemplate::from_source(std::string_view source) {
  auto program = std::make_unique<Program>();
  program->source = lossy_utf8(source);
  program->ast = jinja::parse(program->source);
  return ChatTemplate(std::move(program));
}

ChatTemplate ChatTemplate::built_in(std::string_view name) {
  if (const auto source = built_in_chat_template(name)) return from_source(*source);
  std::string known;
  for (const std::string_view n : names()) known += str(known.empty() ? "" : ", ", n);
  fail(ErrorCode::kInvalidArgument, "no chat template '", name, "', expected one of ", known);
}

std::span<const std::string_view> ChatTemplate::names() { return built_in_chat_names(); }

ChatTemplate ChatTemplate::of_model(const Tokenizer& tokenizer) {
  if (tokenizer.chat_template().empty()) {
    std::string known;
    for (const NamedTemplate& t : tokenizer.named_chat_templates()) known += str(known.empty() ? "" : ", ", t.name);
    if (!known.empty())
      fail(ErrorCode::kUnsupported, "the model brings several chat templates (", known, ") and none is the default; name one");
    for (const std::string_view n : names()) known += str(known.empty() ? "" : ", ", n);
    fail(ErrorCode::kUnsupported, "the model brings no chat template; name the one that it was trained with (", known,
         ") or a file");
  }
  return from_source(tokenizer.chat_template());
}

const std::string& ChatTemplate::source() const { return program_->source; }

ChatPrompt ChatTemplate::render(const Tokenizer& tokenizer, std::span<const ChatMessage> messages,
                                const ChatOptions& options) const {
  if (messages.empty()) fail(ErrorCode::kInvalidArgument, "a conversation without messages, expected one at least");
  size_t bytes = options.variables_json.size() + program_->source.size();
  std::vector<Value> list;
  for (const ChatMessage& message : messages) {
    bytes += message.role.size() + message.content.size() + message.reasoning_content.size();
    for (const std::string& part : message.parts) bytes += part.size();
    list.push_back(value_of(message));
  }
  jinja::Variables variables;
  for (const auto& [name, text] : TokenizerAccess::parts(tokenizer).chat_tokens)
    variables.emplace_back(name, Value::string(lossy_utf8(text)));
  variables.emplace_back("messages", Value::list(std::move(list)));
  variables.emplace_back("tools", Value::none());
  variables.emplace_back("documents", Value::none());
  variables.emplace_back("add_generation_prompt", Value::boolean(options.add_generation_prompt));
  if (options.thinking) variables.emplace_back("enable_thinking", Value::boolean(*options.thinking));
  if (!options.variables_json.empty()) {
    const Value more = jinja::parse_variables(options.variables_json, "chat_template_kwargs");
    for (const auto& [key, value] : more.pairs()) {
      const std::string& name = key.text().bytes();
      if (name == "messages" || name == "tools" || name == "documents")
        fail(ErrorCode::kInvalidArgument, "chat_template_kwargs: '", name, "' is not theirs to set");
      variables.emplace_back(name, value);
    }
  }
  jinja::Environment environment{.now = options.now ? *options.now : local_time()};
  check_time(environment.now);
  environment.max_bytes = kBaseBytes + kBytesPerByte * bytes;
  const Text text = jinja::render(program_->ast, variables, environment);
  return {text.bytes(), text.foreign()};
}

ChatTime parse_chat_date(std::string_view text) {
  constexpr int kDays[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  const auto number = [&](size_t at, size_t n) {
    int value = 0;
    const char* end = text.data() + at + n;
    return std::from_chars(text.data() + at, end, value).ptr == end ? value : -1;
  };
  if (text.size() == 10 && text[4] == '-' && text[7] == '-') {
    const int year = number(0, 4), month = number(5, 2), day = number(8, 2);
    const bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    if (year >= 1 && month >= 1 && month <= 12 && day >= 1 && day <= kDays[month - 1] + (month == 2 && leap ? 1 : 0))
      return {.year = year, .month = month, .day = day};
  }
  fail(ErrorCode::kInvalidArgument, "'", text.substr(0, 40), "' is no date, expected YYYY-MM-DD");
}

}  // namespace kpd::text
