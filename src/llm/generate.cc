#include "kpd/llm/generate.h"

#include <algorithm>
#include <utility>

#include "kpd/base/clock.h"
#include "kpd/base/error.h"

namespace kpd::llm {
namespace {

// Kept at the front when the context is shifted: attention leans on the first tokens (Xiao et al., arXiv:2309.17453).
constexpr size_t kSinkTokens = 4;

// How a sequence's keys are rotated.
class SequenceRotation : public cache::KeyRotation {
 public:
  SequenceRotation(const Model& model, size_t context) : model_(model), context_(context) {}
  void turn(size_t cache_layer, float* keys, size_t n, int32_t by) const override {
    model_.rerotate(model_.layers_of_cache()[cache_layer], keys, n, by, context_);
  }

 private:
  const Model& model_;
  size_t context_;
};

// Room for one token more in `context`.
void shift(const Model& model, KvCache& cache, SequenceId sequence) {
  const size_t length = cache.length(sequence), sinks = std::min(kSinkTokens, length / 2);
  const auto reached = static_cast<size_t>(cache.next_position(sequence));
  const SequenceRotation rotation(model, std::max(planned_context(cache.plan(sequence)), reached));
  cache.evict(sequence, sinks, std::max<size_t>((length - sinks) / 2, 1), &rotation);
}

}  // namespace

const char* finish_reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCancelled:
      return "cancelled";
  }
  return "?";
}

