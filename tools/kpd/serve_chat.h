// tools: chat requests of `kpd serve`: messages become a prompt, and what a model thinks before it answers is told from the answer.
#pragma once

#include <string>
#include <string_view>

#include "serve_openai.h"

namespace kpd::tool {

// The prompt of a request's messages. Throws ApiError for messages that the template refuses or that cannot fit.
Prompt chat_prompt(const Service& service, const nlohmann::json& body, const TextQuery& query);

// POST /apply-template: the body of a chat request; the reply is {"prompt": ...}.
HttpReply serve_apply_template(const Service& service, const HttpRequest& http);

// Tells the thoughts between <think> and </think>, at an answer's start alone, from the answer, piece by piece. White space around
// both tags goes; what may become one is held back.
class ThoughtSplitter {
 public:
  struct Parts {
    std::string thought, text;
  };
  enum class Begin { kUnopened, kOpen, kOff };
  // kOpen: the prompt opened <think> already; kOff: all is text.
  explicit ThoughtSplitter(Begin begin) : state_(begin == Begin::kOpen ? State::kThought : begin == Begin::kOff ? State::kText : State::kStart) {}

  Parts push(std::string_view piece);
  Parts finish();  // what was held back

 private:
  enum class State { kStart, kThought, kAfter, kText };
  void start(Parts& out);
  void think(Parts& out, bool last);

  State state_;
  bool said_ = false;  // a thought has been given out
  std::string held_;
};

}  // namespace kpd::tool
