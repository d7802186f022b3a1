// text: prompts of chat templates equal those of transformers.
#include "kpd/text/chat.h"
#include "kpd/text/thoughts.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/expect_error.h"
#include "kpd/base/hash.h"

namespace kpd::text {
namespace {

using Json = nlohmann::ordered_json;

const std::string kFolder = std::string(KPD_TESTS_DIR) + "/golden/chat/";
constexpr ChatTime kNow{2026, 12, 1, 9, 5, 7};

std::string read(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in.is_open()) << path;
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

Tokenizer with_template(const Json& jinja) {
  const Json tokenizer = {{"model", {{"type", "BPE"}, {"vocab", Json::object()}, {"merges", Json::array()}}},
                          {"added_tokens",
                           {{{"id", 0}, {"content", "<bos-token>"}, {"special", true}},
                            {{"id", 1}, {"content", "<eos-token>"}, {"special", true}}}}};
  const Json config = {{"bos_token", "<bos-token>"}, {"eos_token", {{"content", "<eos-token>"}}}, {"chat_template", jinja}};
  return Tokenizer::from_json(tokenizer.dump(), config.dump(), "tokenizer.json");
}

std::vector<ChatMessage> messages_of(const Json& list) {
  std::vector<ChatMessage> out;
  for (const Json& m : list) {
    ChatMessage message{.role = m["role"].get<std::string>(), .content = ""};
    if (m["content"].is_string()) {
      message.content = m["content"].get<std::string>();
    } else {
      for (const Json& part : m["content"]) message.parts.push_back(part["text"].get<std::string>());
    }
    if (m.contains("reasoning_content")) message.reasoning_content = m["reasoning_content"].get<std::string>();
    out.push_back(std::move(message));
  }
  return out;
}

// The six renderings of a conversation, as make_chat_prompts.py joins them.
std::string variants(const ChatTemplate& chat, const Tokenizer& tokenizer, const std::vector<ChatMessage>& messages,
                     bool* refused) {
  std::string all;
  *refused = true;
  for (const bool prompt : {true, false}) {
    for (const std::optional<bool> thinking : {std::optional<bool>(), std::optional(true), std::optional(false)}) {
      try {
        const std::string text =
            chat.render(tokenizer, messages, {.add_generation_prompt = prompt, .thinking = thinking, .now = kNow}).text;
        all += std::to_string(text.size()) + ":" + text;
        *refused = false;
      } catch (const Error& e) {
        EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument) << e.what();
        all += "-";
      }
    }
  }
  return all;
}

std::string digest(const std::string& text) {
  const Sha256Digest hash = sha256({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
  std::string out;
  for (size_t i = 0; i < 6; ++i) {
    char hex[3];
    std::snprintf(hex, sizeof(hex), "%02x", hash[i]);
    out += hex;
  }
  return out;
}

// Compares all templates of a folder with a file of digests; how many were rendered.
size_t compare(const std::string& folder, const std::string& golden) {
  const Json conversations = Json::parse(read(kFolder + "conversations.json"));
  std::istringstream lines(read(kFolder + golden));
  std::string line, file;
  size_t n = 0;
  std::optional<Tokenizer> tokenizer;
  std::optional<ChatTemplate> chat;
  while (std::getline(lines, line)) {
    if (!line.starts_with(' ')) {
      file = line;
      tokenizer.emplace(with_template(read(folder + file)));
      chat.emplace(ChatTemplate::of_model(*tokenizer));
      continue;
    }
    std::istringstream words(line);
    std::string name, expected;
    words >> name >> expected;
    SCOPED_TRACE(file + " " + name);
    bool refused = false;
    const std::string all = variants(*chat, *tokenizer, messages_of(conversations[name]), &refused);
    EXPECT_EQ(refused ? "refused" : digest(all), expected) << all;
    n += !refused;
  }
  return n;
}

TEST(Chat, PromptsAreThoseOfTransformers) { EXPECT_GT(compare(kFolder, "expected.txt"), 300u); }

// The templates are their makers' and lie in the shared data, not here; only digests of their prompts do.
TEST(Chat, PublicTemplatesGiveWhatTransformersGives) {
  const char* shared = std::getenv("KPD_SHARED_DATA");
  if (!shared || !std::ifstream(std::string(shared) + "/templates/chatml.jinja").is_open())
    GTEST_SKIP() << "no public templates: ../shared/data/templates is missing";
  EXPECT_GT(compare(std::string(shared) + "/templates/", "public.txt"), 800u);
}

TEST(Chat, ATemplateInSeveralNamedOnesIsTheDefault) {
  const Json several = Json::array({{{"name", "tool_use"}, {"template", "T"}}, {{"name", "default"}, {"template", "D"}}});
  const Tokenizer t = with_template(several);
  EXPECT_EQ(ChatTemplate::of_model(t).source(), "D");
  ASSERT_EQ(t.named_chat_templates().size(), 1u);
  EXPECT_EQ(t.named_chat_templates()[0].name, "tool_use");
  EXPECT_EQ(t.named_chat_templates()[0].source, "T");
  const Tokenizer none = with_template(Json::array({{{"name", "rag"}, {"template", "R"}}}));
  EXPECT_KPD_ERROR(kUnsupported, "several chat templates (rag) and none is the default", ChatTemplate::of_model(none));
}

TEST(Chat, AModelWithoutATemplateIsRefusedWithTheBuiltInOnes) {
  EXPECT_KPD_ERROR(
      kUnsupported,
      "brings no chat template; name the one that it was trained with (chatml, llama2, llama3, mistral, gemma, phi3, qwen)",
      ChatTemplate::of_model(with_template("")));
  EXPECT_KPD_ERROR(kInvalidArgument, "no chat template 'alpaca', expected one of chatml, llama2,",
                   ChatTemplate::built_in("alpaca"));
}

TEST(Chat, CarriageReturnsOfATemplateAreLineEnds) {
  const Tokenizer t = with_template("{% set s = 'You are\r\nhelpful' %}\r\n{{ s }}\r\n{% if true %}\r\nx{% endif %}\r\n");
  EXPECT_EQ(ChatTemplate::of_model(t).render(t, {{{"user", "a"}}}).text, "You are\nhelpful\nx");
}

TEST(Chat, VariablesOfTheCaller) {
  const Tokenizer t = with_template(
      "{{ bos_token }}{{ a }}{{ enable_thinking }}{{ add_generation_prompt }}{{ tools }}{{ strftime_now('%F') }}");
  const ChatTemplate chat = ChatTemplate::of_model(t);
  const std::vector<ChatMessage> hi = {{"user", "Hi"}};
  EXPECT_EQ(chat.render(t, hi, {.thinking = false, .now = kNow, .variables_json = R"({"a": "<x>"})"}).text,
            "<bos-token><x>FalseTrueNone2026-12-01");
  EXPECT_EQ(
      chat.render(t, hi, {.thinking = false, .now = kNow, .variables_json = R"({"enable_thinking": true, "bos_token": "B"})"})
          .text,
      "BTrueTrueNone2026-12-01");
  const ChatPrompt p = chat.render(t, hi, {.now = kNow, .variables_json = R"({"a": "<x>"})"});
  EXPECT_EQ(p.foreign, (std::vector<TextRange>{{11, 14}}));
  for (const char* name : {"messages", "tools", "documents"})
    EXPECT_KPD_ERROR(kInvalidArgument, "is not theirs to set",
                     chat.render(t, hi, {.variables_json = std::string("{\"") + name + "\": []}"}));
  EXPECT_KPD_ERROR(kInvalidArgument, "without messages", chat.render(t, {}));
  EXPECT_KPD_ERROR(kInvalidArgument, "expected a date", chat.render(t, hi, {.now = ChatTime{2026, 13, 1, 0, 0, 0}}));
}

TEST(Chat, OfMessagesAllIsForeignButThePlainRole) {
  const Tokenizer t =
      with_template("{% for m in messages %}<{{ m.role }}>{{ m.content }}{{ m.reasoning_content }};{% endfor %}");
  const std::vector<ChatMessage> messages = {
      {"user", "ab"}, {"<|x|>", "c"}, {.role = "assistant", .content = "d", .reasoning_content = "e"}};
  const ChatPrompt p = ChatTemplate::of_model(t).render(t, messages);
  EXPECT_EQ(p.text, "<user>ab;<<|x|>>c;<assistant>de;");
  EXPECT_EQ(p.foreign, (std::vector<TextRange>{{6, 8}, {10, 15}, {16, 17}, {29, 31}}));
}

TEST(Chat, ATemplateMayOpenTheThoughts) {
  const auto opens = [](const std::string& jinja, const std::string& content) {
    const Tokenizer t = with_template(jinja);
    return opens_thought(ChatTemplate::of_model(t).render(t, {{{"user", content}}}));
  };
  EXPECT_TRUE(opens("{{ messages[0].content }}<think>\n", "a"));
  EXPECT_FALSE(opens("{{ messages[0].content }}<think></think>\n", "a"));
  EXPECT_FALSE(opens("a{{ messages[0].content }}", "<think>"));
  EXPECT_FALSE(opens("<{{ messages[0].content }}>", "think"));
  EXPECT_FALSE(opens(" ", "a"));
}

// Given whole, and in pieces of every length, the parts are the same.
TEST(Chat, ThoughtsAreToldFromTheAnswer) {
  using Begin = ThoughtSplitter::Begin;
  const struct {
    Begin begin;
    std::string answer, thought, text;
  } cases[] = {
      {Begin::kUnopened, "<think>\n a b \n</think>\n\n c\n", "a b", "c\n"},
      {Begin::kUnopened, " \n<think></think>x", "", "x"},
      {Begin::kUnopened, " plain <think>a</think>", "", " plain <think>a</think>"},
      {Begin::kUnopened, "<thin", "", "<thin"},
      {Begin::kUnopened, "<think>never closed </thi", "never closed </thi", ""},
      {Begin::kUnopened, "<think>a</think>b<think>c</think>", "a", "b<think>c</think>"},
      {Begin::kUnopened, "", "", ""},
      {Begin::kOpen, "\na </ b\n</think> c", "a </ b", "c"},
      {Begin::kOpen, "a  \n ", "a", ""},
      {Begin::kOff, "<think>a</think>b", "", "<think>a</think>b"},
  };
  for (const auto& c : cases) {
    for (size_t length = 1; length <= c.answer.size() + 1; ++length) {
      SCOPED_TRACE(c.answer + " by " + std::to_string(length));
      ThoughtSplitter splitter(c.begin);
      std::string thought, text;
      const auto add = [&](const ThoughtSplitter::Parts& parts) {
        thought += parts.thought;
        text += parts.text;
      };
      for (size_t at = 0; at < c.answer.size(); at += length) add(splitter.push(c.answer.substr(at, length)));
      add(splitter.finish());
      EXPECT_EQ(thought, c.thought);
      EXPECT_EQ(text, c.text);
    }
  }
}

TEST(Chat, Dates) {
  const ChatTime t = parse_chat_date("2024-02-29");
  EXPECT_EQ(std::tuple(t.year, t.month, t.day, t.hour), std::tuple(2024, 2, 29, 0));
  for (const char* text : {"", "2023-02-29", "2024-13-01", "2024-00-01", "2024-04-31", "24-01-01", "2024/01/01", "2024-1-1",
                           "0000-01-01", "2024-01-0x"})
    EXPECT_KPD_ERROR(kInvalidArgument, "is no date, expected YYYY-MM-DD", parse_chat_date(text));
}

TEST(Chat, BuiltInTemplates) {
  const Tokenizer none = with_template("");
  const std::vector<ChatMessage> all = {{"system", "S"}, {"user", " a "}, {"assistant", "b"}, {"user", "c"}};
  const std::map<std::string, std::string> expected = {
      {"chatml",
       "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\n a "
       "<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n<|im_start|>user\nc<|im_end|>\n"
       "<|im_start|>assistant\n"},
      {"llama2", "<bos-token>[INST] <<SYS>>\nS\n<</SYS>>\n\n a [/INST] b <eos-token><bos-token>[INST] c [/INST]"},
      {"llama3",
       "<bos-token><|start_header_id|>system<|end_header_id|>\n\nS<|eot_id|><|start_header_id|>user<|end_header_id|>\n\na<|eot_"
       "id|>"
       "<|start_header_id|>assistant<|end_header_id|>\n\nb<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nc<|eot_id|>"
       "<|start_header_id|>assistant<|end_header_id|>\n\n"},
      {"mistral", "<bos-token>[INST] S\n\n a  [/INST]b<eos-token>[INST] c [/INST]"},
      {"gemma",
       "<bos-token><start_of_turn>user\nS\n\na<end_of_turn>\n<start_of_turn>model\nb<end_of_turn>\n<start_of_turn>user\nc<end_"
       "of_turn>\n"
       "<start_of_turn>model\n"},
      {"phi3", "<|system|>\nS<|end|>\n<|user|>\n a <|end|>\n<|assistant|>\nb<|end|>\n<|user|>\nc<|end|>\n<|assistant|>\n"},
  };
  for (const std::string_view name : ChatTemplate::names()) {
    SCOPED_TRACE(name);
    const ChatTemplate chat = ChatTemplate::built_in(name);
    EXPECT_EQ(chat.render(none, all).text, expected.at(name == "qwen" ? "chatml" : std::string(name)));
  }
  const std::vector<ChatMessage> twice = {{"user", "a"}, {"user", "b"}}, alone = {{"system", "S"}};
  EXPECT_KPD_ERROR(kInvalidArgument, "message 1 is of user, the template gemma needs user and assistant in turn",
                   ChatTemplate::built_in("gemma").render(none, twice));
  EXPECT_KPD_ERROR(kInvalidArgument, "the template llama2 needs a message of the user",
                   ChatTemplate::built_in("llama2").render(none, alone));
}

}  // namespace
}  // namespace kpd::text
