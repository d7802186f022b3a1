// cache: keys and values of the tokens that a model has read, and attention over them. No pointer to a stored key or value
// leaves it, so that a method may store them as it likes. It knows widths and positions, and nothing of models.
//
// A step: begin(batch) reserves room or throws before any work; attend() once a layer; commit() makes the new tokens part of
// their sequences. Without commit, the next begin() forgets them. Thread-compatible.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kpd::cache {

using SequenceId = uint32_t;

// What the cache must know of each layer. Layers are numbered as they are given to make_cache().
struct Layer {
  size_t n_kv_heads = 0;
  size_t key_width = 0, value_width = 0;  // of a head
  size_t window = 0;                      // 0: every token may be asked for again
  friend bool operator==(const Layer&, const Layer&) = default;
};

// The new tokens of a batch: per sequence a count and their positions. Rows of q, k, v and out follow in this order.
struct Batch {
  struct Part {
    SequenceId sequence = 0;
    std::span<const int32_t> positions;  // ascending, beyond those in the cache
  };
  std::vector<Part> parts;
  size_t n_rows() const;
};

// What a sequence's keys were made for and no position tells, e.g. the context that chose its rotations. Opaque: the cache
// keeps it with the sequence, copies, compares and saves it, and never reads it. A sequence of which nothing was said has
// zeros.
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

// What attend() is given, before any of it is stored: q [n_rows, n_heads, key_width], k [n_rows, n_kv_heads, key_width],
// v [n_rows, n_kv_heads, value_width]. Valid during the call.
struct AttendInput {
  size_t layer = 0, n_rows = 0;
  const float *q = nullptr, *k = nullptr, *v = nullptr;
};
using AttendHook = std::function<void(const AttendInput&, const AttendOptions&)>;

// What is left of a sequence that was cut.
struct Cut {
  size_t length = 0;
  bool exact = true;  // it goes on as if what was cut off had never been there
};

// How keys tell positions: what the model gives to a cache that moves tokens.
class KeyRotation {
 public:
  virtual ~KeyRotation() = default;
  // Turns the keys [n, key_width] of one head of a layer by `by` positions, in place.
  virtual void turn(size_t layer, float* keys, size_t n, int32_t by) const = 0;
};

class KvCache {
 public:
  virtual ~KvCache() = default;

  // Throws Error(kInvalidArgument) for positions that do not follow, Error(kLimitExceeded) beyond the capacity.
  virtual void begin(const Batch& batch) = 0;
  // q [n_rows, n_heads, key_width], k [n_rows, n_kv_heads, key_width], v [n_rows, n_kv_heads, value_width], keys rotated;
  // out [n_rows, n_heads, value_width], which overlaps none of them. A token attends to all tokens of its sequence with a
  // position not after its own (and within the window), itself included. Throws Error(kInvalidArgument) for heads that cannot
  // share the layer's evenly.
  void attend(size_t layer, const float* q, const float* k, const float* v, float* out, const AttendOptions& options);
  virtual void commit() = 0;
  // Called by every attend() first; empty: none. Measurements live on it. What it throws ends the step.
  void set_hook(AttendHook hook) { hook_ = std::move(hook); }

  virtual size_t length(SequenceId sequence) const = 0;          // tokens held
  virtual int32_t next_position(SequenceId sequence) const = 0;  // the last token's position + 1; 0 for none
  // Drops all tokens from index `length` on (0 forgets the sequence). rollback(k) of speculative decoding is crop(length() -
  // k). A method may have to cut off more, or go on from what it holds coarsely: the result says so, reusable() beforehand.
  virtual Cut crop(SequenceId sequence, size_t length) = 0;
  // `to` becomes a copy of the first `length` tokens of `from`, cut as crop() would; memory is shared until one of them writes.
  // Throws Error(kInvalidArgument) if `from` holds fewer.
  virtual Cut fork(SequenceId from, SequenceId to, size_t length) = 0;
  // The most tokens m <= n to which the sequence can be cut, once it holds n, so that it goes on as if it had never held more.
  // n may be beyond length(): then it is asked about what the sequence will hold.
  virtual size_t reusable(SequenceId sequence, size_t n) const = 0;
  // Takes tokens [first, first + n) out of a sequence and moves the later ones n positions back, their keys turned by
  // `rotation` (null: keys that know no positions). Throws Error(kLimitExceeded), before anything is changed, if shared blocks
  // cannot be copied for want of room, and Error(kUnsupported) of a method that cannot.
  virtual void evict(SequenceId sequence, size_t first, size_t n, const KeyRotation* rotation) = 0;

