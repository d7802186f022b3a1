// text: tokens that are found in the text as they are spelled, before or after it is normalized, and never cut.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "kpd/text/tokenizer.h"

namespace kpd::text {

struct AddedToken {
  std::string text{};
  TokenId id = 0;
  bool special = false;
  bool single_word = false;                      // only where no word goes on at either side
  bool left_strip = false, right_strip = false;  // takes the spaces beside it
  bool normalized = false;                       // searched for in the normalized text
};

// A piece of a text: a token, or bytes to be encoded (id -1).
struct TextPart {
  TokenId id;
  size_t begin, end;
};

// A trie over the spellings of tokens; the longest one at the leftmost place wins. Immutable after the last add().
class TokenTrie {
 public:
  // Of two equal spellings the first counts. Throws Error(kLimitExceeded) if all of them are too long together.
  void add(std::string_view text, const AddedToken* token);
  // The longest token at text[at], or null; *end is where it ends.
  const AddedToken* longest(std::string_view text, size_t at, size_t* end) const;
  bool empty() const { return nodes_.empty(); }

 private:
  struct Node {
    const AddedToken* token = nullptr;
    // Children are few everywhere but at the root.
    std::vector<std::pair<unsigned char, uint32_t>> children;
  };
  const uint32_t* child(const Node& node, unsigned char byte) const;

  std::vector<Node> nodes_;
  bool starts_[256] = {};
};

class AddedTokens {
 public:
  AddedTokens() = default;
  AddedTokens(const AddedTokens&) = delete;
  AddedTokens& operator=(const AddedTokens&) = delete;

  // `searched` is the spelling to look for: the token's text, normalized if it is searched for in the normalized text. All
  // specials are to be added before all others: that order decides between equal spellings.
  void set(std::vector<AddedToken> tokens, const std::vector<std::string>& searched);
  const std::vector<AddedToken>& tokens() const { return tokens_; }
  bool is_special(TokenId id) const { return special_.contains(id); }

  // Cuts the text into tokens and the rest, in order. Special ones are found in what is not `foreign` alone; one that lies in
  // foreign bytes is text as a whole, one that crosses their edge is as if it were not there.
  std::vector<TextPart> cut(std::string_view text, bool normalized, bool parse_special,
                            std::span<const TextRange> foreign = {}) const;
  bool has_normalized_special() const { return normalized_special_; }

 private:
  std::vector<AddedToken> tokens_;
  // The token at text[at] that such text may hold; null with *end > at + 1: text up to there.
  static const AddedToken* allowed(const TokenTrie& trie, std::string_view text, size_t at, size_t* end,
                                   std::span<const TextRange> foreign);

  TokenTrie plain_, normalized_;
  bool normalized_special_ = false;
  std::unordered_set<TokenId> special_;
};

}  // namespace kpd::text
