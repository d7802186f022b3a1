// llm: continuous batching. A step takes the next token of every request that answers, then shares what is left of the chunk
// among the prompts being read, and runs all of it as one batch.
#include "kpd/base/clock.h"
#include "kpd/llm/scheduler.h"

#include <algorithm>
#include <deque>
#include <thread>

#include "base/deadline.h"
#include "kpd/base/error.h"
#include "kpd/base/threads.h"
#include "llm/log_probability.h"
#include "llm/scheduler_slots.h"
#include "llm/token_score.h"

namespace kpd::llm {
namespace {

// Logits kept at once: prompts that are scored want those of every row.
constexpr size_t kMaxLogits = size_t{1} << 24;

}  // namespace

bool Ticket::next(std::vector<Piece>& pieces, std::chrono::milliseconds timeout) {
  pieces.clear();
  std::unique_lock lock(mutex_);
  news_.wait_until(lock, deadline_after(timeout), [&] { return done_ || !pieces_.empty(); });
  pieces.swap(pieces_);
  return !pieces.empty() || !done_;
}

bool Ticket::done() const {
  const std::lock_guard lock(mutex_);
  return done_;
}

void Ticket::cancel() { cancelled_.store(true); }

class SchedulerThread {
 public:
  SchedulerThread(Model model, const text::Tokenizer& tokenizer, const SchedulerOptions& options)
      : model_(std::move(model)),
        tokenizer_(tokenizer),
        options_(checked(options, model_)),
        slots_(options_.n_slots, make_cache(), options_.kept_bytes) {
    stats_.n_slots = options_.n_slots;
    stats_.context = options_.context;
    stats_.cache_capacity_bytes = cache_->capacity_bytes();
    thread_ = std::thread([this] { run(); });
  }

  ~SchedulerThread() {
    stop();
    thread_.join();
  }

  std::shared_ptr<Ticket> submit(Request request) {
    check(request);
    auto ticket = std::make_shared<Ticket>();
    const std::lock_guard lock(mutex_);
    if (stopping_) fail(ErrorCode::kLimitExceeded, "the server is shutting down");
    const size_t free = options_.n_slots - std::min(options_.n_slots, stats_.active);
    if (waiting_.size() >= free && waiting_.size() - free >= options_.max_queue) {
      ++stats_.refused;
      fail(ErrorCode::kLimitExceeded, "the queue is full: ", options_.max_queue, " requests wait already");
    }
    ++stats_.requests;
    waiting_.push_back({std::move(request), ticket, Clock::now()});
    stats_.waiting = waiting_.size();
    wake_.notify_one();
    return ticket;
  }

  void stop() {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    wake_.notify_one();
  }

  SchedulerStats stats() const {
    const std::lock_guard lock(mutex_);
    return stats_;
  }
  const ModelDescription& description() const { return model_.description(); }
  size_t context() const { return options_.context; }

 private:
  struct Waiting {
    Request request;
    std::shared_ptr<Ticket> ticket;
    Clock::time_point start;
  };
  // A part of the step's batch and whose it is.
  struct Share {
    Slot* slot = nullptr;
    size_t n = 0;
    bool scored = false;   // logits of all its rows
    bool answers = false;  // its last row gives the next token
    // Of one that answers, after the forward pass.
    const float* logits = nullptr;
    text::TokenId token = 0;
    std::optional<TokenScore> score{};
    std::string error{};  // of its own tokens: the others have theirs
  };
  struct ToScore {
    TokenScore* score;
    const float* logits;
    size_t n_top;
  };

  static SchedulerOptions checked(SchedulerOptions o, const Model& model) {
    if (o.context == 0) o.context = model.description().max_context;
    if (o.n_slots == 0 || o.n_slots > 4096) fail(ErrorCode::kInvalidArgument, o.n_slots, " slots, expected 1 to 4096");
    if (o.context < 2 || o.context > kMaxContext)
      fail(ErrorCode::kInvalidArgument, "a context of ", o.context, " tokens, expected 2 to ", kMaxContext);
    if (o.chunk == 0) fail(ErrorCode::kInvalidArgument, "chunks of no token");
    return o;
  }

