#include "llm/scheduler_slots.h"

#include <algorithm>

namespace kpd::llm {
namespace {

size_t common_prefix(std::span<const TokenId> a, std::span<const TokenId> b) {
  const auto ends = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return static_cast<size_t>(ends.first - a.begin());
}

}  // namespace

bool Slots::any_free() const {
  return std::any_of(slots_.begin(), slots_.end(), [](const Slot& s) { return s.running == nullptr; });
}

size_t Slots::n_running() const {
  return static_cast<size_t>(std::count_if(slots_.begin(), slots_.end(), [](const Slot& s) { return s.running != nullptr; }));
}

size_t Slots::n_running_of(const std::string& client) const {
  return static_cast<size_t>(std::count_if(slots_.begin(), slots_.end(), [&](const Slot& s) {
    return s.running != nullptr && s.running->request.client == client;
  }));
}

// The last token of a prompt is always computed: its logits are what the request is about. Where the prompt is scored, so is
// the row before the first token whose score is not known.
size_t Slots::usable(const Slot& slot, const Request& request) const {
  const size_t common = common_prefix(slot.tokens, request.prompt);
  size_t n = std::min(common, request.prompt.size() - 1);
  if (request.score_prompt) {
    const bool enough = slot.scored_top >= request.top_logprobs.value_or(0);
    n = std::min(n, enough ? std::max<size_t>(std::min(common, slot.scores.size()), 1) - 1 : 0);
  }
  return n;
}

const Slot* Slots::most_in_common(const Request& request, size_t& common) const {
  const Slot* best = nullptr;
  common = 0;
  for (const Slot& slot : slots_) {
    const size_t n = usable(slot, request);
    // Of equals a free one, which need not be copied.
    if (n > common || (best != nullptr && n == common && best->running != nullptr && slot.running == nullptr)) {
      best = &slot;
      common = n;
    }
  }
  return best;
}

bool Slots::worth_waiting(const Request& request) const {
  constexpr size_t kGain = 32;
  size_t common = 0;
  most_in_common(request, common);
  return std::any_of(slots_.begin(), slots_.end(), [&](const Slot& slot) {
    if (slot.running == nullptr || slot.tokens.size() >= slot.running->request.prompt.size()) return false;
    const Request& other = slot.running->request;
    if (request.score_prompt && (!other.score_prompt || other.top_logprobs.value_or(0) < request.top_logprobs.value_or(0)))
      return false;
    return std::min(common_prefix(other.prompt, request.prompt), request.prompt.size() - 1) > common + kGain;
  });
}

Slot& Slots::prepare(const Request& request) {
  size_t common = 0;
  const Slot* best = most_in_common(request, common);
  Slot* target = nullptr;
  for (Slot& slot : slots_) {
    if (slot.running == nullptr && (target == nullptr || slot.last_used < target->last_used)) target = &slot;
  }
  // A free slot that loses little of what it holds is taken itself; from any other a copy is made, which costs no memory until
  // they differ, in place of what was not used for longest.
  if (best != nullptr && best->running == nullptr && common * 2 >= best->tokens.size()) target = &slots_[id(*best)];
  if (best == nullptr) {
    forget(*target);
  } else {
    if (target == best) {
      cache_.crop(id(*target), common);
    } else {
      cache_.fork(id(*best), id(*target), common);
      target->tokens = best->tokens;
      target->scores = best->scores;
      target->scored_top = best->scored_top;
    }
    target->tokens.resize(common);
    target->scores.resize(std::min(target->scores.size(), common + (request.score_prompt ? 1 : 0)));
  }
  target->last_used = ++clock_;
  return *target;
}

void Slots::forget(Slot& slot) {
  cache_.crop(id(slot), 0);
  slot.tokens.clear();
  slot.scores.clear();
  slot.scored_top = 0;
}

}  // namespace kpd::llm
