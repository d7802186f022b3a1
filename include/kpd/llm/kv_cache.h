// llm: the cache of keys and values, which also computes attention: no pointer to a stored key or value leaves it, so that a
// method may store them as it likes (kpd's quantized caches stand behind the same interface).
//
// A step: begin(batch) reserves room or throws before any work; attend() once a layer; commit() makes the new tokens part of
// their sequences. Without commit, the next begin() forgets them. Thread-compatible.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kpd::llm {

using SequenceId = uint32_t;

// What the cache must know of each layer.
struct CacheLayer {
  size_t n_kv_heads = 0, head_dim = 0;
  size_t window = 0;  // 0: every token may be asked for again
};

// The new tokens of a batch: per sequence a count and their positions. Rows of q, k, v and out follow in this order.
struct CacheBatch {
  struct Part {
    SequenceId sequence = 0;
    std::span<const int32_t> positions;  // ascending, beyond those in the cache
  };
  std::vector<Part> parts;
  size_t n_rows() const;
};

// What a sequence's keys were made for and no position tells, e.g. the context that chose its rotations. Opaque: the cache
// keeps it with the sequence and never reads it. A sequence of which nothing was said has zeros.
struct Plan {
  std::array<uint64_t, 2> words{};
  friend bool operator==(const Plan&, const Plan&) = default;
};

struct AttendOptions {
  size_t n_heads = 0;  // of q; a multiple of the layer's n_kv_heads
  float scale = 1;
  float softcap = 0;  // 0: none
  size_t window = 0;  // 0: none
};

// Rotates the keys of one head by a number of positions; keys [n, head_dim] in place. `layer` is the cache's index of it. Given
// to the cache by the model.
using Rerotate = void (*)(const void* model, size_t layer, float* keys, size_t n, int32_t by);

class KvCache {
 public:
  virtual ~KvCache() = default;

  // Throws Error(kInvalidArgument) for positions that do not follow, Error(kLimitExceeded) beyond the capacity.
  virtual void begin(const CacheBatch& batch) = 0;
  // `layer` is the index in layers(). q and out [n_rows, n_heads, head_dim], k and v [n_rows, n_kv_heads, head_dim], keys
  // rotated. A token attends to all tokens of its sequence with a position not after its own (and within the window), itself
  // included.
  virtual void attend(size_t layer, const float* q, const float* k, const float* v, float* out,
                      const AttendOptions& options) = 0;
  virtual void commit() = 0;

  virtual Plan plan(SequenceId sequence) const = 0;
  // Before the first token; kept until the sequence is forgotten, and copied by a fork of one token or more. Throws
  // Error(kInvalidArgument) if it holds tokens of another plan.
  virtual void set_plan(SequenceId sequence, const Plan& plan) = 0;

  virtual size_t length(SequenceId sequence) const = 0;          // tokens held
  virtual int32_t next_position(SequenceId sequence) const = 0;  // the last token's position + 1; 0 for none
  // Drops all tokens from index `length` on (0 forgets the sequence). rollback(k) of speculative decoding is crop(length() -
  // k).
  virtual void crop(SequenceId sequence, size_t length) = 0;
  // `to` becomes a copy of the first `length` tokens of `from`; memory is shared until one of them writes.
  virtual void fork(SequenceId from, SequenceId to, size_t length) = 0;
  // Takes tokens [first, first + n) out of a sequence and moves the later ones n positions back, their keys rotated by
  // `rerotate`.
  virtual void evict(SequenceId sequence, size_t first, size_t n, Rerotate rerotate, const void* model) = 0;

  virtual std::vector<uint8_t> save(SequenceId sequence, std::string_view fingerprint) const = 0;
  // Throws Error(kCorruptData), and Error(kMismatch) if it was saved of another model or method.
  virtual void load(SequenceId sequence, std::span<const uint8_t> bytes, std::string_view fingerprint,
                    std::string_view name) = 0;

  // What it was made for: Model::plan() refuses a cache of other shapes. The same for as long as the cache lives.
  virtual std::span<const CacheLayer> layers() const = 0;
  virtual uint64_t bytes() const = 0;                   // allocated
  virtual uint64_t capacity_bytes() const = 0;          // bytes() when all of its capacity is used
  virtual uint64_t bytes_for(size_t tokens) const = 0;  // of a sequence of so many tokens that shares none
  virtual std::string spec() const = 0;                 // "f16"
  virtual size_t capacity() const = 0;                  // tokens, over all sequences
};

inline constexpr uint64_t kMaxCacheTokens = uint64_t{1} << 38;
inline constexpr int32_t kMaxPosition = INT32_MAX - 1;  // the one behind it can be said

// spec: f32, f16 or bf16. `capacity` tokens in all sequences together, in blocks of 64; memory is taken as it is needed.
// n_threads share attend(). Throws Error(kInvalidArgument) for another spec, and for more than kMaxCacheTokens.
std::unique_ptr<KvCache> make_cache(std::string_view spec, std::span<const CacheLayer> layers, size_t capacity, int n_threads);

}  // namespace kpd::llm