  KvCache& make_cache() {
    const size_t rounded = (options_.context + 63) / 64 * 64;  // a sequence takes whole blocks
    const uint64_t block_bytes = std::max<uint64_t>(model_.make_cache(options_.cache, 64)->bytes_for(64), 1);
    const uint64_t most = cache::kMaxCacheTokens - std::min<uint64_t>(options_.n_slots * rounded, cache::kMaxCacheTokens);
    const uint64_t kept = std::min(options_.kept_bytes / block_bytes, most / 64) * 64;
    cache_ = model_.make_cache(options_.cache, options_.n_slots * rounded + kept);
    return *cache_;
  }

  void check(const Request& request) const {
    check_sampling(request.sampling);
    if (request.prompt.empty())
      fail(ErrorCode::kInvalidArgument, "an empty prompt: a model needs at least one token to go on from");
    const auto n_vocabulary = static_cast<text::TokenId>(model_.description().n_vocabulary);
    for (const text::TokenId token : request.prompt) {
      if (token < 0 || token >= n_vocabulary)
        fail(ErrorCode::kInvalidArgument, "token ", token, " is beyond the vocabulary of ", n_vocabulary);
    }
    for (const auto& [token, bias] : request.sampling.logit_bias) {
      if (token >= n_vocabulary)
        fail(ErrorCode::kInvalidArgument, "the bias of token ", token, " is beyond the vocabulary of ", n_vocabulary);
    }
    const std::string refusal = prompt_refusal(request.prompt.size(), options_.context, request.max_tokens > 0);
    if (!refusal.empty()) fail(ErrorCode::kInvalidArgument, refusal);
  }

  void run() {
    for (;;) {
      {
        std::unique_lock lock(mutex_);
        wake_.wait(lock, [&] { return stopping_ || !waiting_.empty() || slots_.n_running() > 0; });
        drop_cancelled();
        if (stopping_) return;
        admit();
        note_state();
      }
      if (slots_.n_running() == 0) continue;
      const Clock::time_point start = Clock::now();
      try {
        step();
      } catch (const std::exception& e) {
        fail_all(e.what());
      }
      const std::lock_guard lock(mutex_);
      stats_.busy_seconds += seconds_since(start);
      note_state();
    }
  }

  void note_state() {
    stats_.active = slots_.n_running();
    stats_.waiting = waiting_.size();
    stats_.cache_bytes = cache_->bytes();
    stats_.kept = slots_.n_kept();
    stats_.kept_bytes = slots_.kept_bytes();
  }

  void drop_cancelled() {
    for (Slot& slot : slots_.all()) {
      if (slot.running && (stopping_ || slot.running->ticket->cancelled_.load())) {
        ++stats_.cancelled;
        finish(slot, FinishReason::kCancelled);
      }
    }
    std::erase_if(waiting_, [&](const Waiting& w) {
      if (!stopping_ && !w.ticket->cancelled_.load()) return false;
      ++stats_.cancelled;
      RequestResult result;
      result.reason = FinishReason::kCancelled;
      result.prompt_tokens = w.request.prompt.size();
      close(*w.ticket, std::move(result));
      return true;
    });
  }

  // The client with the fewest requests under way comes first, then who has waited longest.
  void admit() {
    while (slots_.any_free()) {
      auto chosen = waiting_.end();
      size_t fewest = options_.n_slots + 1;
      for (auto it = waiting_.begin(); it != waiting_.end(); ++it) {
        const size_t n = slots_.n_running_of(it->request.client);
        if (n >= fewest || slots_.worth_waiting(it->request)) continue;
        fewest = n;
        chosen = it;
      }
      if (chosen == waiting_.end()) return;
      Waiting w = std::move(*chosen);
      waiting_.erase(chosen);
      const size_t n_prompt = w.request.prompt.size();
      try {
        begin(w);
      } catch (const std::exception& e) {  // want of memory: the others go on
        slots_.forget_idle();
        ++stats_.failed;
        RequestResult result;
        result.reason = FinishReason::kCancelled;
        result.prompt_tokens = n_prompt;
        set_error(result, e.what());
        close(*w.ticket, std::move(result));
      }
    }
  }

