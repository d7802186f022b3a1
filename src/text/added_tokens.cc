// text: the search for added tokens.
#include "text/added_tokens.h"

#include <algorithm>

#include "kpd/base/error.h"
#include "text/unicode.h"

namespace kpd::text {
namespace {

// A search takes as many steps a byte as the longest token has bytes.
constexpr size_t kMaxNodes = 1 << 22, kMaxTokenBytes = 1 << 14;

bool is_word_char(std::string_view text, size_t at) { return char_class(char_at(text, at).code) & kWordChar; }
bool is_space(std::string_view text, size_t at) { return char_class(char_at(text, at).code) & kSpace; }

size_t without_spaces_before(std::string_view text, size_t at) {
  while (at > 0) {
    const size_t before = char_before(text, at);
    if (!is_space(text, before)) break;
    at = before;
  }
  return at;
}

size_t without_spaces_after(std::string_view text, size_t at) {
  while (at < text.size() && is_space(text, at)) at += char_at(text, at).bytes;
  return at;
}

}  // namespace

const uint32_t* TokenTrie::child(const Node& node, unsigned char byte) const {
  for (const auto& [b, index] : node.children) {
    if (b == byte) return &index;
  }
  return nullptr;
}

void TokenTrie::add(std::string_view text, const AddedToken* token) {
  if (text.empty()) return;
  if (text.size() > kMaxTokenBytes) {
    fail(ErrorCode::kLimitExceeded, "an added token of ", text.size(), " bytes, the limit is ", kMaxTokenBytes);
  }
  if (nodes_.empty()) nodes_.emplace_back();
  starts_[static_cast<unsigned char>(text[0])] = true;
  uint32_t at = 0;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (const uint32_t* next = child(nodes_[at], byte)) {
      at = *next;
      continue;
    }
    if (nodes_.size() == kMaxNodes) {
      fail(ErrorCode::kLimitExceeded, "added tokens of more than ", kMaxNodes, " bytes in all");
    }
    const auto fresh = static_cast<uint32_t>(nodes_.size());
    nodes_[at].children.emplace_back(byte, fresh);
    nodes_.emplace_back();
    at = fresh;
  }
  if (!nodes_[at].token) nodes_[at].token = token;
}

const AddedToken* TokenTrie::longest(std::string_view text, size_t at, size_t* end) const {
  const AddedToken* found = nullptr;
  if (nodes_.empty() || !starts_[static_cast<unsigned char>(text[at])]) return nullptr;
  const Node* node = nodes_.data();
  for (size_t i = at; i < text.size(); ++i) {
    const uint32_t* next = child(*node, static_cast<unsigned char>(text[i]));
    if (!next) break;
    node = &nodes_[*next];
    if (node->token) {
      found = node->token;
      *end = i + 1;
    }
  }
  return found;
}

void AddedTokens::set(std::vector<AddedToken> tokens, const std::vector<std::string>& searched) {
  tokens_ = std::move(tokens);
  for (size_t i = 0; i < tokens_.size(); ++i) {
    (tokens_[i].normalized ? normalized_ : plain_).add(searched[i], &tokens_[i]);
    if (tokens_[i].special) special_.insert(tokens_[i].id);
    normalized_special_ |= tokens_[i].special && tokens_[i].normalized;
  }
}

const AddedToken* AddedTokens::allowed(const TokenTrie& trie, std::string_view text, size_t at, size_t* end,
                                       std::span<const TextRange> foreign) {
  *end = at + 1;
  const AddedToken* token = trie.longest(text, at, end);
  if (!token || !token->special) return token;
  const auto range =
      std::upper_bound(foreign.begin(), foreign.end(), at, [](size_t a, const TextRange& r) { return a < r.end; });
  if (range == foreign.end() || *end <= range->begin) return token;
  if (at < range->begin) {
    // It would reach into the foreign bytes; a shorter one may end before them.
    *end = at + 1;
    return trie.longest(text.substr(0, range->begin), at, end);
  }
  if (*end > range->end) *end = at + 1;
  return nullptr;
}

std::vector<TextPart> AddedTokens::cut(std::string_view text, bool normalized, bool parse_special,
                                       std::span<const TextRange> foreign) const {
  const TokenTrie& trie = normalized ? normalized_ : plain_;
  std::vector<TextPart> parts;
  size_t done = 0;
  for (size_t at = 0; at < text.size() && !trie.empty();) {
    size_t end = 0;
    const AddedToken* token = allowed(trie, text, at, &end, foreign);
    if (!token) {
      at = end;
      continue;
    }
    size_t begin = at;
    at = end;
    if (token->special && !parse_special) continue;
    if (token->single_word &&
        ((begin > 0 && is_word_char(text, char_before(text, begin))) || (end < text.size() && is_word_char(text, end)))) {
      continue;
    }
    if (token->left_strip) begin = std::max(without_spaces_before(text, begin), done);
    if (token->right_strip) end = without_spaces_after(text, end);
    if (begin >= end) continue;  // spaces that the token before it took
    if (done < begin) parts.push_back({-1, done, begin});
    parts.push_back({token->id, begin, end});
    done = end;
  }
  if (done < text.size()) parts.push_back({-1, done, text.size()});
  return parts;
}

}  // namespace kpd::text
