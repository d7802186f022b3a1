// tests: a slow model of a cache of keys and values. It shares no code with the cache: tokens are plain lists of stored values,
// element types are rounded by their definition, attention is written down in double, saved files are put together byte by byte
// from docs/format/kv_cache.md, and blocks are counted as objects that sequences share.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "cache/model_rows.h"

namespace kpd::testing {

struct ModelLayer {
  std::string spec;
  size_t n_heads = 0, n_kv_heads = 0, key_width = 0, value_width = 0;  // n_heads of queries
  float scale = 1, softcap = 0;
  size_t window = 0;
};

// What a step brings to one sequence: of each layer q [n, n_heads, key_width], k [n, n_kv_heads, key_width] and v [n,
// n_kv_heads, value_width].
struct NewTokens {
  uint32_t sequence = 0;
  std::vector<int32_t> positions;
  std::vector<std::vector<float>> q, k, v;
};

class CacheModel {
 public:
  static constexpr size_t kBlock = 64;
  struct Token {
    int32_t position = 0;
    std::vector<std::vector<uint8_t>> key_bytes, value_bytes;  // of each layer, head after head, as stored
    std::vector<std::vector<double>> keys, values;             // and what that stands for
  };
  using Tokens = std::vector<std::shared_ptr<const Token>>;
  using Plan = std::array<uint64_t, 2>;
  struct Saved {
    std::vector<uint8_t> bytes;
    Tokens tokens;
    Plan plan{};
  };

  CacheModel(std::vector<ModelLayer> layers, size_t capacity) : layers_(std::move(layers)), n_blocks_(blocks_for(capacity)) {
    for (const ModelLayer& l : layers_) {
      key_coders_.emplace_back(l.spec, l.key_width, true);
      value_coders_.emplace_back(l.spec, l.value_width, false);
    }
  }

  size_t length(uint32_t id) const {
    const auto it = sequences_.find(id);
    return it == sequences_.end() ? 0 : it->second.tokens.size();
  }
  int32_t next_position(uint32_t id) const { return length(id) == 0 ? 0 : sequences_.at(id).tokens.back()->position + 1; }
  Plan plan(uint32_t id) const {
    const auto it = sequences_.find(id);
    return it == sequences_.end() ? Plan{} : it->second.plan;
  }
  // False if it holds tokens of another plan.
  bool set_plan(uint32_t id, const Plan& plan) {
    if (length(id) > 0 && sequences_[id].plan != plan) return false;
    sequences_[id].plan = plan;
    return true;
  }
  size_t most_blocks_used() const { return most_used_; }
  size_t blocks_left() const { return n_blocks_ - n_used(sequences_); }
  size_t n_copied() const { return n_copied_; }
  bool tail_is_shared(uint32_t id) const {
    const auto it = sequences_.find(id);
    return it != sequences_.end() && it->second.tokens.size() % kBlock != 0 && it->second.blocks.back().use_count() > 1;
  }

  // Blocks for a step, or false if there are too few: then nothing has changed. What was copied stays if the step is forgotten.
  bool append(std::span<const NewTokens> batch, bool forgotten) {
    auto after = sequences_;
    size_t n_copied = 0;
    for (const NewTokens& part : batch) {
      Sequence& s = after[part.sequence];
      // Three holders are two here and one in sequences_; the count below is of `after` alone.
      if (!part.positions.empty() && s.tokens.size() % kBlock != 0 && holders(after, s.blocks.back()) > 1) {
        s.blocks.back() = std::make_shared<int>();
        ++n_copied;
      }
      s.blocks.resize(blocks_for(s.tokens.size() + part.positions.size()));
      for (auto& block : s.blocks) {
        if (block == nullptr) block = std::make_shared<int>();
      }
    }
    if (n_used(after) > n_blocks_) return false;
    most_used_ = std::max(most_used_, n_used(after));
    n_copied_ += n_copied;
    sequences_ = std::move(after);
    for (const NewTokens& part : batch) {
      Sequence& s = sequences_[part.sequence];
      if (forgotten) {
        s.blocks.resize(blocks_for(s.tokens.size()));
        continue;
      }
      for (size_t i = 0; i < part.positions.size(); ++i) s.tokens.push_back(std::make_shared<Token>(stored(part, i)));
    }
    forget_empty();
    return true;
  }

