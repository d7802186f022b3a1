// tools: see conversation.h. What is said beside the answers stands on stderr.
#include "conversation.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <optional>
#include <span>
#include <string_view>

#include <fmt/format.h>

#include "kpd/base/spec.h"
#include "kpd/text/conversation.h"
#include "line_editor.h"
#include "signals.h"

namespace kpd::tool {
namespace {

struct Spoken {
  std::string_view name, argument, help;
};
constexpr std::array<Spoken, 4> kSpoken = {{{"/clear", "", "forget the conversation; the system message stays"},
                                            {"/system", " TEXT", "another system message from here on; without TEXT none"},
                                            {"/help", "", "this list"},
                                            {"/exit", "", "leave, as Ctrl-D does"}}};

// "/word" at the start of a line, "/system TEXT"; a path like /usr/bin is none.
std::optional<std::string> command_of(const std::string& line) {
  if (!line.starts_with('/')) return std::nullopt;
  const std::string word = line.substr(0, line.find_first_of(" \t\n"));
  const bool letters = std::all_of(word.begin() + 1, word.end(), [](unsigned char c) { return std::isalpha(c) != 0; });
  return letters ? std::optional(word) : std::nullopt;
}

std::string stripped(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t\n");
  return first == std::string::npos ? "" : text.substr(first, text.find_last_not_of(" \t\n") - first + 1);
}

class Conversation {
 public:
  Conversation(Session& session, const std::string& system, bool json) : session_(session), json_(json) { set_system(system); }

  int run() {
    fmt::print(stderr, "Ctrl-C stops an answer, Ctrl-D or /exit leaves, /help lists what else there is{}\n",
               editor_.edits() ? "" : " (lines cannot be edited: libedit was not there when kpd was built)");
    std::string message;
    while (!left_) {
      if (read_message(message)) {
        interrupts_ = 0;
        if (const auto command = command_of(message)) {
          obey(*command, stripped(message.substr(command->size())));
        } else if (!stripped(message).empty()) {
          take_turn(message);
        }
      }
    }
    return exit_code_;
  }

 private:
  void leave(int code) {
    left_ = true;
    exit_code_ = code;
  }

  // A line, or several of which all but the last end in a backslash. False: there is none (left_ says whether any will come).
  bool read_message(std::string& message) {
    message.clear();
    std::string line;
    for (const char* prompt = "> ";; prompt = "... ") {
      switch (editor_.read(prompt, line)) {
        case LineEditor::Outcome::kLine:
          break;
        case LineEditor::Outcome::kEnd:
          leave(kExitOk);
          return false;
        case LineEditor::Outcome::kTerminated:
          leave(kExitInterrupt);
          return false;
        case LineEditor::Outcome::kCleared:
          interrupts_ = 0;
          return false;
        case LineEditor::Outcome::kInterruptEmpty:
          if (++interrupts_ > 1) {
            leave(kExitInterrupt);
          } else {
            fmt::print(stderr, "Ctrl-C again or Ctrl-D leaves\n");
          }
          return false;
      }
      if (!line.ends_with('\\')) break;
      message += line.substr(0, line.size() - 1) + "\n";
    }
    message += line;
    return true;
  }

  void obey(const std::string& command, const std::string& text) {
    if (command == "/exit") {
      leave(kExitOk);
    } else if (command == "/help") {
      for (const Spoken& c : kSpoken)
        fmt::print(stderr, "  {:<14} {}\n", std::string(c.name) + std::string(c.argument), c.help);
      fmt::print(stderr, "  a line that ends in \\ goes on in the next; one that begins with a blank is no command\n");
    } else if (command == "/clear") {
      turns_.clear();
      fmt::print(stderr, "the conversation is forgotten\n");
    } else if (command == "/system") {
      set_system(text);
      fmt::print(stderr, "{}\n", text.empty() ? "no system message from here on" : "the system message is set");
    } else {
      std::vector<std::string_view> names;
      for (const Spoken& c : kSpoken) names.push_back(c.name);
      const std::string_view near = nearest_word(command, names);
      fmt::print(stderr, "there is no {}{} /help lists what there is\n", command,
                 near.empty() ? ";" : fmt::format(", did you mean {}?", near));
    }
  }

  void set_system(const std::string& text) { system_ = text; }

  // The prompt for the last message, with room for an answer: where there is none, the oldest turns are forgotten.
  std::optional<std::vector<text::TokenId>> fitting_prompt() {
    const size_t context = session_.context();
    std::vector<text::ChatMessage> messages = turns_;
    if (!system_.empty()) messages.insert(messages.begin(), {"system", system_});
    text::FittedPrompt prompt =
        text::fit_conversation(messages, context, session_.max_tokens(), [&](std::span<const text::ChatMessage> some) {
          return session_.chat_prompt({some.begin(), some.end()});
        });
    if (const std::string refusal = llm::prompt_refusal(prompt.tokens.size(), context); !refusal.empty()) {
      fmt::print(stderr, "{} (--ctx): the message was not sent\n", refusal);
      return std::nullopt;
    }
    if (prompt.n_dropped > 0) {
      turns_.erase(turns_.begin(), turns_.begin() + static_cast<std::ptrdiff_t>(prompt.n_dropped));
      fmt::print(stderr, "the context of {} tokens is full: the oldest {} forgotten (--ctx)\n", context,
                 prompt.n_dropped == 2 ? "turn is" : fmt::format("{} turns are", prompt.n_dropped / 2));
    }
    return std::move(prompt.tokens);
  }

  void take_turn(const std::string& message) {
    turns_.push_back({"user", message});
    std::optional<std::vector<text::TokenId>> prompt;
    try {
      prompt = fitting_prompt();
    } catch (const Error& e) {  // of the template: a system message that it does not know, for one
      fmt::print(stderr, "{}\n", e.what());
    }
    if (!prompt) {
      turns_.pop_back();
      return;
    }
    const llm::Generated g = session_.answer(*prompt, !json_);
    if (json_) {
      session_.print_json(g);
    } else {
      fmt::print("\n");
    }
    if (session_.stdout_failed() || std::fflush(stdout) != 0) return leave(kExitOk);  // main() says it
    finish_turn(g);
  }

  void finish_turn(const llm::Generated& g) {
    if (take_interrupt()) {
      interrupts_ = 1;
      fmt::print(stderr, "stopped{}\n", g.tokens == 0 ? " before the answer began: the message is forgotten" : "");
    } else if (interrupted()) {
      return leave(kExitInterrupt);
    } else if (g.reason == llm::FinishReason::kLength) {
      fmt::print(stderr, "ended by length: {}\n", session_.length_limit(g));
    }
    // A turn is a message and its answer.
    if (g.tokens == 0 && g.reason == llm::FinishReason::kCancelled) {
      turns_.pop_back();
    } else {
      turns_.push_back({"assistant", g.text});
    }
  }

  Session& session_;
  const bool json_;
  LineEditor editor_;
  std::string system_;
  std::vector<text::ChatMessage> turns_;  // user and assistant in turn
  int interrupts_ = 0;                    // Ctrl-C in a row
  bool left_ = false;
  int exit_code_ = kExitOk;
};

}  // namespace

int converse(Session& session, const std::string& system, bool json) { return Conversation(session, system, json).run(); }

}  // namespace kpd::tool