  virtual Plan plan(SequenceId sequence) const = 0;
  // Before the first token; kept until the sequence is forgotten. Throws Error(kInvalidArgument) if it holds tokens of another
  // plan.
  virtual void set_plan(SequenceId sequence, const Plan& plan) = 0;

  // docs/format/kv_cache.md.
  virtual std::vector<uint8_t> save(SequenceId sequence, std::string_view fingerprint) const = 0;
  // Throws Error(kCorruptData), Error(kMismatch) if it was saved of another model or method, and Error(kUnsupported) for a
  // version that is no longer read: then the sequence stays as it was.
  virtual void load(SequenceId sequence, std::span<const uint8_t> bytes, std::string_view fingerprint,
                    std::string_view name) = 0;

  // What it was made for. The same for as long as the cache lives.
  virtual std::span<const Layer> layers() const = 0;
  virtual std::string spec(size_t layer) const = 0;     // "f16"
  virtual uint64_t bytes() const = 0;                   // allocated
  virtual uint64_t capacity_bytes() const = 0;          // bytes() when all of its capacity is used
  virtual uint64_t bytes_for(size_t tokens) const = 0;  // of a sequence of so many tokens that shares none
  virtual size_t capacity() const = 0;                  // tokens, over all sequences

 protected:
  // attend() without the hook, of a layer that is there and of heads that share evenly.
  virtual void attend_rows(size_t layer, const float* q, const float* k, const float* v, float* out,
                           const AttendOptions& options) = 0;
  virtual size_t pending_rows() const = 0;  // of the step that began

 private:
  AttendHook hook_;
};

inline constexpr size_t kBlockTokens = 64;
inline constexpr uint64_t kMaxCacheTokens = uint64_t{1} << 38;
inline constexpr int32_t kMaxPosition = INT32_MAX - 1;  // the one behind it can be said

// Names of the methods, as a spec begins with them: f32, f16, bf16; ggml's types of blocks (q8_0, q4_0, q4_1, iq4_nl, q5_0,
// q5_1), for heads whose widths are multiples of 32; ggml, with a type for each side.
std::span<const std::string_view> method_names();
// Whether specs of the method have keys.
bool method_takes_keys(std::string_view name);
// Throws Error(kInvalidArgument) for what names no method, or one with keys that it does not take.
void check_spec(std::string_view spec);
// The spec of each of n_layers: `spec`, but for the layers that `others` name, each "LAYERS=SPEC" where LAYERS are numbers and
// ranges, "0,29=f32" or "4-7=bf16". Throws Error(kInvalidArgument) naming the text at fault: a layer that is not there or
// named twice.
std::vector<std::string> layer_specs(std::string_view spec, std::span<const std::string> others, size_t n_layers);

// `capacity` tokens in all sequences together, in blocks of 64; memory is taken as it is needed. n_threads share attend(). One
// spec for all layers, or one for each. Throws Error(kInvalidArgument) for what check_spec() refuses, another number of specs
// than layers, and more than kMaxCacheTokens.
std::unique_ptr<KvCache> make_cache(std::string_view spec, std::span<const Layer> layers, size_t capacity, int n_threads);
std::unique_ptr<KvCache> make_cache(std::span<const std::string> specs, std::span<const Layer> layers, size_t capacity,
                                    int n_threads);

}  // namespace kpd::cache
