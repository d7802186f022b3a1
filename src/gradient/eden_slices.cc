// gradient: EDEN's codes as packet slices (eden_slices.h). Clear before fast: packets are made for links that lose, not for the
// fastest machine.
#include "gradient/eden_slices.h"

#include <algorithm>
#include <cstring>

#include "gradient/eden.h"
#include "gradient/scale_word.h"
#include "kernels/quantize.h"
#include "kpd/base/bytes.h"

namespace kpd::gradient {
namespace {

class BitAppender {
 public:
  explicit BitAppender(std::vector<uint8_t>& dst) : dst_(dst) {}
  void put(uint32_t bit) {
    if (used_ % 8 == 0) dst_.push_back(0);
    dst_.back() |= static_cast<uint8_t>(bit << (used_ % 8));
    ++used_;
  }

 private:
  std::vector<uint8_t>& dst_;
  uint64_t used_ = 0;
};

class BitTaker {
 public:
  explicit BitTaker(std::span<const uint8_t> src) : src_(src) {}
  uint32_t get() {
    if (used_ / 8 >= src_.size()) fail(ErrorCode::kCorruptData, "byte ", src_.size(), ": a packet's bits end early");
    const uint32_t bit = (src_[used_ / 8] >> (used_ % 8)) & 1;
    ++used_;
    return bit;
  }
  uint64_t bytes() const { return (used_ + 7) / 8; }

