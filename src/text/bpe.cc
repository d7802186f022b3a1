// text: byte-pair encoding of one word, n log n in its length: a linked list of symbols and a heap of the pairs that may merge.
#include "text/bpe.h"

#include <algorithm>
#include <bit>
#include <functional>

#include "kpd/base/error.h"
#include "text/unicode.h"

namespace kpd::text {
namespace {

constexpr size_t kKnownWordBytes = 48, kKnownWords = 1 << 16;

uint64_t key_of(TokenId left, TokenId right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

uint64_t mix(uint64_t v) {
  v = (v ^ v >> 32) * 0x9E3779B97F4A7C15u;
  return v ^ v >> 29;
}

}  // namespace

void MergeTable::reserve(size_t count) {
  slots_.assign(std::bit_ceil(std::max<size_t>(16, count * 2)), Slot{});
  size_ = 0;
}

size_t MergeTable::slot_of(uint64_t key) const {
  const size_t mask = slots_.size() - 1;
  size_t i = mix(key) & mask;
  while (slots_[i].key != key && slots_[i].key != UINT64_MAX) i = (i + 1) & mask;
  return i;
}

void MergeTable::insert(TokenId left, TokenId right, Merge merge) {
  if ((size_ + 1) * 2 > slots_.size()) {
    const std::vector<Slot> old = std::move(slots_);
    reserve(std::max<size_t>(16, old.size()));
    for (const Slot& slot : old) {
      if (slot.key == UINT64_MAX) continue;
      slots_[slot_of(slot.key)] = slot;
      ++size_;
    }
  }
  const uint64_t key = key_of(left, right);
  Slot& slot = slots_[slot_of(key)];
  if (slot.key == UINT64_MAX) ++size_;
  slot = {key, merge};
}

const Merge* MergeTable::find(TokenId left, TokenId right) const {
  if (slots_.empty()) return nullptr;
  const uint64_t key = key_of(left, right);
  const Slot& slot = slots_[slot_of(key)];
  return slot.key == key ? &slot.merge : nullptr;
}

std::vector<MergeTable::Entry> MergeTable::entries() const {
  std::vector<Entry> out;
  for (const Slot& slot : slots_) {
    if (slot.key == UINT64_MAX) continue;
    out.push_back({static_cast<TokenId>(slot.key >> 32), static_cast<TokenId>(slot.key & 0xFFFFFFFFu), slot.merge});
  }
  return out;
}

void BpeModel::index() {
  ids.reserve(tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (!tokens[i].empty()) ids.emplace(tokens[i], static_cast<TokenId>(i));
  }
  for (int b = 0; b < 256; ++b) {
    constexpr char kHex[] = "0123456789ABCDEF";
    const char name[] = {'<', '0', 'x', kHex[b >> 4], kHex[b & 15], '>'};
    byte_tokens[b] = find({name, sizeof name}).value_or(-1);
  }
}

std::optional<TokenId> BpeModel::find(std::string_view token) const {
  const auto at = ids.find(token);
  if (at == ids.end()) return std::nullopt;
  return at->second;
}

void BpeEncoder::add_symbol(TokenId id) {
  const auto at = static_cast<int32_t>(symbols_.size());
  if (at > 0) symbols_.back().next = at;
  symbols_.push_back({id, at - 1, -1, false});
}

// One symbol a character, or what stands for it.
void BpeEncoder::split(std::string_view word) {
  symbols_.clear();
  bool pending = false;  // an unknown character not yet written: its neighbours may join it
  for (size_t at = 0; at < word.size();) {
    const size_t bytes = char_at(word, at).bytes;
    const std::string_view c = word.substr(at, bytes);
    at += bytes;
    const auto found = model_.ids.find(c);
    if (found != model_.ids.end()) {
      if (pending) add_symbol(*model_.unknown);
      pending = false;
      add_symbol(found->second);
      continue;
    }
    if (model_.byte_fallback &&
        std::all_of(c.begin(), c.end(), [&](char b) { return model_.byte_tokens[static_cast<unsigned char>(b)] >= 0; })) {
      // A pending unknown stays pending: Hugging Face writes it after the bytes.
      for (const char b : c) add_symbol(model_.byte_tokens[static_cast<unsigned char>(b)]);
      continue;
    }
    if (!model_.unknown) continue;
    if (pending && !model_.fuse_unknown) add_symbol(*model_.unknown);
    pending = true;
  }
  if (pending) add_symbol(*model_.unknown);
}

void BpeEncoder::add_candidate(int32_t left, int32_t right) {
  if (left < 0 || right < 0) return;
  const auto l = static_cast<size_t>(left), r = static_cast<size_t>(right);
  const Merge* merge = model_.merges.find(symbols_[l].id, symbols_[r].id);
  if (!merge) return;
  heap_.push_back({merge->rank, left, merge->merged});
  std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
}

void BpeEncoder::merge() {
  heap_.clear();
  for (size_t i = 1; i < symbols_.size(); ++i) {
    const Merge* first = model_.merges.find(symbols_[i - 1].id, symbols_[i].id);
    if (first) heap_.push_back({first->rank, static_cast<int32_t>(i) - 1, first->merged});
  }
  std::make_heap(heap_.begin(), heap_.end(), std::greater<>());
  while (!heap_.empty()) {
    const Candidate top = heap_.front();
    std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
    heap_.pop_back();
    Symbol& left = symbols_[static_cast<size_t>(top.at)];
    if (left.removed || left.next < 0) continue;
    Symbol& right = symbols_[static_cast<size_t>(left.next)];
    // A candidate is stale if its symbols have changed; compared as Hugging Face does, by what they would give now.
    const Merge* now = model_.merges.find(left.id, right.id);
    if (!now || now->merged != top.merged) continue;
    left.id = top.merged;
    left.next = right.next;
    right.removed = true;
    if (left.next >= 0) symbols_[static_cast<size_t>(left.next)].previous = top.at;
    add_candidate(left.previous, top.at);
    add_candidate(top.at, left.next);
  }
}

void BpeEncoder::encode(std::string_view word, std::vector<TokenId>& out) {
  if (word.empty()) return;
  if (model_.ignore_merges) {
    if (const auto id = model_.find(word)) {
      out.push_back(*id);
      return;
    }
  }
  if (word.size() > size_t{INT32_MAX}) {
    fail(ErrorCode::kLimitExceeded, "a word of ", word.size(), " bytes to be encoded, the limit is ", INT32_MAX);
  }
  const bool short_word = word.size() <= kKnownWordBytes;
  if (short_word) {
    const auto known = known_.find(std::string(word));
    if (known != known_.end()) {
      out.insert(out.end(), known->second.begin(), known->second.end());
      return;
    }
  }
  split(word);
  merge();
  const size_t first = out.size();
  for (const Symbol& symbol : symbols_) {
    if (!symbol.removed) out.push_back(symbol.id);
  }
  if (short_word && known_.size() < kKnownWords) {
    known_.emplace(word, std::vector<TokenId>(out.begin() + static_cast<ptrdiff_t>(first), out.end()));
  }
}

}  // namespace kpd::text
