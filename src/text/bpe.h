// text: byte-pair encoding of one word. Which pairs merge, in which order, is Hugging Face's: by rank, then by position, and
// by the merge table alone (a pair whose merged spelling is in the vocabulary but not in the table does not merge).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "kpd/text/tokenizer.h"

namespace kpd::text {

struct Merge {
  uint32_t rank;
  TokenId merged;
};

// Pairs of ids to merges; open addressing, since encoding is little else than look-ups here.
class MergeTable {
 public:
  void reserve(size_t count);
  // The last one of equal pairs counts.
  void insert(TokenId left, TokenId right, Merge merge);
  const Merge* find(TokenId left, TokenId right) const;
  struct Entry {
    TokenId left, right;
    Merge merge;
  };
  std::vector<Entry> entries() const;  // in no order
  size_t size() const { return size_; }

 private:
  struct Slot {
    uint64_t key = UINT64_MAX;
    Merge merge{};
  };
  size_t slot_of(uint64_t key) const;

  std::vector<Slot> slots_;
  size_t size_ = 0;
};

struct BpeModel {
  std::vector<std::string> tokens;                    // by id; empty where there is a gap
  std::unordered_map<std::string_view, TokenId> ids;  // the views are of `tokens`
  MergeTable merges;
  std::optional<TokenId> unknown;  // what a character outside the vocabulary becomes; dropped if none
  bool fuse_unknown = false;
  bool byte_fallback = false;  // such a character becomes the tokens <0x00> ... of its bytes
  bool ignore_merges = false;  // a word that is a token is that token
  TokenId byte_tokens[256];    // -1 where there is none

  // Fills ids and byte_tokens; `tokens` must not change afterwards.
  void index();
  std::optional<TokenId> find(std::string_view token) const;
};

// Encodes words one after another; remembers the short ones. Not thread-safe: one a call.
class BpeEncoder {
 public:
  explicit BpeEncoder(const BpeModel& model) : model_(model) {}
  // Appends the ids of a word, valid UTF-8.
  void encode(std::string_view word, std::vector<TokenId>& out);

 private:
  struct Symbol {
    TokenId id;
    int32_t previous, next;  // -1 at the ends
    bool removed;
  };
  struct Candidate {
    uint32_t rank;
    int32_t at;
    TokenId merged;
    bool operator>(const Candidate& o) const { return rank != o.rank ? rank > o.rank : at > o.at; }
  };

  void split(std::string_view word);
  void add_symbol(TokenId id);
  void add_candidate(int32_t left, int32_t right);
  void merge();

  const BpeModel& model_;
  std::vector<Symbol> symbols_;
  std::vector<Candidate> heap_;
  std::unordered_map<std::string, std::vector<TokenId>> known_;
};

}  // namespace kpd::text
