// llm: the slots of a scheduler: which sequence of the cache holds which tokens, and where a new request starts cheapest.
#pragma once

#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "kpd/base/clock.h"
#include "kpd/llm/scheduler.h"

namespace kpd::llm {

// One request being computed.
struct Running {
  Running(const text::Tokenizer& tokenizer, Request asked, std::shared_ptr<Ticket> its_ticket)
      : request(std::move(asked)),
        ticket(std::move(its_ticket)),
        sampler(request.sampling, request.prompt.size()),
        stream(tokenizer, true, request.opens_text),
        filter(request.stop) {
    for (const text::TokenId token : request.prompt) sampler.seen(token);
  }
  Request request;
  std::shared_ptr<Ticket> ticket;
  Sampler sampler;
  text::TokenStream stream;
  StopFilter filter;
  RequestResult result;
  std::vector<text::TokenId> answer;
  Clock::time_point start;
};

// A sequence of the cache and its tokens.
struct Held {
  SequenceId id = 0;
  std::vector<text::TokenId> tokens;  // what the cache holds, in order
  // Scores of a leading part of tokens (the first is unknown), so that a shared prefix need not be scored again.
  std::vector<TokenScore> scores;
  size_t scored_top = 0;  // most probable tokens kept with each of them
  uint64_t last_used = 0;
};

// Where a request is computed. It keeps its tokens when its request is over.
struct Slot : Held {
  std::unique_ptr<Running> running;
};

// The slots, and beside them what they held before: sequences that a later request may go on from. Those are charged as if they
// shared nothing, at most `kept_bytes` together, and the least recently used go first. Sequences share memory until one of them
// writes, so keeping one copies nothing.
class Slots {
 public:
  Slots(size_t n, KvCache& cache, uint64_t kept_bytes) : slots_(n), cache_(cache), most_kept_bytes_(kept_bytes) {
    for (size_t i = 0; i < n; ++i) slots_[i].id = static_cast<SequenceId>(i);
  }

  std::span<Slot> all() { return slots_; }
  bool any_free() const;
  size_t n_running() const;
  size_t n_running_of(const std::string& client) const;
  size_t n_kept() const;
  uint64_t kept_bytes() const { return kept_bytes_; }

  // Whether a prompt that is being read will soon hold much more of this one's prefix than any sequence does now.
  bool worth_waiting(const Request& request);
  // The free slot where the request starts, made to hold as much of its prompt as any sequence has. There must be a free one.
  Slot& prepare(const Request& request);
  void forget(Slot& slot);
  // All that no request under way needs: after an error in prepare(), which may have left its work half done. Does not throw.
  void forget_idle();

 private:
  size_t usable(const Held& held, const Request& request) const;
  Held* most_in_common(const Request& request, size_t& common);
  const Slot* slot_of(const Held* held) const;
  void keep(const Slot& slot, size_t n_stay, const Held* in_use, const Held* stays);
  bool held_elsewhere(const Slot& slot);
  void release(Held& kept);

  std::vector<Slot> slots_;
  std::deque<Held> kept_;  // those without tokens are free; a deque, because others point into it
  KvCache& cache_;
  uint64_t most_kept_bytes_, kept_bytes_ = 0, clock_ = 0;
};

}  // namespace kpd::llm
