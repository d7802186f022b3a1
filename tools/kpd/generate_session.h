// tools: a model that answers: its files, its chat template, the cache and what the cache holds. `kpd generate` opens one, for
// a prompt or a conversation.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "chat_options.h"
#include "kpd/text/chat.h"
#include "kpd/llm/generate.h"
#include "model_options.h"
#include "sampling_options.h"

namespace kpd::tool {

struct GenerateArgs {
  CommonOptions common;
  ModelOptions model;
  ModelArgs which;
  SamplingArgs sampling;
  ChatArgs templates;
  std::string path, prompt, prompt_file, system, ctx, max_tokens;
  CacheOptions cache;
  std::vector<std::string> stop;
  bool chat = false, ignore_eos = false, context_shift = false, has_prompt = false;
};

// Built in two steps: all that can be wrong with files and options is said before load() lays the weights out.
class Session {
 public:
  // Opens the files, chooses context and sampling.
  explicit Session(const GenerateArgs& args, bool conversation);
  // Says on stderr what was chosen, loads and makes the cache.
  void load();

  std::vector<text::TokenId> text_prompt(const std::string& text) const { return tokenizer().encode(text); }
  // Messages in the chat template, ready to be answered.
  std::vector<text::TokenId> chat_prompt(const std::vector<text::ChatMessage>& messages) const;
  // Throws UsageError for a prompt that leaves no room for a token.
  void check_fits(size_t prompt_tokens) const;

  size_t context() const { return options_.context; }
  size_t max_tokens() const { return options_.max_tokens; }
  // The answer to a whole prompt, on stdout as it comes if `print`; what the cache holds of it already is not computed again.
  // Ends by a signal (signals.h), and when stdout takes no more.
  llm::Generated answer(const std::vector<text::TokenId>& prompt, bool print);
  bool stdout_failed() const { return stdout_failed_; }
  // "--max-tokens 256", or the full context with its size: what an answer ended by that ended by length.
  std::string length_limit(const llm::Generated& g) const;
  // One JSON object and a line feed on stdout.
  void print_json(const llm::Generated& g) const;
  void print_speeds(const llm::Generated& g) const;  // on stderr

 private:
  const text::Tokenizer& tokenizer() const;

  const GenerateArgs& args_;
  std::optional<OpenedModel> opened_;  // until it becomes loaded_
  std::optional<text::ChatTemplate> template_;
  text::ChatOptions chat_options_;
  std::optional<LoadedModel> loaded_;
  llm::GenerateOptions options_;
  std::unique_ptr<llm::KvCache> cache_;
  std::vector<text::TokenId> held_;  // of the sequence in the cache
  uint64_t next_draw_ = 0;           // the first random number that no answer has drawn yet
  std::string sampling_line_, kv_;
  const bool conversation_;
  bool to_the_end_ = false;  // an answer's tokens have no limit but the context
  bool stdout_failed_ = false;
};

}  // namespace kpd::tool