  void crop(uint32_t id, size_t n) {
    const auto it = sequences_.find(id);
    if (it == sequences_.end()) return;
    it->second.tokens.resize(std::min(n, it->second.tokens.size()));
    it->second.blocks.resize(blocks_for(it->second.tokens.size()));
    if (n == 0) sequences_.erase(it);
    forget_empty();
  }

  void fork(uint32_t from, uint32_t to, size_t n) {
    if (from == to) return;
    sequences_[to] = {};
    if (n > 0) sequences_[to] = sequences_.at(from);
    crop(to, n);
  }

  // turn(layer, keys of one head, by) moves keys; false for want of blocks, and nothing has changed.
  template <class Turn>
  bool evict(uint32_t id, size_t first, size_t n, const Turn& turn) {
    if (n == 0) return true;
    Sequence& s = sequences_.at(id);
    const size_t left = s.tokens.size() - n;
    std::vector<size_t> shared;
    for (size_t b = first / kBlock; first < left && b < blocks_for(left); ++b) {
      if (s.blocks[b].use_count() > 1) shared.push_back(b);
    }
    if (shared.size() > blocks_left()) return false;
    for (const size_t b : shared) s.blocks[b] = std::make_shared<int>();
    n_copied_ += shared.size();
    most_used_ = std::max(most_used_, n_used(sequences_));
    if (first < left) {
      const int32_t by = (first == 0 ? 0 : s.tokens[first - 1]->position + 1) - s.tokens[first + n]->position;
      s.tokens.erase(s.tokens.begin() + static_cast<std::ptrdiff_t>(first),
                     s.tokens.begin() + static_cast<std::ptrdiff_t>(first + n));
      for (size_t t = first; t < left; ++t) {
        Token moved = *s.tokens[t];
        moved.position += by;
        for (size_t layer = 0; layer < layers_.size(); ++layer) {
          const size_t width = layers_[layer].key_width;
          std::vector<float> keys = decoded(key_coders_[layer], moved.key_bytes[layer], layers_[layer].n_kv_heads);
          for (size_t at = 0; at < keys.size(); at += width) turn(layer, std::span(keys).subspan(at, width), by);
          store(key_coders_[layer], keys, width, moved.key_bytes[layer], moved.keys[layer]);
        }
        s.tokens[t] = std::make_shared<Token>(std::move(moved));
      }
    }
    crop(id, left);
    return true;
  }

  // Attention of the query q [n_heads, key_width] of token `token`, over itself and what stands before it.
  std::vector<double> attend(uint32_t id, size_t layer, size_t token, std::span<const float> q) const {
    const Tokens& tokens = sequences_.at(id).tokens;
    const ModelLayer& l = layers_[layer];
    std::vector<double> out;
    for (size_t h = 0; h < l.n_heads; ++h) {
      const size_t head = h / (l.n_heads / l.n_kv_heads), key = head * l.key_width, value = head * l.value_width;
      double total = 0;
      std::vector<double> sum(l.value_width, 0);
      for (size_t t = 0; t <= token; ++t) {
        if (hidden(l, tokens[token]->position, tokens[t]->position)) continue;
        double score = 0;
        for (size_t d = 0; d < l.key_width; ++d)
          score += static_cast<double>(q[h * l.key_width + d]) * tokens[t]->keys[layer][key + d];
        score *= static_cast<double>(l.scale);
        if (l.softcap > 0) score = static_cast<double>(l.softcap) * std::tanh(score / static_cast<double>(l.softcap));
        const double weight = std::exp(score);
        total += weight;
        for (size_t d = 0; d < l.value_width; ++d) sum[d] += weight * tokens[t]->values[layer][value + d];
      }
      for (const double v : sum) out.push_back(v / total);
    }
    return out;
  }
  // Whether the window of some layer hides a token from the last one.
  bool window_hides(uint32_t id) const {
    const Tokens& tokens = sequences_.at(id).tokens;
    return std::any_of(layers_.begin(), layers_.end(),
                       [&](const ModelLayer& l) { return hidden(l, tokens.back()->position, tokens.front()->position); });
  }

