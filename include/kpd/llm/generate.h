// llm: text from a prompt, token by token.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kpd/llm/model.h"
#include "kpd/llm/sampler.h"

namespace kpd::llm {

struct GenerateOptions {
  size_t max_tokens = 256;
  // Tokens of prompt and answer that the cache holds, at most its capacity; 0: what the model was trained for. An answer's last
  // token need not be held: the two together may be one token more.
  size_t context = 0;
  size_t chunk = 512;  // prompt tokens per step
  bool ignore_eos = false;
  bool opens_text = false;        // the answer is a text of its own (chat), not the prompt's continuation
  bool context_shift = false;     // at a full context the older half after the first tokens is taken out, instead of an end
  std::vector<std::string> stop;  // texts that end the answer; not part of it
  SamplingOptions sampling;
  // The tokens that the cache holds already, which the repeat penalty counts; not asked for without one.
  std::span<const text::TokenId> held;
  // The number of the first draw (Sampler); by default the tokens held and in the prompt, so that a text that is continued, by
  // several calls and one seed, draws new numbers in each. Where the cache forgot tokens since, the caller counts.
  std::optional<uint64_t> first_draw;
};

// The context where nobody says one: what the model was trained for, at most 8192 tokens, as a cache of all may be too much.
size_t usual_context(const ModelDescription& description);
// What keeps a prompt of `tokens` tokens out of a context of `context` in which an answer, if one is asked for, needs a token
// at least: "the prompt has 40 tokens, the context of 32 has to hold the answer too"; empty if nothing does.
std::string prompt_refusal(size_t tokens, size_t context, bool answers = true);

enum class FinishReason { kStop, kLength, kCancelled };
const char* finish_reason_name(FinishReason reason);  // "stop", "length", "cancelled"

struct Generated {
  std::string text;
  std::vector<text::TokenId> token_ids;  // without the one that ended it; the cache holds all but the last of them
  size_t prompt_tokens = 0, tokens = 0;
  FinishReason reason = FinishReason::kLength;
  double prefill_seconds = 0, decode_seconds = 0;
};

// Text that can be given out while it may still turn out to begin a stop text. Thread-compatible.
class StopFilter {
 public:
  explicit StopFilter(std::vector<std::string> stop) : stop_(std::move(stop)) {}
  // Appends to `out` the text that is certain by now; stopped() says whether a stop text was met. Nothing is allocated once
  // `out` and what is held back have their room.
  void push(std::string_view text, std::string& out);
  std::string push(std::string_view text);
  std::string finish();
  // The end of an answer: what `stream` and the filter still hold. If that completes a stop text, kLength becomes kStop.
  std::string finish(text::TokenStream& stream, FinishReason& reason);
  bool stopped() const { return stopped_; }

 private:
  std::vector<std::string> stop_;
  std::string held_;
  bool stopped_ = false;
};

// Continues what the cache holds of `sequence` by `prompt` and then by up to max_tokens tokens. on_text gets the text as it is
// known and returns false to end; an empty function never ends it. Throws Error(kInvalidArgument) for an empty prompt, one that
// fills the context, and a repeat penalty where options.held is not what the cache holds; and what Model::forward and
// Sampler::pick throw. Rotations that depend on the context are those of prompt and max_tokens, at most options.context, unless
// more was planned for the sequence (plan_context); one that holds tokens goes on by the plan that it has: who continues a
// sequence by several calls plans for all of them before the first. A token of the answer allocates nothing but what the result
// and the cache grow by.
Generated generate(Model& model, const text::Tokenizer& tokenizer, KvCache& cache, SequenceId sequence,
                   std::span<const text::TokenId> prompt, const GenerateOptions& options,
                   const std::function<bool(std::string_view)>& on_text);

}  // namespace kpd::llm
