// gradient: EDEN's codes as packets carry them (eden_slices.h). Clear before fast: packets are made for links that lose, not
// for the fastest machine.
#include "gradient/eden_slices.h"

#include <algorithm>
#include <cstring>

#include "gradient/scale_word.h"
#include "kernels/quantize.h"
#include "kpd/base/bytes.h"
#include "kpd/coding/rans_serial.h"

namespace kpd::gradient {
namespace {

// A bit string, bit j at bit j % 8 of byte j / 8; numbers least significant bit first, of at most 16 bits.
class BitAppender {
 public:
  explicit BitAppender(std::vector<uint8_t>& dst) : dst_(dst) {}
  void put(uint32_t value, int bits) {
    pending_ |= uint64_t{value} << used_;
    for (used_ += bits; used_ >= 8; used_ -= 8, pending_ >>= 8) dst_.push_back(static_cast<uint8_t>(pending_));
  }
  void finish() {
    if (used_ > 0) dst_.push_back(static_cast<uint8_t>(pending_));
    used_ = 0;
  }

 private:
  std::vector<uint8_t>& dst_;
  uint64_t pending_ = 0;
  int used_ = 0;
};

class BitTaker {
 public:
  explicit BitTaker(std::span<const uint8_t> src) : src_(src) {}
  uint32_t get(int bits) {
    while (left_ < bits) {
      if (next_ == src_.size()) fail(ErrorCode::kCorruptData, "byte ", src_.size(), ": a packet's bits end early");
      pending_ |= uint64_t{src_[next_++]} << left_;
      left_ += 8;
    }
    const uint32_t value = static_cast<uint32_t>(pending_) & ((1u << bits) - 1);
    pending_ >>= bits;
    left_ -= bits;
    return value;
  }
  size_t bytes() const { return next_; }  // whole bytes taken