 private:
  std::span<const uint8_t> src_;
  uint64_t used_ = 0;
};

bool bit_at(const uint8_t* plane, uint32_t i) { return ((plane[i / 8] >> (i % 8)) & 1) != 0; }
void set_bit(uint8_t* plane, uint32_t i, uint32_t bit) { plane[i / 8] |= static_cast<uint8_t>(bit << (i % 8)); }

// Calls fn(plane of this block's part, place in the plane, bytes between planes, bits) for each code of slice p of a block.
template <class Byte, class Fn>
void for_slice_codes(const EdenPlan& plan, Byte* block, uint32_t slices, uint32_t p, const Fn& fn) {
  const uint32_t first = slice_start(plan.kept, slices, p), last = slice_start(plan.kept, slices, p + 1);
  uint32_t part_first = 0;
  for (int i = 0; i < plan.n_parts; ++i) {
    const EdenPlan::Part part = plan.parts[i];
    const size_t stride = kernels::plane_bytes(part.n);
    for (uint32_t j = std::max(first, part_first); j < std::min(last, part_first + part.n); ++j)
      fn(block, j - part_first, stride, part.bits);
    part_first += part.n;
    block += static_cast<size_t>(part.bits) * stride;
  }
}

// What a segment or a slice of the entropy code holds, block after block.
struct EntropyCodes {
  std::vector<uint8_t> symbols, low;
  std::vector<int16_t> escapes;  // in order of the escape symbols
};

EntropyCodes read_segment(const quant::GaussianStep& step, const coding::RansDecodeTable& table,
                          std::span<const uint8_t> segment, const SegmentShape& shape) {
  EntropyCodes c;
  uint64_t at = uint64_t{4} * shape.n_blocks;
  for (uint32_t b = 0; b < shape.n_blocks; ++b) {
    if (load_u32(segment.data() + 4 * b) == 0) continue;
    const uint32_t n = shape.block_length(b);
    const size_t first = c.low.size();
    c.low.resize(first + n);
    if (step.raw_bits > 0) unpack_low_bits(segment.data() + at, n, step.raw_bits, c.low.data() + first);
    at += static_cast<uint64_t>(step.raw_bits) * kernels::plane_bytes(n);
  }
  c.symbols.resize(c.low.size());
  const uint32_t flush = load_u32(segment.data() + at);
  coding::rans_decode(table, segment.subspan(at + 4, flush), c.symbols, at + 4);
  for (at += 4 + flush; at + 2 <= segment.size(); at += 2)
    c.escapes.push_back(static_cast<int16_t>(load_u16(segment.data() + at)));
  return c;
}

}  // namespace

// Planes of the low bits of n codes, most significant plane first.
void pack_low_bits(const uint16_t* codes, size_t n, int bits, uint8_t* planes) {
  const size_t stride = kernels::plane_bytes(n);
  std::fill_n(planes, static_cast<size_t>(bits) * stride, uint8_t{0});
  for (size_t i = 0; i < n; ++i) {
    for (int p = 0; p < bits; ++p) {
      planes[static_cast<size_t>(p) * stride + i / 8] |= static_cast<uint8_t>(((codes[i] >> (bits - 1 - p)) & 1) << (i % 8));
    }
  }
}

void unpack_low_bits(const uint8_t* planes, size_t n, int bits, uint8_t* codes) {
  const size_t stride = kernels::plane_bytes(n);
  for (size_t i = 0; i < n; ++i) {
    uint8_t c = 0;
    for (int p = 0; p < bits; ++p)
      c = static_cast<uint8_t>(c << 1 | ((planes[static_cast<size_t>(p) * stride + i / 8] >> (i % 8)) & 1));
    codes[i] = c;
  }
}

void split_fixed(uint32_t rate, std::span<const uint8_t> segment, const SegmentShape& shape, uint32_t slices,
                 std::vector<std::vector<uint8_t>>& out) {
  out.assign(slices, {});
  for (uint32_t p = 0; p < slices; ++p) {
    BitAppender bits(out[p]);
    const uint8_t* block = segment.data() + uint64_t{4} * shape.n_blocks;
    for (uint32_t b = 0; b < shape.n_blocks; ++b) {
      const EdenPlan plan = eden_plan(shape.block_length(b), rate);
      if (load_u32(segment.data() + 4 * b) == 0) continue;  // no planes
      for_slice_codes(plan, block, slices, p, [&](const uint8_t* planes, uint32_t i, size_t stride, int n_bits) {
        for (int q = 0; q < n_bits; ++q) bits.put(bit_at(planes + static_cast<size_t>(q) * stride, i) ? 1 : 0);
      });
      block += plan.bytes;
    }
  }
}

void merge_fixed(uint32_t rate, std::span<const std::span<const uint8_t>> slices, std::span<const uint8_t> words,
                 const SegmentShape& shape, std::span<uint8_t> segment) {
  std::copy(words.begin(), words.end(), segment.begin());
  const uint32_t n_slices = static_cast<uint32_t>(slices.size());
  for (uint32_t p = 0; p < n_slices; ++p) {
    if (slices[p].data() == nullptr) continue;  // lost; one that arrived may be empty
    BitTaker bits(slices[p]);
    uint8_t* block = segment.data() + uint64_t{4} * shape.n_blocks;
    for (uint32_t b = 0; b < shape.n_blocks; ++b) {
      const EdenPlan plan = eden_plan(shape.block_length(b), rate);
      if (load_u32(words.data() + 4 * b) == 0) continue;
      for_slice_codes(plan, block, n_slices, p, [&](uint8_t* planes, uint32_t i, size_t stride, int n_bits) {
        for (int q = 0; q < n_bits; ++q) set_bit(planes + static_cast<size_t>(q) * stride, i, bits.get());
      });
      block += plan.bytes;
    }
    if (bits.bytes() != slices[p].size())
      fail(ErrorCode::kCorruptData, "byte ", bits.bytes(), ": bytes after a packet's last code");
  }
}

void split_entropy(const quant::GaussianStep& step, const coding::RansEncodeTable& encode,
                   const coding::RansDecodeTable& decode, std::span<const uint8_t> segment, const SegmentShape& shape,
                   uint32_t slices, std::vector<std::vector<uint8_t>>& out) {
  const EntropyCodes all = read_segment(step, decode, segment, shape);
  std::vector<uint32_t> escape_index(all.symbols.size());
  uint32_t escapes = 0;
  for (size_t i = 0; i < all.symbols.size(); ++i) {
    escape_index[i] = escapes;
    if (all.symbols[i] == step.escape_symbol) ++escapes;
  }
  out.assign(slices, {});
  for (uint32_t p = 0; p < slices; ++p) {
    std::vector<uint8_t> symbols;
    std::vector<int16_t> own_escapes;
    BitAppender bits(out[p]);
    size_t block_first = 0;
    for (uint32_t b = 0; b < shape.n_blocks; ++b) {
      if (load_u32(segment.data() + 4 * b) == 0) continue;
      const uint32_t n = shape.block_length(b);
      for (uint32_t j = slice_start(n, slices, p); j < slice_start(n, slices, p + 1); ++j) {
        const size_t i = block_first + j;
        symbols.push_back(all.symbols[i]);
        if (all.symbols[i] == step.escape_symbol && escape_index[i] < all.escapes.size())
          own_escapes.push_back(all.escapes[escape_index[i]]);
        for (int q = 0; q < step.raw_bits; ++q) bits.put((all.low[i] >> q) & 1);
      }
      block_first += n;
    }
    std::vector<uint8_t> room(coding::rans_max_bytes(symbols.size()));
    const auto flush = coding::rans_encode(encode, symbols, room);
    const size_t at = out[p].size();
    out[p].resize(at + 4 + flush.size() + 2 * own_escapes.size());
    store_u32(out[p].data() + at, static_cast<uint32_t>(flush.size()));
    std::copy(flush.begin(), flush.end(), out[p].begin() + static_cast<ptrdiff_t>(at + 4));
    for (size_t e = 0; e < own_escapes.size(); ++e) {
      store_u16(out[p].data() + at + 4 + flush.size() + 2 * e, static_cast<uint16_t>(own_escapes[e]));
    }
  }
}

uint64_t merge_entropy(const quant::GaussianStep& step, const coding::RansEncodeTable& encode,
                       const coding::RansDecodeTable& decode, std::span<const std::span<const uint8_t>> slices,
                       std::span<const uint8_t> words, const SegmentShape& shape, std::span<uint8_t> segment) {
  const uint32_t n_slices = static_cast<uint32_t>(slices.size());
  size_t coded = 0;
  for (uint32_t b = 0; b < shape.n_blocks; ++b) coded += load_u32(words.data() + 4 * b) == 0 ? 0 : shape.block_length(b);
  // Missing codes: index 0 (symbol of u = index_bias), which every table has.
  std::vector<uint8_t> symbols(coded, static_cast<uint8_t>(static_cast<uint32_t>(step.index_bias) >> step.raw_bits));
  std::vector<uint16_t> low(coded, static_cast<uint16_t>(static_cast<uint32_t>(step.index_bias) & ((1u << step.raw_bits) - 1)));
  std::vector<int16_t> escape_at(coded, 0);
  for (uint32_t p = 0; p < n_slices; ++p) {
    if (slices[p].data() == nullptr) continue;  // lost; one that arrived may be empty
    BitTaker bits(slices[p]);
    std::vector<size_t> places;
    size_t block_first = 0;
    for (uint32_t b = 0; b < shape.n_blocks; ++b) {
      if (load_u32(words.data() + 4 * b) == 0) continue;
      const uint32_t n = shape.block_length(b);
      for (uint32_t j = slice_start(n, n_slices, p); j < slice_start(n, n_slices, p + 1); ++j) {
        places.push_back(block_first + j);
        uint32_t v = 0;
        for (int q = 0; q < step.raw_bits; ++q) v |= bits.get() << q;
        low[block_first + j] = static_cast<uint16_t>(v);
      }
      block_first += n;
    }
    ByteReader r(slices[p].subspan(bits.bytes()), "packet", bits.bytes());
    if (r.remaining() < 4) fail(ErrorCode::kCorruptData, "byte ", bits.bytes(), ": a packet ends before its flush");
    const uint32_t flush = r.u32("length of the flush");
    if (flush > r.remaining())
      fail(ErrorCode::kCorruptData, "byte ", bits.bytes(), ": a packet's flush of ", flush, " bytes passes its end");
    std::vector<uint8_t> own(places.size());
    coding::rans_decode(decode, r.take(flush, "flush"), own, bits.bytes() + 4);
    for (size_t i = 0; i < places.size(); ++i) {
      symbols[places[i]] = own[i];
      if (own[i] != step.escape_symbol) continue;
      if (r.remaining() < 2) fail(ErrorCode::kCorruptData, "byte ", slices[p].size(), ": an escape of a packet is missing");
      escape_at[places[i]] = r.i16("escape");
    }
    if (!r.at_end())
      fail(ErrorCode::kCorruptData, "byte ", slices[p].size() - r.remaining(), ": bytes after a packet's last escape");
  }
  std::copy(words.begin(), words.end(), segment.begin());
  uint64_t at = uint64_t{4} * shape.n_blocks;
  size_t first = 0;
  for (uint32_t b = 0; b < shape.n_blocks; ++b) {
    if (load_u32(words.data() + 4 * b) == 0) continue;
    const uint32_t n = shape.block_length(b);
    if (step.raw_bits > 0) pack_low_bits(low.data() + first, n, step.raw_bits, segment.data() + at);
    at += static_cast<uint64_t>(step.raw_bits) * kernels::plane_bytes(n);
    first += n;
  }
  const auto flush = coding::rans_encode(encode, symbols, segment.subspan(at + 4));
  store_u32(segment.data() + at, static_cast<uint32_t>(flush.size()));
  std::memmove(segment.data() + at + 4, flush.data(), flush.size());
  at += 4 + flush.size();
  for (size_t i = 0; i < coded; ++i) {
    if (symbols[i] != step.escape_symbol) continue;
    if (at + 2 > segment.size()) fail(ErrorCode::kCorruptData, "byte ", at, ": more escapes than a block of its norm can have");
    store_u16(segment.data() + at, static_cast<uint16_t>(escape_at[i]));
    at += 2;
  }
  return at;
}

}  // namespace kpd::gradient
