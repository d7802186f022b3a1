// Prompts of every known template against those that Jinja renders (tests/golden/make_chat_prompts.py).
#include "kpd/llm/chat.h"

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/expect_error.h"

namespace kpd::llm {
namespace {

using nlohmann::json;

const std::string kFolder = std::string(KPD_TESTS_DIR) + "/golden/chat/";
const ChatMessage kSystem{"system", " Answer briefly.\n"};

const std::map<std::string, std::vector<ChatMessage>> kConversations = {
    {"question", {{"user", "What is 2 + 2?"}}},
    {"spaces", {{"user", "  two\nlines \n"}}},
    {"system", {kSystem, {"user", "Hi"}}},
    {"turns", {{"user", "Hi"}, {"assistant", " Hello! "}, {"user", "Bye"}}},
    {"all", {kSystem, {"user", "a"}, {"assistant", "b"}, {"user", "c"}, {"assistant", "d\n"}, {"user", "e"}}},
    {"thought", {{"user", "a"}, {"assistant", "<think>\nhm\n</think>\n\nb"}, {"user", "c"}}},
    {"unfinished", {{"user", "a"}, {"assistant", "b"}}},
    {"two_users", {{"user", "a"}, {"user", "b"}}},
};

std::string read(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in.is_open()) << path;
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

Tokenizer with_template(const std::string& jinja) {
  const json tokenizer = {{"model", {{"type", "BPE"}, {"vocab", json::object()}, {"merges", json::array()}}},
                          {"added_tokens",
                           {{{"id", 0}, {"content", "<bos-token>"}, {"special", true}},
                            {{"id", 1}, {"content", "<eos-token>"}, {"special", true}}}}};
  const json config = {{"bos_token", "<bos-token>"}, {"eos_token", {{"content", "<eos-token>"}}}, {"chat_template", jinja}};
  return Tokenizer::from_json(tokenizer.dump(), config.dump(), "tokenizer.json");
}

// By file name up to the first '_' or digit that tells a version of the family.
ChatFamily family_of(const std::string& name) {
  if (name.starts_with("chatml") || name == "smollm2") return ChatFamily::kChatMl;
  if (name.starts_with("qwen")) return ChatFamily::kQwen;
  if (name.starts_with("llama2")) return ChatFamily::kLlama2;
  if (name.starts_with("llama3")) return ChatFamily::kLlama3;
  if (name.starts_with("mistral")) return ChatFamily::kMistral;
  return name.starts_with("gemma") ? ChatFamily::kGemma : ChatFamily::kPhi3;
}

TEST(Chat, PromptsAreThoseOfTheTemplates) {
  const std::string expected = read(kFolder + "expected.txt");
  size_t at = 0, prompts = 0;
  while (at < expected.size()) {
    const size_t end = expected.find('\n', at);
    std::istringstream line(expected.substr(at, end - at));
    std::string name, conversation, size;
    line >> name >> conversation >> size;
    at = end + 1;
    SCOPED_TRACE(name + " " + conversation);
    const Tokenizer tokenizer = with_template(read(kFolder + name + ".jinja"));
    const ChatFamily family = recognise_chat_template(tokenizer.chat_template());
    EXPECT_EQ(chat_family_name(family), std::string(chat_family_name(family_of(name))));
    const auto& messages = kConversations.at(conversation);
    std::string prompt = "refused";
    try {
      prompt = render_chat(family, tokenizer, messages);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument) << e.what();
      // The one template that drops a system message without a word.
      if (name == "phi3_first" && messages[0].role == "system") size = "dropped";
    }
    if (size == "error") {
      EXPECT_EQ(prompt, "refused");
      continue;
    }
    const bool dropped = size == "dropped";
    if (dropped) size = line.str().substr(line.str().rfind(' ') + 1);
    const size_t bytes = std::stoul(size);
    if (!dropped) {
      EXPECT_EQ(prompt, expected.substr(at, bytes));
    }
    at += bytes + 1;
    ++prompts;
  }
  EXPECT_GT(prompts, 100u);
}

TEST(Chat, UnknownTemplatesAreRefusedWithTheKnownOnes) {
  for (const char* jinja :
       {"", "{{ messages }}", "{% for m in messages %}<|user|>\n{{ m.content }}{{ eos_token }}{% endfor %}",
        "<|im_start|>user<|im_sep|>{{ content }}<|im_end|>", "[SYSTEM_PROMPT]x[/SYSTEM_PROMPT][INST]y[/INST]"}) {
    SCOPED_TRACE(jinja);
    EXPECT_KPD_ERROR(kUnsupported, "(chatml, llama2, llama3, mistral, gemma, phi3, qwen) or give a finished prompt",
                     recognise_chat_template(jinja));
  }
  EXPECT_KPD_ERROR(kUnsupported, "brings no chat template", recognise_chat_template(""));
}

// 200,000 places where a system message could begin, of which none is one: read once from place to place, not once a place.
TEST(Chat, AHostileTemplateIsReadInOnePass) {
  std::string jinja;
  for (int i = 0; i < 200000; ++i) jinja += "<|im_start|>system\n'";
  EXPECT_EQ(recognise_chat_template(jinja + "<|im_end|>"), ChatFamily::kChatMl);
  const Tokenizer tokenizer = with_template(jinja + "<|im_end|><|im_start|>system\nBe brief.<|im_end|>");
  const std::vector<ChatMessage> hi = {{"user", "Hi"}};
  EXPECT_EQ(render_chat(ChatFamily::kChatMl, tokenizer, hi),
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
}

TEST(Chat, FamiliesHaveNames) {
  for (const char* name : {"chatml", "llama2", "llama3", "mistral", "gemma", "phi3", "qwen"}) {
    EXPECT_STREQ(chat_family_name(chat_family(name)), name);
  }
  EXPECT_KPD_ERROR(kInvalidArgument, "no chat template 'alpaca', expected one of chatml, llama2,", chat_family("alpaca"));
}

TEST(Chat, RefusesWhatAFamilyDoesNotHave) {
  const Tokenizer none = with_template("");
  EXPECT_KPD_ERROR(kInvalidArgument, "without messages", render_chat(ChatFamily::kChatMl, none, {}));
  const std::vector<ChatMessage> tool = {{"user", "a"}, {"tool", "b"}};
  EXPECT_KPD_ERROR(kInvalidArgument, "chat message 1 has the role 'tool', the chatml template knows system",
                   render_chat(ChatFamily::kChatMl, none, tool));
  const std::vector<ChatMessage> twice = {{"user", "a"}, {"user", "b"}};
  EXPECT_KPD_ERROR(kInvalidArgument, "chat message 1 is of the user, the gemma template needs",
                   render_chat(ChatFamily::kGemma, none, twice));
  const std::vector<ChatMessage> alone = {kSystem};
  EXPECT_KPD_ERROR(kInvalidArgument, "a system message alone", render_chat(ChatFamily::kLlama2, none, alone));
}

TEST(Chat, AFamilyByNameNeedsNoTemplate) {
  const Tokenizer none = with_template("");
  const std::vector<ChatMessage> hi = {{"user", "Hi"}};
  EXPECT_EQ(render_chat(ChatFamily::kChatMl, none, hi), "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(render_chat(ChatFamily::kMistral, none, hi), "<bos-token>[INST] Hi [/INST]");
  EXPECT_EQ(render_chat(ChatFamily::kGemma, none, hi),
            "<bos-token><start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\n");
  EXPECT_EQ(render_chat(ChatFamily::kPhi3, none, hi), "<|user|>\nHi<|end|>\n<|assistant|>\n");
  EXPECT_EQ(
      render_chat(ChatFamily::kLlama3, none, hi),
      "<bos-token><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n");
  EXPECT_EQ(render_chat(ChatFamily::kLlama2, none, hi), "<bos-token>[INST] Hi [/INST]");
}

}  // namespace
}  // namespace kpd::llm