  // The slot gets its request last: until then nothing is under way that would have to be ended.
  void begin(Waiting& w) {
    Slot& slot = slots_.prepare(w.request);
    // One rotation for all slots, whatever length each has reached: any may go on from what another holds.
    cache_->set_plan(slot.id, plan_context(options_.context));
    const Request& request = w.request;
    if (request.score_prompt && slot.scores.empty()) {
      slot.scores.push_back({request.prompt[0], TokenScore::kUnknown, {}});
      slot.scored_top = request.top_logprobs.value_or(0);
    }
    auto running = std::make_unique<Running>(tokenizer_, std::move(w.request), w.ticket);
    Running& r = *running;
    const size_t room = options_.context + 1 - r.request.prompt.size();
    slot.tokens.reserve(r.request.prompt.size() + std::min(r.request.max_tokens, room));
    r.answer.reserve(std::min(r.request.max_tokens, room));
    r.start = w.start;
    r.result.prompt_tokens = r.request.prompt.size();
    r.result.cached_tokens = slot.tokens.size();
    stats_.prompt_tokens += r.result.prompt_tokens;
    stats_.cached_tokens += r.result.cached_tokens;
    slot.running = std::move(running);
  }

  void add_share(Slot& slot, size_t n) {
    const Running& r = *slot.running;
    const size_t at = slot.tokens.size(), n_prompt = r.request.prompt.size();
    if (shares_.size() == batch_.size()) batch_.emplace_back();
    BatchPart& part = batch_[shares_.size()];
    Share share{&slot, n, false, true};
    part.sequence = slot.id;
    part.want = BatchPart::Want::kLast;
    if (at >= n_prompt) {
      part.tokens.assign(1, r.answer.back());
    } else {
      const auto first = r.request.prompt.begin() + static_cast<std::ptrdiff_t>(at);
      part.tokens.assign(first, first + static_cast<std::ptrdiff_t>(n));
      share.scored = r.request.score_prompt;
      share.answers = at + n == n_prompt;
      part.want = share.scored ? BatchPart::Want::kAll : share.answers ? BatchPart::Want::kLast : BatchPart::Want::kNone;
    }
    shares_.push_back(std::move(share));
  }

  void plan() {
    shares_.clear();
    reading_.clear();
    for (Slot& slot : slots_.all()) {
      if (!slot.running) continue;
      if (slot.tokens.size() < slot.running->request.prompt.size()) {
        reading_.push_back(&slot);
      } else {
        add_share(slot, 1);
      }
    }
    const auto left = [](const Slot* s) { return s->running->request.prompt.size() - s->tokens.size(); };
    std::sort(reading_.begin(), reading_.end(), [&](const Slot* a, const Slot* b) { return left(a) < left(b); });
    size_t rows = options_.chunk - std::min(options_.chunk, shares_.size());
    size_t scored_rows = std::max<size_t>(kMaxLogits / model_.description().n_vocabulary, 16);
    for (size_t i = 0; i < reading_.size(); ++i) {
      const bool scored = reading_[i]->running->request.score_prompt;
      size_t n = std::min(left(reading_[i]), std::max<size_t>(rows / (reading_.size() - i), 1));
      if (scored) n = std::min(n, std::max<size_t>(scored_rows / (reading_.size() - i), 1));
      add_share(*reading_[i], n);
      rows -= std::min(rows, n);
      if (scored) scored_rows -= std::min(scored_rows, n);
    }
  }

