// cache: how the keys, or the values, of one head are stored in a block of 64 tokens. Private.
//
// A block's part is *open* while tokens are written to it one by one. A format that seals makes another part, the *sealed* one,
// of a complete open part; that does not change any more. Both exist for a while: which of them a query reads follows from how
// far back it lies (Sealing), so that results do not depend on how tokens were cut into steps. Formats hold no state of
// sequences; all functions are const and thread-safe. Parts begin at multiples of 64 bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kpd/cache/kv_cache.h"

namespace kpd::cache {

enum class PartState : uint8_t { kOpen, kSealed };

struct ConstPart {
  const uint8_t* data = nullptr;
  PartState state = PartState::kOpen;
};

// A worker's memory, kept from call to call.
struct FormatScratch {
  std::vector<float> widened;
};

class Format {
 public:
  virtual ~Format() = default;

  // Of a part. kSealed: 0 of a format that never seals.
  virtual size_t part_bytes(PartState state) const = 0;
  // Writes a row [width] as token `slot` of the block.
  virtual void append(uint8_t* open, size_t slot, const float* row) const = 0;
  // All 64 tokens of `open` are there; the first of them is token `first_token` of its sequence.
  virtual void seal(const uint8_t* open, uint8_t* sealed, size_t first_token) const = 0;
  // The token of one slot to another, as it is stored, of open parts.
  virtual void move(const uint8_t* from, size_t from_slot, uint8_t* to, size_t to_slot) const = 0;
  // Rows [n, width] of slots [first, first + n).
  virtual void read(ConstPart part, size_t first, size_t n, float* rows) const = 0;

  // A part's first n tokens (all of a sealed one) in a saved file: saved_bytes(state, n), of any alignment, as load() takes
  // them back.
  virtual size_t saved_bytes(PartState state, size_t n) const = 0;
  virtual void save(ConstPart part, size_t n, uint8_t* bytes) const = 0;
  // False for bytes that save() never writes. They come from a file: load() is asked after this only.
  virtual bool can_load(PartState /*state*/, std::span<const uint8_t> /*bytes*/, size_t /*n*/) const { return true; }
  virtual void load(PartState state, std::span<const uint8_t> bytes, size_t n, uint8_t* part) const = 0;
};

class KeyFormat : public Format {
 public:
  // Once for all blocks: what scores() wants of queries [n_rows, width], which are scaled already. In place.
  virtual void prepare(float* /*queries*/, size_t /*n_rows*/) const {}
  // scores [n_rows, 64] of prepared queries with all slots of a part; those of slots that were never written are finite. A
  // row's scores are the same, bit for bit, for any number of rows. next: the same part of the block that comes next, or null;
  // it may be asked for meanwhile.
  virtual void scores(const float* queries, size_t n_rows, ConstPart part, const uint8_t* next, float* scores,
                      FormatScratch& scratch) const = 0;
};

class ValueFormat : public Format {
 public:
  // sums [n_rows, width] += weights [n_rows, 64] times the part's values; the weights of slots that a row does not see are 0.
  virtual void add_weighted(const float* weights, size_t n_rows, ConstPart part, const uint8_t* next, float* sums,
                            FormatScratch& scratch) const = 0;
  // Once behind all blocks: what add_weighted() summed becomes sums of values. In place.
  virtual void finish(float* /*sums*/, size_t /*n_rows*/) const {}
};

// A query of token t reads block b open where b + exact_blocks > t / 64, and sealed where not. Open parts are kept of the last
// kept_blocks >= exact_blocks blocks, the one that tokens go to included, so that a sequence can be cut and stay exact.
// exact_blocks 0: nothing is ever sealed.
struct Sealing {
  size_t exact_blocks = 0, kept_blocks = 0;
  bool seals() const { return exact_blocks > 0; }
};

struct LayerFormats {
  std::unique_ptr<KeyFormat> keys;
  std::unique_ptr<ValueFormat> values;
  Sealing sealing;
};

}  // namespace kpd::cache