 private:
  std::span<const uint8_t> src_;
  uint64_t pending_ = 0;
  int left_ = 0;
  size_t next_ = 0;
};

uint32_t word_at(std::span<const uint8_t> words, uint32_t block) { return load_u32(words.data() + 4 * size_t{block}); }

uint32_t bit_at(const uint8_t* plane, uint32_t i) { return (plane[i / 8] >> (i % 8)) & 1u; }
void set_bit(uint8_t* plane, uint32_t i, uint32_t bit) { plane[i / 8] |= static_cast<uint8_t>(bit << (i % 8)); }

// Calls fn(planes of a part, bytes between planes, its number of codes, its bits) for each part of a fixed-rate block.
template <class Byte, class Fn>
void for_each_part(const EdenPlan& plan, Byte* block, const Fn& fn) {
  for (int i = 0; i < plan.n_parts; ++i) {
    const EdenPlan::Part part = plan.parts[i];
    const size_t stride = kernels::plane_bytes(part.n);
    fn(block, stride, part.n, part.bits);
    block += static_cast<size_t>(part.bits) * stride;
  }
}

// Plane 0 is the sign, the others the magnitude code, most significant first.
void read_fixed(const SliceCode& code, std::span<const uint8_t> segment, const SegmentShape& shape, CodeList& out) {
  const uint8_t* block = segment.data() + uint64_t{4} * shape.n_blocks;
  for (uint32_t b = 0; b < shape.n_blocks; ++b) {
    if (word_at(segment, b) == 0) continue;
    const EdenPlan plan = code.plan(shape.block_length(b));
    for_each_part(plan, block, [&](const uint8_t* planes, size_t stride, uint32_t n, int bits) {
      for (uint32_t i = 0; i < n; ++i) {
        uint32_t value = 0;
        for (int q = 0; q < bits; ++q) value = value << 1 | bit_at(planes + static_cast<size_t>(q) * stride, i);
        out.codes.push_back(static_cast<uint16_t>(value));
      }
    });
    block += plan.bytes;
  }
}

void write_fixed(const SliceCode& code, const CodeList& codes, std::span<const uint8_t> words, const SegmentShape& shape,
                 std::vector<uint8_t>& segment) {
  uint64_t bytes = words.size();
  for (uint32_t b = 0; b < shape.n_blocks; ++b) bytes += word_at(words, b) == 0 ? 0 : code.plan(shape.block_length(b)).bytes;
  segment.assign(bytes, 0);
  std::copy(words.begin(), words.end(), segment.begin());
  uint8_t* block = segment.data() + words.size();
  const uint16_t* next = codes.codes.data();
  for (uint32_t b = 0; b < shape.n_blocks; ++b) {
    if (word_at(words, b) == 0) continue;
    const EdenPlan plan = code.plan(shape.block_length(b));
    for_each_part(plan, block, [&](uint8_t* planes, size_t stride, uint32_t n, int bits) {
      for (uint32_t i = 0; i < n; ++i, ++next) {
        for (int q = 0; q < bits; ++q) set_bit(planes + static_cast<size_t>(q) * stride, i, (*next >> (bits - 1 - q)) & 1u);
      }
    });
    block += plan.bytes;
  }
}

void read_entropy(const SliceCode& code, std::span<const uint8_t> segment, const SegmentShape& shape, CodeList& out) {
  const quant::GaussianStep& step = *code.step;
  uint64_t at = uint64_t{4} * shape.n_blocks;
  std::vector<uint8_t> low;
  for (uint32_t b = 0; b < shape.n_blocks; ++b) {
    if (word_at(segment, b) == 0) continue;
    const uint32_t n = shape.block_length(b);
    const size_t first = low.size();
    low.resize(first + n);
    if (step.raw_bits > 0) unpack_low_bits(segment.data() + at, n, step.raw_bits, low.data() + first);
    at += static_cast<uint64_t>(step.raw_bits) * kernels::plane_bytes(n);
  }
  std::vector<uint8_t> symbols(low.size());
  const uint32_t flush = load_u32(segment.data() + at);
  coding::rans_decode(*code.decode, segment.subspan(at + 4, flush), symbols, at + 4);
  at += 4 + flush;
  for (size_t i = 0; i < symbols.size(); ++i) {
    if (symbols[i] == step.escape_symbol) {
      out.escapes.push_back({i, static_cast<int16_t>(load_u16(segment.data() + at))});
      at += 2;
    }
    const uint32_t u = static_cast<uint32_t>(symbols[i]) << step.raw_bits | low[i];
    out.codes.push_back(symbols[i] == step.escape_symbol ? kEscapeCode : static_cast<uint16_t>(u));
  }
}

void write_entropy(const SliceCode& code, const CodeList& codes, std::span<const uint8_t> words, const SegmentShape& shape,
                   std::vector<uint8_t>& segment) {
  const quant::GaussianStep& step = *code.step;
  uint64_t raw = 0;
  for (uint32_t b = 0; b < shape.n_blocks; ++b)
    raw += word_at(words, b) == 0 ? 0 : static_cast<uint64_t>(step.raw_bits) * kernels::plane_bytes(shape.block_length(b));
  const size_t n = codes.codes.size();
  segment.assign(words.size() + raw + 4 + coding::rans_max_bytes(n) + 2 * codes.escapes.size(), 0);
  std::copy(words.begin(), words.end(), segment.begin());
  uint64_t at = words.size();
  std::vector<uint8_t> symbols(n);
  std::vector<uint16_t> low(n);
  for (size_t i = 0; i < n; ++i) {
    const uint16_t u = codes.codes[i];
    symbols[i] = static_cast<uint8_t>(u == kEscapeCode ? step.escape_symbol : u >> step.raw_bits);
    low[i] = u == kEscapeCode ? uint16_t{0} : u;
  }
  size_t first = 0;
  for (uint32_t b = 0; b < shape.n_blocks; ++b) {
    if (word_at(words, b) == 0) continue;
    const uint32_t length = shape.block_length(b);
    if (step.raw_bits > 0) pack_low_bits(low.data() + first, length, step.raw_bits, segment.data() + at);
    at += static_cast<uint64_t>(step.raw_bits) * kernels::plane_bytes(length);
    first += length;
  }
  const auto flush = coding::rans_encode(*code.encode, symbols, std::span(segment).subspan(at + 4));
  store_u32(segment.data() + at, static_cast<uint32_t>(flush.size()));
  std::memmove(segment.data() + at + 4, flush.data(), flush.size());
  at += 4 + flush.size();
  for (const Escape& e : codes.escapes) {
    store_u16(segment.data() + at, static_cast<uint16_t>(e.index));
    at += 2;
  }
  segment.resize(at);
}

// Calls fn(group, number) for every code of a class, in order.
template <class Fn>
void for_each_of_class(std::span<const CodeGroup> groups, uint32_t packets, uint32_t residue, const Fn& fn) {
  uint64_t number = residue;
  for (size_t g = 0; g < groups.size(); ++g) {
    const uint64_t end = groups[g].first + groups[g].count;
    for (; number < end; number += packets) fn(g, number);
  }
}

const Escape& escape_at(const std::vector<Escape>& escapes, uint64_t place) {
  return *std::lower_bound(escapes.begin(), escapes.end(), place, [](const Escape& e, uint64_t p) { return e.place < p; });
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

EdenPlan SliceCode::plan(uint32_t length) const {
  if (step == nullptr) return eden_plan(length, rate);
  EdenPlan p;
  p.length = p.kept = length;
  return p;
}

void read_codes(const SliceCode& code, std::span<const uint8_t> segment, const SegmentShape& shape, CodeList& out) {
  out.codes.clear();
  out.escapes.clear();
  code.step == nullptr ? read_fixed(code, segment, shape, out) : read_entropy(code, segment, shape, out);
}

void write_codes(const SliceCode& code, const CodeList& codes, std::span<const uint8_t> words, const SegmentShape& shape,
                 std::vector<uint8_t>& segment) {
  code.step == nullptr ? write_fixed(code, codes, words, shape, segment) : write_entropy(code, codes, words, shape, segment);
}

int CodeGroup::width(uint64_t number) const {
  if (code.step != nullptr) return code.step->raw_bits;
  if (code.rate <= kOneBit || code.rate % kOneBit == 0) return plan.parts[0].bits;  // all alike
  const uint64_t local = number - first;
  const uint64_t block = std::min<uint64_t>(local / plan.kept, coded_blocks - 1);
  const EdenPlan& its = block + 1 == coded_blocks ? last_plan : plan;
  return its.parts[local - block * plan.kept < its.parts[0].n ? 0 : 1].bits;
}

CodeGroup code_group(const SliceCode& code, std::span<const uint8_t> words, const SegmentShape& shape, uint64_t first) {
  CodeGroup group{code, first, 0, 0, {}, {}};
  group.plan = code.plan(shape.block_length(0));
  for (uint32_t b = 0; b < shape.n_blocks; ++b) {
    if (word_at(words, b) == 0) continue;
    group.last_plan = code.plan(shape.block_length(b));
    group.count += group.last_plan.kept;
    ++group.coded_blocks;
  }
  return group;
}

void first_numbers(const CodeGroup& group, std::span<const uint8_t> words, std::span<uint64_t> first) {
  uint64_t number = group.first;
  for (uint32_t b = 0; b < first.size(); ++b) {
    first[b] = number;
    if (word_at(words, b) != 0) number += group.plan.kept;  // the last coded block, which may be longer, has none behind it
  }
}

std::vector<uint8_t> write_payload(std::span<const CodeGroup> groups, std::span<const CodeList> codes, uint32_t packets,
                                   uint32_t residue) {
  std::vector<uint8_t> payload;
  BitAppender bits(payload);
  std::vector<std::pair<const SliceCode*, uint8_t>> symbols;
  std::vector<int16_t> escapes;
  for_each_of_class(groups, packets, residue, [&](size_t g, uint64_t number) {
    const CodeGroup& group = groups[g];
    const uint64_t place = number - group.first;
    const uint16_t code = codes[g].codes[place];
    const bool escaped = group.code.step != nullptr && code == kEscapeCode;
    const int width = group.width(number);
    bits.put(escaped ? 0u : code & ((1u << width) - 1), width);
    if (group.code.step == nullptr) return;
    const int symbol = escaped ? group.code.step->escape_symbol : code >> width;
    symbols.emplace_back(&group.code, static_cast<uint8_t>(symbol));
    if (escaped) escapes.push_back(escape_at(codes[g].escapes, place).index);
  });
  bits.finish();
  if (symbols.empty()) return payload;
  coding::RansSerialEncoder rans;
  for (size_t i = symbols.size(); i-- > 0;) rans.put(*symbols[i].first->encode, symbols[i].second);
  rans.finish(payload);
  const size_t at = payload.size();
  payload.resize(at + 2 * escapes.size());
  for (size_t i = 0; i < escapes.size(); ++i) store_u16(payload.data() + at + 2 * i, static_cast<uint16_t>(escapes[i]));
  return payload;
}

CodeList read_payload(std::span<const CodeGroup> groups, uint64_t total_codes, uint32_t packets, uint32_t residue,
                      std::span<const uint8_t> payload) {
  CodeList out;
  out.codes.reserve((total_codes - residue + packets - 1) / packets);
  BitTaker bits(payload);
  bool has_symbols = false;
  for_each_of_class(groups, packets, residue, [&](size_t g, uint64_t number) {
    out.codes.push_back(static_cast<uint16_t>(bits.get(groups[g].width(number))));
    has_symbols |= groups[g].code.step != nullptr;
  });
  ByteReader r(payload.subspan(bits.bytes()), "packet", bits.bytes());
  if (has_symbols) {
    coding::RansSerialDecoder rans(payload.subspan(bits.bytes()), bits.bytes());
    size_t k = 0;
    for_each_of_class(groups, packets, residue, [&](size_t g, uint64_t) {
      const quant::GaussianStep* const step = groups[g].code.step;
      uint16_t& code = out.codes[k++];
      if (step == nullptr) return;
      const int symbol = rans.get(*groups[g].code.decode);
      code = symbol == step->escape_symbol ? kEscapeCode : static_cast<uint16_t>(symbol << step->raw_bits | code);
      if (symbol == step->escape_symbol) out.escapes.push_back({k - 1, 0});
    });
    r.skip(rans.finish(), "flush");
  }
  if (r.remaining() != 2 * out.escapes.size()) {
    fail(ErrorCode::kCorruptData, "byte ", r.offset(), ": ", r.remaining(), " bytes for the ", out.escapes.size(),
         " escapes of a packet");
  }
  for (Escape& e : out.escapes) e.index = r.i16("escape");
  return out;
}

void gather_codes(const CodeGroup& group, const ArrivedCodes& packets, CodeList& out) {
  // Index 0, which every table has.
  const uint16_t missing = group.code.step == nullptr ? uint16_t{0} : static_cast<uint16_t>(group.code.step->index_bias);
  out.codes.resize(group.count);
  out.escapes.clear();
  const size_t classes = packets.list_of.size();
  size_t residue = group.first % classes;
  uint64_t place = group.first / classes;
  for (uint64_t i = 0; i < group.count; ++i) {
    const CodeList* const packet = packets.list_of[residue] != 0 ? &packets.lists[packets.list_of[residue] - 1] : nullptr;
    const uint16_t code = packet != nullptr ? packet->codes[place] : missing;
    out.codes[i] = code;
    if (group.code.step != nullptr && code == kEscapeCode) out.escapes.push_back({i, escape_at(packet->escapes, place).index});
    if (++residue == classes) {
      residue = 0;
      ++place;
    }
  }
}

}  // namespace kpd::gradient