  // One forward pass and what follows from it. What a step needs is kept from step to step: while requests only answer, none
  // allocates anything but the cache's next blocks and what clients are given.
  void step() {
    plan();
    const std::span<const float> logits = model_.forward(std::span(batch_).first(shares_.size()), *cache_);
    to_score_.clear();
    const float* row = logits.data();
    size_t rows = 0;
    for (size_t i = 0; i < shares_.size(); ++i) {
      rows += shares_[i].n;
      row = take_rows(shares_[i], batch_[i].tokens, row);
    }
    const size_t n_vocabulary = model_.description().n_vocabulary;
    parallel_for(to_score_.size(), model_.n_threads(), [&](size_t i, int) {
      const ToScore& s = to_score_[i];
      *s.score = score_of(s.logits, n_vocabulary, s.score->token, s.n_top);
    });
    parallel_for(shares_.size(), model_.n_threads(), [&](size_t i, int) { sample(shares_[i]); });
    {
      const std::lock_guard lock(mutex_);
      ++stats_.steps;
      stats_.rows += rows;
    }
    for (Share& share : shares_) {
      if (share.logits == nullptr) continue;
      try {
        if (!share.error.empty()) fail(ErrorCode::kCorruptData, share.error);
        answer(share);
      } catch (const std::exception& e) {
        fail_one(*share.slot, e.what());
      }
    }
  }

  // The cache holds the share's tokens now. Its logits begin at `row`; returns where the next one's do.
  const float* take_rows(Share& share, const std::vector<text::TokenId>& tokens, const float* row) {
    const size_t n_vocabulary = model_.description().n_vocabulary;
    Slot& slot = *share.slot;
    const size_t at = slot.tokens.size(), n = share.n;
    slot.tokens.insert(slot.tokens.end(), tokens.begin(), tokens.end());
    if (share.scored) {
      const std::vector<text::TokenId>& prompt = slot.running->request.prompt;
      const size_t end = std::min(at + n + 1, prompt.size()), known = slot.scores.size();
      slot.scores.resize(std::max(known, end));
      for (size_t t = std::max(known, at + 1); t < end; ++t) {
        slot.scores[t].token = prompt[t];
        to_score_.push_back({&slot.scores[t], row + (t - 1 - at) * n_vocabulary, slot.scored_top});
      }
      row += n * n_vocabulary;
    } else if (share.answers) {
      row += n_vocabulary;
    }
    if (share.answers) share.logits = row - n_vocabulary;
    return row;
  }

  // The next token of a share that answers; threads work on different shares.
  void sample(Share& share) const {
    Running& r = *share.slot->running;
    if (share.logits == nullptr || r.request.max_tokens == 0) return;
    const std::span<const float> logits(share.logits, model_.description().n_vocabulary);
    try {
      share.token = r.sampler.pick(logits);
      share.score = TokenScore{share.token, TokenScore::kUnknown, {}};
      if (const auto n_top = r.request.top_logprobs) share.score = score_of(logits.data(), logits.size(), share.token, *n_top);
    } catch (const std::exception& e) {
      share.error = e.what();
    }
  }

  // What the share's request makes of its next token.
  void answer(Share& share) {
    Slot& slot = *share.slot;
    Running& r = *slot.running;
    const Request& request = r.request;
    if (r.answer.empty()) {
      r.result.seconds_to_first_token = seconds_since(r.start);
      if (request.score_prompt) take_prompt_scores(slot);
    }
    if (request.max_tokens == 0) return done(slot, FinishReason::kLength);
    const text::TokenId token = share.token;
    const auto ends = tokenizer_.end_of_turn();
    if (!request.ignore_eos && std::binary_search(ends.begin(), ends.end(), token)) {
      // Its score is given all the same: a client that sums log-probabilities counts on one a token.
      if (request.top_logprobs) give(*r.ticket, {"", std::move(share.score)});
      return done(slot, FinishReason::kStop);
    }
    r.answer.push_back(token);
    decoded_.clear();
    Piece piece{{}, std::move(share.score)};
    r.stream.push(token, decoded_);  // nothing for one beyond the tokenizer's: a model's head may be wider
    r.filter.push(decoded_, piece.text);
    give(*r.ticket, std::move(piece));
    if (r.filter.stopped()) return done(slot, FinishReason::kStop);
    if (r.answer.size() >= request.max_tokens || slot.tokens.size() >= options_.context) done(slot, FinishReason::kLength);
  }

