#include "kpd/llm/generate.h"

#include <algorithm>

#include "kpd/base/error.h"
#include "llm/clock.h"
#include "llm/planned_context.h"

namespace kpd::llm {
namespace {

// Kept at the front when the context is shifted: attention leans on the first tokens (Xiao et al., arXiv:2309.17453).
constexpr size_t kSinkTokens = 4;

void rerotate(const void* model, size_t layer, float* keys, size_t n, int32_t by) {
  static_cast<const Model*>(model)->rerotate(layer, keys, n, by);
}

// Room for one token more in `context`.
void shift(const Model& model, KvCache& cache, SequenceId sequence) {
  const size_t length = cache.length(sequence), sinks = std::min(kSinkTokens, length / 2);
  cache.evict(sequence, sinks, std::max<size_t>((length - sinks) / 2, 1), rerotate, &model);
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

std::string StopFilter::push(std::string_view text) {
  if (stopped_) return {};
  held_ += text;
  size_t first = std::string::npos;
  for (const std::string& stop : stop_) first = std::min(first, stop.empty() ? std::string::npos : held_.find(stop));
  if (first != std::string::npos) {
    stopped_ = true;
    std::string out = held_.substr(0, first);
    held_.clear();
    return out;
  }
  // The longest end of what is held that begins a stop text stays.
  size_t keep = 0;
  for (const std::string& stop : stop_) {
    for (size_t n = std::min(stop.size(), held_.size()); n > keep; --n) {
      if (held_.ends_with(std::string_view(stop).substr(0, n))) keep = n;
    }
  }
  std::string out = held_.substr(0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  return out;
}

std::string StopFilter::finish() {
  std::string out = stopped_ ? "" : held_;
  held_.clear();
  return out;
}

std::string StopFilter::finish(TokenStream& stream, FinishReason& reason) {
  // Two statements: the operands of one + may be taken in either order.
  std::string tail = push(stream.finish());
  tail += finish();
  if (reason == FinishReason::kLength && stopped_) reason = FinishReason::kStop;
  return tail;
}

Generated generate(Model& model, const Tokenizer& tokenizer, KvCache& cache, SequenceId sequence,
                   std::span<const TokenId> prompt, const GenerateOptions& options,
                   const std::function<bool(std::string_view)>& on_text) {
  if (prompt.empty()) fail(ErrorCode::kInvalidArgument, "an empty prompt: a model needs at least one token to go on from");
  const size_t context = std::min(options.context == 0 ? model.description().max_context : options.context, cache.capacity());
  if (cache.length(sequence) + prompt.size() >= context) {
    fail(ErrorCode::kInvalidArgument, "the prompt has ", prompt.size(), " tokens (", cache.length(sequence),
         " are held already), the context is ", context);
  }
  const size_t held = cache.length(sequence) + prompt.size();
  const PlannedContext planned(model, held + std::min(options.max_tokens, context - held));
  Sampler sampler(options.sampling);
  for (const TokenId token : prompt) sampler.seen(token);
  Generated g;
  g.prompt_tokens = prompt.size();
  const auto put = [&](const std::string& text) {
    g.text += text;
    return !on_text || on_text(text);
  };
  Clock::time_point start = Clock::now();
  std::span<const float> logits;
  for (size_t at = 0; at < prompt.size(); at += options.chunk) {
    const auto part = prompt.subspan(at, std::min(options.chunk, prompt.size() - at));
    const bool last = at + part.size() == prompt.size();
    const BatchPart batch[] = {
        {sequence, {part.begin(), part.end()}, {}, last ? BatchPart::Want::kLast : BatchPart::Want::kNone, {}}};
    logits = model.forward(batch, cache);
    if (!put("")) {
      g.reason = FinishReason::kCancelled;
      return g;
    }
  }
  g.prefill_seconds = since(start);
  start = Clock::now();
  TokenStream stream(tokenizer, true, options.opens_text);
  StopFilter filter(options.stop);
  const auto ends = tokenizer.end_of_turn();
  while (g.tokens < options.max_tokens) {
    const TokenId token = sampler.pick(logits);
    if (!options.ignore_eos && std::binary_search(ends.begin(), ends.end(), token)) {
      g.reason = FinishReason::kStop;
      break;
    }
    ++g.tokens;
    g.token_ids.push_back(token);
    if (!put(filter.push(stream.push(token)))) {
      g.reason = FinishReason::kCancelled;
      break;
    }
    if (filter.stopped()) {
      g.reason = FinishReason::kStop;
      break;
    }
    if (g.tokens == options.max_tokens) break;
    if (cache.length(sequence) >= context) {
      if (!options.context_shift) break;
      shift(model, cache, sequence);
    }
    const BatchPart batch[] = {{sequence, {token}, {}, BatchPart::Want::kLast, {}}};
    logits = model.forward(batch, cache);
  }
  put(filter.finish(stream, g.reason));
  g.decode_seconds = since(start);
  return g;
}

}  // namespace kpd::llm
