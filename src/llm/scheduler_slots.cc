#include "llm/scheduler_slots.h"

#include <algorithm>

namespace kpd::llm {
namespace {

constexpr size_t kGain = 32;  // tokens that are worth some trouble

size_t common_prefix(std::span<const text::TokenId> a, std::span<const text::TokenId> b) {
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

size_t Slots::n_kept() const {
  return static_cast<size_t>(std::count_if(kept_.begin(), kept_.end(), [](const Held& k) { return !k.tokens.empty(); }));
}

// The last token of a prompt is always computed: its logits are what the request is about. Where the prompt is scored, so is
// the row before the first token whose score is not known.
size_t Slots::usable(const Held& held, const Request& request) const {
  const size_t common = common_prefix(held.tokens, request.prompt);
  size_t n = std::min(common, request.prompt.size() - 1);
  if (request.score_prompt) {
    const bool enough = held.scored_top >= request.top_logprobs.value_or(0);
    n = std::min(n, enough ? std::max<size_t>(std::min(common, held.scores.size()), 1) - 1 : 0);
  }
  return n == 0 ? 0 : cache_.reusable(held.id, n);
}

// The slot that `held` is, or null.
const Slot* Slots::slot_of(const Held* held) const {
  const auto it = std::find_if(slots_.begin(), slots_.end(), [&](const Slot& slot) { return &slot == held; });
  return it == slots_.end() ? nullptr : &*it;
}

Held* Slots::most_in_common(const Request& request, size_t& common) {
  Held* best = nullptr;
  bool best_runs = false;
  common = 0;
  const auto consider = [&](Held& held, bool runs) {
    const size_t n = usable(held, request);
    // Of equals a free slot, which need not be copied.
    if (n > common || (best != nullptr && n == common && best_runs && !runs)) {
      best = &held;
      best_runs = runs;
      common = n;
    }
  };
  for (Slot& slot : slots_) consider(slot, slot.running != nullptr);
  for (Held& held : kept_) consider(held, false);
  return best;
}

bool Slots::worth_waiting(const Request& request) {
  size_t common = 0;
  most_in_common(request, common);
  return std::any_of(slots_.begin(), slots_.end(), [&](const Slot& slot) {
    if (slot.running == nullptr || slot.tokens.size() >= slot.running->request.prompt.size()) return false;
    const Request& other = slot.running->request;
    if (request.score_prompt && (!other.score_prompt || other.top_logprobs.value_or(0) < request.top_logprobs.value_or(0)))
      return false;
    const size_t n = std::min(common_prefix(other.prompt, request.prompt), request.prompt.size() - 1);
    return n > common + kGain && cache_.reusable(slot.id, n) > common + kGain;
  });
}

Slot& Slots::prepare(const Request& request) {
  size_t common = 0;
  Held* best = most_in_common(request, common);
  Slot* target = nullptr;
  for (Slot& slot : slots_) {
    if (slot.running == nullptr && (target == nullptr || slot.last_used < target->last_used)) target = &slot;
  }
  // A free slot that loses little of what it holds is taken itself; from any other sequence a copy is made, which costs no
  // memory until they differ, in place of what was not used for longest.
  const Slot* best_slot = slot_of(best);
  if (best_slot != nullptr && best_slot->running == nullptr && common * 2 >= best->tokens.size())
    target = &slots_[best_slot->id];
  // Of a kept sequence the slot may get all that is worth keeping: then it leaves room for what the slot held.
  const bool moves = best != nullptr && best_slot == nullptr && best->tokens.size() <= common + kGain;
  if (moves) kept_bytes_ -= cache_.bytes_for(best->tokens.size());
  keep(*target, target == best ? common : 0, best, best_slot == nullptr && !moves ? best : nullptr);
  if (best == nullptr) {
    forget(*target);
  } else {
    if (target == best) {
      common = cache_.crop(target->id, common).length;
    } else {
      common = cache_.fork(best->id, target->id, common).length;
      target->tokens = best->tokens;
      target->scores = best->scores;
      target->scored_top = best->scored_top;
      if (best_slot == nullptr) best->last_used = ++clock_;
    }
    target->tokens.resize(common);
    target->scores.resize(std::min(target->scores.size(), common + (request.score_prompt ? 1 : 0)));
    if (moves) release(*best);
  }
  target->last_used = ++clock_;
  return *target;
}

// Keeps what the slot holds, of which the first n_stay tokens stay where they are, before something else takes its place; for
// that the sequence `in_use` is still needed, and `stays` beyond it. Scored prompts are not kept: nobody goes on from them.
void Slots::keep(const Slot& slot, size_t n_stay, const Held* in_use, const Held* stays) {
  const size_t n = slot.tokens.size();
  if (n <= n_stay + kGain || !slot.scores.empty() || held_elsewhere(slot)) return;
  const uint64_t bytes = cache_.bytes_for(n), fixed = stays == nullptr ? 0 : cache_.bytes_for(stays->tokens.size());
  if (fixed > most_kept_bytes_ || bytes > most_kept_bytes_ - fixed) return;
  while (bytes > most_kept_bytes_ - kept_bytes_) {  // the least recently used goes first
    Held* oldest = nullptr;
    for (Held& k : kept_) {
      if (!k.tokens.empty() && &k != in_use && (oldest == nullptr || k.last_used < oldest->last_used)) oldest = &k;
    }
    kept_bytes_ -= cache_.bytes_for(oldest->tokens.size());
    release(*oldest);
  }
  auto place = std::find_if(kept_.begin(), kept_.end(), [](const Held& k) { return k.tokens.empty(); });
  if (place == kept_.end()) {
    kept_.emplace_back();
    kept_.back().id = static_cast<SequenceId>(slots_.size() + kept_.size() - 1);
    place = kept_.end() - 1;
  }
  cache_.fork(slot.id, place->id, n);
  place->tokens = slot.tokens;
  place->last_used = slot.last_used;
  kept_bytes_ += bytes;
}

// Whether another sequence goes on from all that matters of what the slot holds; it counts as used then.
bool Slots::held_elsewhere(const Slot& slot) {
  const auto goes_on = [&](Held& held) {
    if (&held == &slot || common_prefix(held.tokens, slot.tokens) + kGain < slot.tokens.size()) return false;
    held.last_used = std::max(held.last_used, slot.last_used);
    return true;
  };
  return std::any_of(slots_.begin(), slots_.end(), goes_on) || std::any_of(kept_.begin(), kept_.end(), goes_on);
}

void Slots::release(Held& kept) {
  cache_.crop(kept.id, 0);
  kept.tokens.clear();
}

void Slots::forget_idle() {
  for (Slot& slot : slots_) {
    if (slot.running == nullptr) forget(slot);
  }
  for (Held& held : kept_) release(held);
  kept_bytes_ = 0;
}

void Slots::forget(Slot& slot) {
  cache_.crop(slot.id, 0);
  slot.tokens.clear();
  slot.scores.clear();
  slot.scored_top = 0;
}

}  // namespace kpd::llm
