// llm: the slots of a scheduler: which sequence of the cache holds which tokens, and where a new request starts cheapest.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "kpd/llm/scheduler.h"

namespace kpd::llm {

// One request being computed.
struct Running {
  Running(const Tokenizer& tokenizer, Request asked, std::shared_ptr<Ticket> its_ticket)
      : request(std::move(asked)),
        ticket(std::move(its_ticket)),
        sampler(request.sampling),
        stream(tokenizer, true, request.opens_text),
        filter(request.stop) {
    for (const TokenId token : request.prompt) sampler.seen(token);
  }
  Request request;
  std::shared_ptr<Ticket> ticket;
  Sampler sampler;
  TokenStream stream;
  StopFilter filter;
  RequestResult result;
  std::vector<TokenId> answer;
  std::chrono::steady_clock::time_point start;
};

// A sequence of the cache. It keeps its tokens when its request is over.
struct Slot {
  std::vector<TokenId> tokens;  // what the cache holds, in order
  // Scores of a leading part of tokens (the first is unknown), so that a shared beginning need not be scored again.
  std::vector<TokenScore> scores;
  size_t scored_top = 0;  // likeliest tokens kept with each of them
  std::unique_ptr<Running> running;
  uint64_t last_used = 0;
};

class Slots {
 public:
  Slots(size_t n, KvCache& cache) : slots_(n), cache_(cache) {}

  std::span<Slot> all() { return slots_; }
  bool any_free() const;
  size_t n_running() const;
  size_t n_running_of(const std::string& client) const;

  // Whether a prompt that is being read will soon hold much more of this one's beginning than any slot does now.
  bool worth_waiting(const Request& request) const;
  // The free slot where the request starts, made to hold as much of its prompt as any slot has. There must be a free one.
  Slot& prepare(const Request& request);
  void forget(Slot& slot);

 private:
  SequenceId id(const Slot& slot) const { return static_cast<SequenceId>(&slot - slots_.data()); }
  size_t usable(const Slot& slot, const Request& request) const;
  const Slot* most_in_common(const Request& request, size_t& common) const;

  std::vector<Slot> slots_;
  KvCache& cache_;
  uint64_t clock_ = 0;
};

}  // namespace kpd::llm
