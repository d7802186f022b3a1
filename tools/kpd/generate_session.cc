// tools: see generate_session.h.
#include "generate_session.h"

#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <span>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "progress.h"
#include "signals.h"

namespace kpd::tool {
namespace {

uint64_t peak_rss_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<uint64_t>(usage.ru_maxrss) * 1024;
}

double per_second(size_t n, double seconds) { return seconds > 0 ? static_cast<double>(n) / seconds : 0; }

// The time between tokens: the first is there when the prompt is read.
double decode_speed(const llm::Generated& g) { return per_second(g.tokens > 0 ? g.tokens - 1 : 0, g.decode_seconds); }

// What generate() and the model tell while a prompt is read and answered. An answer that is not printed as it comes has a line
// of progress too.
class Listener {
 public:
  Listener(size_t prompt_tokens, size_t max_tokens, bool print)
      : unread_(prompt_tokens),
        max_tokens_(max_tokens),
        print_(print),
        progress_(std::in_place, "prompt", prompt_tokens, "tokens") {}

  // A layer of a step of n_rows tokens begins. Steps of a prompt take long: what has begun counts by its layers, and Ctrl-C
  // does not wait for its end.
  void begin_layer(size_t layer, size_t n_layers, size_t n_rows) {
    if (unread_ == 0) return;
    if (interrupted()) fail(ErrorCode::kCancelled, "interrupted");
    step_ = n_rows;
    const size_t done = n_rows * layer / n_layers;
    if (done > counted_) progress_->tick(done - counted_);
    counted_ = done;
  }

  bool hear(std::string_view text) {
    // Until the prompt is read, a call without text is the end of a step.
    if (text.empty() && unread_ > 0) {
      const size_t n = std::min(step_, unread_);
      progress_->tick(n - std::min(counted_, n));
      unread_ -= n;
      counted_ = 0;
    } else {
      hear_token(text);
    }
    return !failed_ && !interrupted();
  }
  bool failed() const { return failed_; }

 private:
  void hear_token(std::string_view text) {
    if (!answers_) {
      answers_ = true;
      progress_.reset();  // removes its line
      if (!print_) progress_.emplace("answer", max_tokens_, "tokens");
    }
    if (progress_) progress_->tick();
    if (print_ && !text.empty())
      failed_ = std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0;
  }

  size_t unread_, max_tokens_, step_ = 0, counted_ = 0;
  bool print_, answers_ = false, failed_ = false;
  std::optional<Progress> progress_;
};

}  // namespace

Session::Session(const GenerateArgs& args, bool conversation) : args_(args), conversation_(conversation) {
  options_.chunk = args.model.chunk();
  options_.ignore_eos = args.ignore_eos;
  options_.opens_text = args.chat;
  options_.context_shift = args.context_shift;
  options_.stop = args.stop;
  chat_options_ = args.templates.options();
  const size_t asked = args.ctx.empty() ? 0 : parse_context(args.ctx, 2);
  const bool to_the_end = args.max_tokens == "-1";  // as llama.cpp has it: until the model ends it or the context is full
  const size_t asked_tokens =
      args.max_tokens.empty() || to_the_end ? 0 : parse_count("--max-tokens", args.max_tokens, 1, 1 << 24);
  kv_ = args.cache.spec();
  static_cast<void>(as_usage("sampling", [&] { return args.sampling.over({.temperature = 1}); }));

  opened_ = open_model(args.path);
  if (args.chat) template_ = choose_template(args.templates, opened_->tokenizer);
  options_.context = context_or_default(asked, opened_->description);
  // A conversation's answer is stopped by who reads it; one that goes into a file has to end by itself.
  to_the_end_ = asked_tokens == 0 && (conversation || to_the_end);
  options_.max_tokens = to_the_end_ ? options_.context : asked_tokens != 0 ? asked_tokens : 256;
  Sampling sampling = choose_sampling(args.sampling, *opened_, args.common);
  options_.sampling = std::move(sampling.options);
  sampling_line_ = std::move(sampling.line);
}

void Session::load() {
  fmt::print(stderr, "{}\n", sampling_line_);
  note_long_context(options_.context, opened_->description);
  loaded_ = load_model(std::move(*opened_), args_.model.arithmetic(llm::Arithmetic::kFast), args_.common.threads());
  opened_.reset();
  cache_ = loaded_->model.make_cache(kv_, options_.context);
  fmt::print(stderr, "cache of keys and values: {}, {} tokens, {} when full\n", kv_, options_.context,
             binary_size(cache_->capacity_bytes()));
}