void StopFilter::push(std::string_view text, std::string& out) {
  if (stopped_) return;
  held_ += text;
  size_t first = std::string::npos;
  for (const std::string& stop : stop_) first = std::min(first, stop.empty() ? std::string::npos : held_.find(stop));
  if (first != std::string::npos) {
    stopped_ = true;
    out.append(held_, 0, first);
    held_.clear();
    return;
  }
  // The longest end of what is held that begins a stop text stays.
  size_t keep = 0;
  for (const std::string& stop : stop_) {
    for (size_t n = std::min(stop.size(), held_.size()); n > keep; --n) {
      if (held_.ends_with(std::string_view(stop).substr(0, n))) keep = n;
    }
  }
  out.append(held_, 0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
}

std::string StopFilter::push(std::string_view text) {
  std::string out;
  push(text, out);
  return out;
}

std::string StopFilter::finish() {
  std::string out = stopped_ ? "" : held_;
  held_.clear();
  return out;
}

std::string StopFilter::finish(text::TokenStream& stream, FinishReason& reason) {
  // Two statements: the operands of one + may be taken in either order.
  std::string tail = push(stream.finish());
  tail += finish();
  if (reason == FinishReason::kLength && stopped_) reason = FinishReason::kStop;
  return tail;
}

namespace {

// One answer under way: what generate() does token by token.
class Answer {
 public:
  Answer(Model& model, const text::Tokenizer& tokenizer, KvCache& cache, SequenceId sequence, const GenerateOptions& options,
         const std::function<bool(std::string_view)>& on_text)
      : model_(model),
        cache_(cache),
        options_(options),
        on_text_(on_text),
        ends_(tokenizer.end_of_turn()),
        stream_(tokenizer, true, options.opens_text),
        filter_(options.stop) {
    part_.sequence = sequence;
  }

  // False if the listener had enough.
  bool read(std::span<const text::TokenId> prompt) {
    g.prompt_tokens = prompt.size();
    const Clock::time_point start = Clock::now();
    for (size_t at = 0; at < prompt.size(); at += options_.chunk) {
      const auto chunk = prompt.subspan(at, std::min(options_.chunk, prompt.size() - at));
      const bool last = at + chunk.size() == prompt.size();
      forward(chunk, last ? BatchPart::Want::kLast : BatchPart::Want::kNone);
      if (!give({})) return false;
    }
    g.prefill_seconds = seconds_since(start);
    return true;
  }

  void write(Sampler& sampler, size_t context) {
    const Clock::time_point start = Clock::now();
    const size_t most = std::min(options_.max_tokens, context);
    g.token_ids.reserve(most);
    g.text.reserve(std::min<size_t>(most, 4096) * 8);
    while (g.tokens < options_.max_tokens && take(sampler.pick(logits_)) && g.tokens < options_.max_tokens) {
      if (cache_.length(part_.sequence) >= context) {
        if (!options_.context_shift) break;
        shift(model_, cache_, part_.sequence);
      }
      forward(std::span(g.token_ids).last(1), BatchPart::Want::kLast);
    }
    const std::string tail = filter_.finish(stream_, g.reason);
    g.text += tail;
    if (on_text_) on_text_(tail);
    g.decode_seconds = seconds_since(start);
  }

  Generated g;

 private:
  bool give(std::string_view text) {
    g.text += text;
    if (on_text_ && !on_text_(text)) {
      g.reason = FinishReason::kCancelled;
      return false;
    }
    return true;
  }

  // False if the answer ends with or before the token.
  bool take(text::TokenId token) {
    if (!options_.ignore_eos && std::binary_search(ends_.begin(), ends_.end(), token)) {
      g.reason = FinishReason::kStop;
      return false;
    }
    ++g.tokens;
    g.token_ids.push_back(token);
    decoded_.clear();
    certain_.clear();
    stream_.push(token, decoded_);
    filter_.push(decoded_, certain_);
    if (!give(certain_)) return false;
    if (filter_.stopped()) g.reason = FinishReason::kStop;
    return !filter_.stopped();
  }

  void forward(std::span<const text::TokenId> tokens, BatchPart::Want want) {
    part_.tokens.assign(tokens.begin(), tokens.end());
    part_.want = want;
    logits_ = model_.forward({&part_, 1}, cache_);
  }

  Model& model_;
  KvCache& cache_;
  const GenerateOptions& options_;
  const std::function<bool(std::string_view)>& on_text_;
  std::span<const text::TokenId> ends_;
  text::TokenStream stream_;
  StopFilter filter_;
  BatchPart part_;
  std::span<const float> logits_;
  std::string decoded_, certain_;  // kept from token to token
};

}  // namespace

size_t usual_context(const ModelDescription& description) { return std::min<size_t>(description.max_context, 8192); }

std::string prompt_refusal(size_t tokens, size_t context, bool answers) {
  if (tokens + (answers ? 1 : 0) <= context) return {};
  return str("the prompt has ", tokens, " tokens, the context ",
             answers ? str("of ", context, " has to hold the answer too") : str("is ", context));
}

Generated generate(Model& model, const text::Tokenizer& tokenizer, KvCache& cache, SequenceId sequence,
                   std::span<const text::TokenId> prompt, const GenerateOptions& options,
                   const std::function<bool(std::string_view)>& on_text) {
  if (prompt.empty()) fail(ErrorCode::kInvalidArgument, "an empty prompt: a model needs at least one token to go on from");
  if (options.chunk == 0) fail(ErrorCode::kInvalidArgument, "chunks of no token");
  const size_t context = std::min(options.context == 0 ? model.description().max_context : options.context, cache.capacity());
  const size_t before = cache.length(sequence), held = before + prompt.size();
  if (const std::string refusal = prompt_refusal(held, context); !refusal.empty())
    fail(ErrorCode::kInvalidArgument, refusal, before > 0 ? str("; ", before, " of them are held already") : "");
  if (options.sampling.repeat_penalty != 1 && options.held.size() != before) {
    fail(ErrorCode::kInvalidArgument, "the repeat penalty counts the tokens that the cache holds: ", options.held.size(),
         " were given, sequence ", sequence, " holds ", before);
  }
  if (before == 0) {
    const size_t needed = held + std::min(options.max_tokens, context - held);
    cache.set_plan(sequence, plan_context(std::max(planned_context(cache.plan(sequence)), needed)));
  }
  Sampler sampler(options.sampling, options.first_draw.value_or(held));
  for (const std::span<const text::TokenId> tokens : {options.held, prompt}) {
    for (const text::TokenId token : tokens) sampler.seen(token);
  }
  Answer answer(model, tokenizer, cache, sequence, options, on_text);
  if (answer.read(prompt)) answer.write(sampler, context);
  return std::move(answer.g);
}

}  // namespace kpd::llm