  Saved saved(uint32_t id, const std::string& fingerprint) const {
    Saved saved;
    const auto it = sequences_.find(id);
    if (it != sequences_.end()) saved.tokens = it->second.tokens;
    saved.plan = plan(id);
    std::vector<uint8_t>& out = saved.bytes;
    put_text(out, "KPDKV002");
    put_number(out, fingerprint.size(), 1);
    put_text(out, fingerprint);
    put_number(out, layers_.size(), 4);
    for (const ModelLayer& l : layers_) {
      for (const size_t n : {l.n_kv_heads, l.key_width, l.value_width}) put_number(out, n, 4);
      put_number(out, l.spec.size(), 2);
      put_text(out, l.spec);
    }
    for (const uint64_t word : saved.plan) put_number(out, word, 8);
    put_number(out, 1, 1);  // exact
    put_number(out, saved.tokens.size(), 4);
    for (const auto& t : saved.tokens) put_number(out, static_cast<uint32_t>(t->position), 4);
    // Of each layer's blocks: open parts, none sealed.
    for (size_t i = 0; i < layers_.size() * blocks_for(saved.tokens.size()); ++i) put_number(out, 1, 1);
    for (size_t layer = 0; layer < layers_.size(); ++layer) {
      for (size_t head = 0; head < layers_[layer].n_kv_heads; ++head) put_head(out, layer, head, saved.tokens);
    }
    put_number(out, crc32(out), 4);
    return saved;
  }
  // A saved sequence takes the place of another; false for want of blocks: then nothing has changed.
  bool load(uint32_t id, const Saved& saved) {
    const size_t n = blocks_for(saved.tokens.size());
    auto without = sequences_;
    without.erase(id);
    if (n_used(without) + n > n_blocks_) return false;
    crop(id, 0);
    Sequence& s = sequences_[id];
    s.tokens = saved.tokens;
    s.plan = saved.plan;
    for (size_t b = 0; b < n; ++b) s.blocks.push_back(std::make_shared<int>());
    most_used_ = std::max(most_used_, n_used(sequences_));
    forget_empty();
    return true;
  }

 private:
  struct Sequence {
    Tokens tokens;
    std::vector<std::shared_ptr<int>> blocks;
    Plan plan{};
  };
  using Sequences = std::map<uint32_t, Sequence>;
  static size_t blocks_for(size_t tokens) { return (tokens + kBlock - 1) / kBlock; }
  static bool hidden(const ModelLayer& l, int32_t query, int32_t key) {
    return l.window > 0 && static_cast<int64_t>(query) - key >= static_cast<int64_t>(l.window);
  }
  static size_t n_used(const Sequences& sequences) {
    std::set<const int*> blocks;
    for (const auto& [id, s] : sequences) {
      for (const auto& block : s.blocks) blocks.insert(block.get());
    }
    return blocks.size();
  }
  static size_t holders(const Sequences& sequences, const std::shared_ptr<int>& block) {
    size_t n = 0;
    for (const auto& [id, s] : sequences) n += static_cast<size_t>(std::count(s.blocks.begin(), s.blocks.end(), block));
    return n;
  }
  void forget_empty() {
    std::erase_if(sequences_, [](const auto& entry) { return entry.second.tokens.empty() && entry.second.plan == Plan{}; });
  }

