// A conversation that outgrows its context loses its oldest turns, and no more than it must.
#include "kpd/text/conversation.h"

#include <gtest/gtest.h>

namespace kpd::text {
namespace {

// A token a character, and one that closes each message.
std::vector<TokenId> encode(std::span<const ChatMessage> messages) {
  std::vector<TokenId> tokens;
  for (const ChatMessage& m : messages) {
    for (const char c : m.content) tokens.push_back(c);
    tokens.push_back(1);
  }
  return tokens;
}

std::string shown(const std::vector<ChatMessage>& messages) {
  std::string text;
  for (const ChatMessage& m : messages) text += m.role.substr(0, 1) + m.content.substr(0, 1) + " ";
  return text;
}

// Turns of 20 tokens: a question of 4 and an answer of 14 characters.
std::vector<ChatMessage> conversation(size_t n_turns, bool system) {
  std::vector<ChatMessage> messages;
  if (system) messages.push_back({"system", "S"});
  for (size_t i = 0; i < n_turns; ++i) {
    messages.push_back({"user", std::string(4, static_cast<char>('a' + i))});
    messages.push_back({"assistant", std::string(14, static_cast<char>('a' + i))});
  }
  messages.push_back({"user", "last"});
  return messages;
}

TEST(FitConversation, WhatFitsStays) {
  std::vector<ChatMessage> messages = conversation(4, true);  // 2 + 80 + 5 tokens
  const std::string before = shown(messages);
  const FittedPrompt prompt = fit_conversation(messages, 97, 10, encode);
  EXPECT_EQ(prompt.n_dropped, 0u);
  EXPECT_EQ(prompt.tokens, encode(messages));
  EXPECT_EQ(shown(messages), before);
}

TEST(FitConversation, TheOldestTurnsGoUntilHalfIsFree) {
  std::vector<ChatMessage> messages = conversation(4, true);
  const FittedPrompt prompt = fit_conversation(messages, 96, 10, encode);  // 86 for the prompt, which has 87
  EXPECT_EQ(shown(messages), "sS uc ac ud ad ul ") << "47 tokens of 96";
  EXPECT_EQ(prompt.n_dropped, 4u);
  EXPECT_EQ(prompt.tokens, encode(messages));
  messages = conversation(4, false);
  EXPECT_EQ(fit_conversation(messages, 89, 10, encode).n_dropped, 6u) << "45 are more than half";
  EXPECT_EQ(shown(messages), "ud ad ul ");
}

TEST(FitConversation, AnAnswerAsksForAQuarterOfTheContextAtMost) {
  std::vector<ChatMessage> messages = conversation(2, false);  // 45
  EXPECT_EQ(fit_conversation(messages, 60, 100000, encode).n_dropped, 0u);
  EXPECT_EQ(fit_conversation(messages, 58, 100000, encode).n_dropped, 2u);
}

TEST(FitConversation, TheLastTurnStaysWhereItLeavesAnyRoom) {
  std::vector<ChatMessage> messages = conversation(3, true);
  messages.back().content = std::string(50, 'l');  // 2 + 51 tokens
  const std::vector<ChatMessage> before = messages;
  const FittedPrompt full = fit_conversation(messages, 53, 10, encode);
  EXPECT_EQ(full.tokens.size(), 53u);
  EXPECT_EQ(full.n_dropped, 0u);
  EXPECT_EQ(shown(messages), shown(before)) << "nothing is lost by a message that is too long";
  EXPECT_EQ(fit_conversation(messages, 54, 10, encode).tokens.size(), 53u);
  EXPECT_EQ(shown(messages), "sS ul ");
}

TEST(FitConversation, AGreetingGoesWithTheFirstTurn) {
  std::vector<ChatMessage> messages = {
      {"system", "S"}, {"assistant", "hello"}, {"user", "hi"}, {"assistant", "yes"}, {"user", "b"}};
  fit_conversation(messages, 12, 4, encode);
  EXPECT_EQ(shown(messages), "sS ub ");
}

}  // namespace
}  // namespace kpd::text