  static void take_prompt_scores(Slot& slot) {
    Running& r = *slot.running;
    r.result.prompt_scores.assign(slot.scores.begin(),
                                  slot.scores.begin() + static_cast<std::ptrdiff_t>(r.request.prompt.size()));
    const size_t n_top = r.request.top_logprobs.value_or(0);
    for (TokenScore& score : r.result.prompt_scores) {
      check_log_probability(static_cast<double>(score.logprob), score.token);
      score.top.resize(std::min(score.top.size(), n_top));
    }
  }

  void done(Slot& slot, FinishReason reason) {
    {
      const std::lock_guard lock(mutex_);  // before the client hears of it, so that it finds itself counted
      ++stats_.finished;
      stats_.tokens += slot.running->answer.size();
    }
    finish(slot, reason);
  }

  // Ends the slot's request; what the cache holds stays.
  void finish(Slot& slot, FinishReason reason) {
    Running& r = *slot.running;
    r.result.reason = reason;
    try {
      const std::string tail = r.filter.finish(r.stream, r.result.reason);
      if (!tail.empty()) give(*r.ticket, {tail, std::nullopt});
    } catch (const std::exception& e) {
      set_error(r.result, e.what());
    }
    r.result.tokens = r.answer.size();
    r.result.seconds = seconds_since(r.start);
    close(*r.ticket, std::move(r.result));
    slot.running.reset();
  }

  void fail_all(const char* error) {
    for (Slot& slot : slots_.all()) fail_one(slot, error);
  }

  // Nothing of what the slot holds is trusted any more.
  void fail_one(Slot& slot, const char* error) {
    if (slot.running) {
      {
        const std::lock_guard lock(mutex_);  // before the client hears of it, as in done()
        ++stats_.failed;
      }
      set_error(slot.running->result, error);
      finish(slot, FinishReason::kCancelled);
    }
    slots_.forget(slot);
  }

  // Never empty, whatever memory there is: an error of no text would be none.
  static void set_error(RequestResult& result, const char* text) noexcept {
    try {
      result.error = text;
    } catch (const std::bad_alloc&) {
      result.error = "no memory";  // short enough to need none
    }
  }

  static void give(Ticket& ticket, Piece piece) {
    const std::lock_guard lock(ticket.mutex_);
    ticket.pieces_.push_back(std::move(piece));
    ticket.news_.notify_all();
  }

  static void close(Ticket& ticket, RequestResult result) {
    const std::lock_guard lock(ticket.mutex_);
    ticket.result_ = std::move(result);
    ticket.done_ = true;
    ticket.news_.notify_all();
  }

  Model model_;
  const text::Tokenizer& tokenizer_;
  SchedulerOptions options_;
  std::unique_ptr<KvCache> cache_;
  Slots slots_;  // the thread's own, but for what stats_ repeats
  // Of a step, kept for their memory.
  std::vector<BatchPart> batch_;  // as many count as there are shares
  std::vector<Share> shares_;
  std::vector<Slot*> reading_;
  std::vector<ToScore> to_score_;
  std::string decoded_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Waiting> waiting_;
  SchedulerStats stats_;
  bool stopping_ = false;
  std::thread thread_;
};

Scheduler::Scheduler(Model model, const text::Tokenizer& tokenizer, const SchedulerOptions& options)
    : thread_(std::make_unique<SchedulerThread>(std::move(model), tokenizer, options)) {}
Scheduler::~Scheduler() = default;

std::shared_ptr<Ticket> Scheduler::submit(Request request) { return thread_->submit(std::move(request)); }
void Scheduler::stop() { thread_->stop(); }
SchedulerStats Scheduler::stats() const { return thread_->stats(); }
const ModelDescription& Scheduler::description() const { return thread_->description(); }
size_t Scheduler::context() const { return thread_->context(); }

}  // namespace kpd::llm