  // Rows [heads, width] as bytes, and what these stand for.
  static void store(const RowCoder& coder, std::span<const float> rows, size_t width, std::vector<uint8_t>& bytes,
                    std::vector<double>& values) {
    bytes.clear();
    values.clear();
    for (size_t at = 0; at < rows.size(); at += width) {
      const std::vector<uint8_t> row = coder.encode(rows.subspan(at, width));
      const std::vector<double> exact = coder.exact(row);
      bytes.insert(bytes.end(), row.begin(), row.end());
      values.insert(values.end(), exact.begin(), exact.end());
    }
  }
  static std::vector<float> decoded(const RowCoder& coder, std::span<const uint8_t> bytes, size_t n_heads) {
    std::vector<float> rows;
    const size_t n = bytes.size() / n_heads;
    for (size_t at = 0; at < bytes.size(); at += n) {
      const std::vector<float> row = coder.decode(bytes.subspan(at, n));
      rows.insert(rows.end(), row.begin(), row.end());
    }
    return rows;
  }

  Token stored(const NewTokens& part, size_t i) const {
    Token t{part.positions[i], {}, {}, {}, {}};
    for (size_t layer = 0; layer < layers_.size(); ++layer) {
      const ModelLayer& l = layers_[layer];
      const size_t n_keys = l.n_kv_heads * l.key_width, n_values = l.n_kv_heads * l.value_width;
      store(key_coders_[layer], std::span(part.k[layer]).subspan(i * n_keys, n_keys), l.key_width, t.key_bytes.emplace_back(),
            t.keys.emplace_back());
      store(value_coders_[layer], std::span(part.v[layer]).subspan(i * n_values, n_values), l.value_width,
            t.value_bytes.emplace_back(), t.values.emplace_back());
    }
    return t;
  }

  static void put_text(std::vector<uint8_t>& out, const std::string& text) { out.insert(out.end(), text.begin(), text.end()); }
  static void put_number(std::vector<uint8_t>& out, uint64_t v, size_t bytes) {
    for (size_t i = 0; i < bytes; ++i) out.push_back(static_cast<uint8_t>(v >> (8 * i)));
  }
  // A head's parts: block by block its keys, then its values.
  void put_head(std::vector<uint8_t>& out, size_t layer, size_t head, const Tokens& tokens) const {
    const auto put = [&](const std::vector<uint8_t>& heads) {
      const auto n = static_cast<std::ptrdiff_t>(heads.size() / layers_[layer].n_kv_heads);
      const auto at = heads.begin() + static_cast<std::ptrdiff_t>(head) * n;
      out.insert(out.end(), at, at + n);
    };
    for (size_t first = 0; first < tokens.size(); first += kBlock) {
      const size_t end = std::min(first + kBlock, tokens.size());
      for (size_t t = first; t < end; ++t) put(tokens[t]->key_bytes[layer]);
      for (size_t t = first; t < end; ++t) put(tokens[t]->value_bytes[layer]);
    }
  }
  static uint32_t crc32(const std::vector<uint8_t>& bytes) {
    std::array<uint32_t, 256> table{};
    for (uint32_t i = 0; i < 256; ++i) {
      table[i] = i;
      for (int bit = 0; bit < 8; ++bit) table[i] = (table[i] >> 1) ^ ((table[i] & 1) != 0 ? 0xEDB88320u : 0u);
    }
    uint32_t crc = ~0u;
    for (const uint8_t b : bytes) crc = (crc >> 8) ^ table[(crc ^ b) & 0xFF];
    return ~crc;
  }

  std::vector<ModelLayer> layers_;
  std::vector<RowCoder> key_coders_, value_coders_;  // of each layer
  size_t n_blocks_, most_used_ = 0, n_copied_ = 0;
  Sequences sequences_;
};

}  // namespace kpd::testing