const text::Tokenizer& Session::tokenizer() const { return loaded_ ? loaded_->tokenizer : opened_->tokenizer; }

std::vector<text::TokenId> Session::chat_prompt(const std::vector<text::ChatMessage>& messages) const {
  return encode_prompt(tokenizer(), template_->render(tokenizer(), messages, chat_options_),
                       args_.templates.special_in_content);
}

void Session::check_fits(size_t prompt_tokens) const {
  if (prompt_tokens == 0) usage("--prompt: there is no text to go on from");
  const std::string refusal = llm::prompt_refusal(prompt_tokens, options_.context);
  if (!refusal.empty()) usage("--prompt: ", refusal, "; --ctx ", prompt_tokens + 1, " and more does");
}

llm::Generated Session::answer(const std::vector<text::TokenId>& prompt, bool print) {
  size_t same = 0;
  while (same < held_.size() && same + 1 < prompt.size() && held_[same] == prompt[same]) ++same;
  same = cache_->crop(0, same).length;
  // Answers go on from one another: the cache keeps what the first of them rotated.
  if (conversation_) cache_->set_plan(0, llm::plan_context(options_.context));
  held_.resize(same);
  const auto rest = std::span(prompt).subspan(same);
  // A seed's numbers are drawn once, whatever is asked again after /clear or when turns were dropped.
  const uint64_t first_draw = std::max<uint64_t>(prompt.size(), next_draw_);
  options_.held = std::span(prompt).first(same);
  options_.first_draw = first_draw;
  Listener listener(rest.size(), options_.max_tokens, print);
  llm::Generated g;
  g.prompt_tokens = rest.size();
  g.reason = llm::FinishReason::kCancelled;
  const size_t n_layers = loaded_->model.description().layers.size();
  loaded_->model.set_tap([&](size_t layer, llm::LinearSite site, const float*, size_t n_rows, size_t) {
    if (site == llm::LinearSite::kQkv) listener.begin_layer(layer, n_layers, n_rows);
  });
  try {
    g = llm::generate(loaded_->model, loaded_->tokenizer, *cache_, 0, rest, options_,
                      [&listener](std::string_view text) { return listener.hear(text); });
  } catch (const Error& e) {
    if (e.code() != ErrorCode::kCancelled) throw;
  }
  loaded_->model.set_tap({});
  stdout_failed_ = listener.failed();
  options_.held = {};
  next_draw_ = first_draw + g.tokens + 1;
  held_ = prompt;
  held_.insert(held_.end(), g.token_ids.begin(), g.token_ids.end());
  // A shifted context no longer holds the conversation's start.
  held_.resize(options_.context_shift ? 0 : std::min(held_.size(), cache_->length(0)));
  return g;
}

std::string Session::length_limit(const llm::Generated& g) const {
  if (!to_the_end_ && g.tokens >= options_.max_tokens) return fmt::format("--max-tokens {}", options_.max_tokens);
  return fmt::format("the full context of {} tokens (--ctx)", options_.context);
}

void Session::print_json(const llm::Generated& g) const {
  nlohmann::ordered_json object = {{"text", g.text},
                                   {"prompt_tokens", g.prompt_tokens},
                                   {"tokens", g.tokens},
                                   {"finish_reason", llm::finish_reason_name(g.reason)}};
  const llm::SamplingOptions& s = options_.sampling;
  object["temperature"] = s.temperature;
  if (s.temperature > 0) {
    object["top_k"] = s.top_k;
    object["top_p"] = s.top_p;
    object["min_p"] = s.min_p;
    object["seed"] = s.seed;
  }
  object["repeat_penalty"] = s.repeat_penalty;
  object["prefill_tokens_per_s"] = per_second(g.prompt_tokens, g.prefill_seconds);
  object["decode_tokens_per_s"] = decode_speed(g);
  object["load_seconds"] = loaded_->seconds;
  object["peak_rss_bytes"] = peak_rss_bytes();
  fmt::print("{}\n", object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

void Session::print_speeds(const llm::Generated& g) const {
  const std::string end = g.reason == llm::FinishReason::kLength      ? "ended by length: " + length_limit(g)
                          : g.reason == llm::FinishReason::kCancelled ? "interrupted"
                                                                      : str("ended by ", llm::finish_reason_name(g.reason));
  fmt::print(stderr, "\n{} prompt tokens at {:.1f} tokens/s, {} tokens at {:.1f} tokens/s, {}\n", g.prompt_tokens,
             per_second(g.prompt_tokens, g.prefill_seconds), g.tokens, decode_speed(g), end);
}

}  // namespace kpd::tool
