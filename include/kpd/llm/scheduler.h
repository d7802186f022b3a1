// llm: many requests on one model at once. A thread of its own mixes what every request needs next (chunks of prompts, next
// tokens) into one forward pass a step, and keeps what a finished request left in the cache for the next one that begins alike.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kpd/llm/generate.h"
#include "kpd/llm/model.h"
#include "kpd/llm/sampler.h"

namespace kpd::llm {

struct SchedulerOptions {
  size_t n_slots = 4;  // requests computed at once
  // Tokens of prompt and answer that the cache holds of each request; 0: what the model was trained for. An answer's last token
  // need not be held: the two together may be one token more.
  size_t context = 0;
  size_t chunk = 512;      // tokens per step, of all requests together
  size_t max_queue = 256;  // requests that wait beside those
  std::string cache = "f16";
  // Memory for what slots held before they were given to other requests: a request that goes on from such a sequence starts
  // there. The least recently used are dropped first; 0: none is kept. At most this much of the cache beside the slots'.
  uint64_t kept_bytes = 0;
};

struct Request {
  std::vector<text::TokenId> prompt;
  size_t max_tokens = 16;         // 0: only the prompt is scored
  std::vector<std::string> stop;  // texts that end the answer; not part of it
  SamplingOptions sampling;
  bool ignore_eos = false;
  bool opens_text = false;             // the answer is a text of its own (chat), not the prompt's continuation
  bool score_prompt = false;           // log-probabilities of the prompt's tokens
  std::optional<size_t> top_logprobs;  // log-probabilities of the answer's tokens, and the n most probable at each place
  std::string client;                  // whose request: clients take turns in the queue
};

// Natural logarithm of a token's probability before temperature and cuts. That of the most probable token is the same float
// here and in `top`.
struct TokenScore {
  static constexpr float kUnknown = std::numeric_limits<float>::infinity();
  text::TokenId token = 0;
  float logprob = kUnknown;                          // kUnknown: the first token of a prompt, or not asked for
  std::vector<std::pair<text::TokenId, float>> top;  // the most probable, descending
};

// What a request gave with one token. Text that may begin a stop text comes with a later piece; the last may lack a token.
struct Piece {
  std::string text;
  std::optional<TokenScore> score;  // logprob only if the request asked
};

struct RequestResult {
  FinishReason reason = FinishReason::kLength;
  std::string error;  // not empty: the request failed, e.g. by logits that are not finite; others go on
  size_t prompt_tokens = 0, cached_tokens = 0, tokens = 0;
  std::vector<TokenScore> prompt_scores;  // one a prompt token if asked for
  double seconds_to_first_token = 0, seconds = 0;
};

// A request under way. Thread-safe.
class Ticket {
 public:
  // Waits for news at most `timeout` (milliseconds::max(): as long as it takes), then moves what is new to `pieces` (cleared
  // first). False when the request is over and everything was taken.
  bool next(std::vector<Piece>& pieces, std::chrono::milliseconds timeout);
  // Of a request that is over.
  const RequestResult& result() const { return result_; }
  bool done() const;
  void cancel();

 private:
  friend class SchedulerThread;
  mutable std::mutex mutex_;
  std::condition_variable news_;
  std::vector<Piece> pieces_;
  RequestResult result_;
  bool done_ = false;
  std::atomic<bool> cancelled_{false};
};

struct SchedulerStats {
  uint64_t requests = 0, refused = 0, finished = 0, cancelled = 0, failed = 0;
  uint64_t prompt_tokens = 0, cached_tokens = 0, tokens = 0, steps = 0, rows = 0;
  double busy_seconds = 0;
  size_t active = 0, waiting = 0, n_slots = 0, context = 0;
  uint64_t cache_bytes = 0, cache_capacity_bytes = 0;  // allocated; when full
  size_t kept = 0;                                     // sequences kept beside the slots'
  uint64_t kept_bytes = 0;                             // what they may take of the cache, as if they shared nothing
};

class SchedulerThread;  // of the implementation

class Scheduler {
 public:
  // `tokenizer` must outlive it. Throws Error(kInvalidArgument) for options that make no sense.
  Scheduler(Model model, const text::Tokenizer& tokenizer, const SchedulerOptions& options);
  Scheduler(Model model, const text::Tokenizer&& tokenizer, const SchedulerOptions& options) = delete;
  // Cancels all requests.
  ~Scheduler();

  // Thread-safe. Throws Error(kInvalidArgument) for an empty prompt, tokens beyond the vocabulary, a prompt that leaves no room
  // in the context, and sampling that makes no sense; Error(kLimitExceeded) if the queue is full or the scheduler has stopped.
  std::shared_ptr<Ticket> submit(Request request);
  // Cancels what runs and refuses what comes. Thread-safe.
  void stop();
  SchedulerStats stats() const;  // thread-safe
  const ModelDescription& description() const;
  size_t context() const;

 private:
  std::unique_ptr<SchedulerThread> thread_;
};

}  // namespace kpd::llm
