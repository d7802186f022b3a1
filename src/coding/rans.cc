// coding: interleaved rANS. The format stands in the header. Eight states hide the latency of table look-up and multiplication;
// renormalisation has no branch, because its outcome is unpredictable at the rates that matter.
#include "kpd/coding/rans.h"

#include <algorithm>
#include <cstring>

#include "kpd/base/bytes.h"
#include "kpd/base/error.h"

namespace kpd::coding {
namespace {

void check_frequencies(std::span<const uint16_t> frequencies) {
  uint32_t sum = 0;
  for (uint16_t f : frequencies) sum += f;
  if (frequencies.size() > 256 || sum != kRansTotal) {
    fail(ErrorCode::kInvalidArgument, "rANS frequencies: expected at most 256 that sum to ", kRansTotal, ", got ",
         frequencies.size(), " with sum ", sum);
  }
}

// Hides where a value comes from, so that the compiler selects instead of branching: g++ 12 otherwise makes a branch of every
// refill, which halves the speed at 3 bits a symbol and more.
template <class T>
inline T opaque(T value) {
#if defined(__GNUC__)
  asm("" : "+r"(value));
#endif
  return value;
}

}  // namespace

RansEncodeTable::RansEncodeTable(std::span<const uint16_t> frequencies) {
  check_frequencies(frequencies);
  uint32_t start = 0;
  for (size_t s = 0; s < frequencies.size(); ++s) {
    const uint32_t f = frequencies[s];
    if (f == 0) continue;
    Entry& entry = entries_[s];
    entry.reciprocal = ((uint64_t{1} << 44) + f - 1) / f;
    entry.max_state = static_cast<uint32_t>((uint64_t{f} << 20) - 1);
    entry.start = static_cast<uint16_t>(start);
    entry.complement = static_cast<uint16_t>(kRansTotal - f);
    start += f;
    if (f == kRansTotal) single_ = true;
  }
}

RansDecodeTable::RansDecodeTable(std::span<const uint16_t> frequencies) {
  check_frequencies(frequencies);
  uint32_t slot = 0;
  for (size_t s = 0; s < frequencies.size(); ++s) {
    const uint32_t f = frequencies[s];
    if (f == kRansTotal) {
      single_ = static_cast<int>(s);
      return;
    }
    for (uint32_t i = 0; i < f; ++i) slots_[slot++] = f << 20 | i << 8 | static_cast<uint32_t>(s);
  }
}

RansEncoder::RansEncoder(std::span<uint8_t> dst) : dst_(dst), front_(dst.size()) { states_.fill(kRansLow); }

void RansEncoder::encode(const RansEncodeTable& table, std::span<const uint8_t> symbols) {
  if (front_ / 2 < symbols.size() || front_ < rans_max_bytes(symbols.size())) {
    fail(ErrorCode::kInvalidArgument, "rANS encoder: ", symbols.size(), " symbols need room for 2 bytes each and ",
         kRansStateBytes, " for the states, ", front_, " bytes are left");
  }
  if (table.single_) return;
  const RansEncodeTable::Entry* entries = table.entries_.data();
  uint8_t* p = dst_.data() + front_;
  // x / f is exact as (x * ceil(2^44 / f)) >> 44: after the shed x < f * 2^20, so the excess x * (f * ceil(2^44 / f) - 2^44) is
  // below f^2 * 2^20 <= 2^44, and the product stays below 2^64.
  const auto step = [&p, entries](uint32_t& state, uint8_t symbol) {
    const RansEncodeTable::Entry& e = entries[symbol];
    const uint32_t shed = state > e.max_state ? 1 : 0;
    store_u16(p - 2, static_cast<uint16_t>(state));
    p -= 2 * shed;
    const uint32_t x = state >> (16 * shed);
    const uint32_t quotient = static_cast<uint32_t>((x * e.reciprocal) >> 44);
    state = x + e.start + quotient * e.complement;
  };
  size_t i = symbols.size();
  for (; i % kRansStates != 0; --i) step(states_[(i - 1) % kRansStates], symbols[i - 1]);
  uint32_t x0 = states_[0], x1 = states_[1], x2 = states_[2], x3 = states_[3];
  uint32_t x4 = states_[4], x5 = states_[5], x6 = states_[6], x7 = states_[7];
  for (; i != 0; i -= kRansStates) {
    const uint8_t* s = symbols.data() + i - kRansStates;
    step(x7, s[7]);
    step(x6, s[6]);
    step(x5, s[5]);
    step(x4, s[4]);
    step(x3, s[3]);
    step(x2, s[2]);
    step(x1, s[1]);
    step(x0, s[0]);
  }
  states_ = {x0, x1, x2, x3, x4, x5, x6, x7};
  front_ = static_cast<size_t>(p - dst_.data());
}

std::span<const uint8_t> RansEncoder::finish() {
  if (front_ < kRansStateBytes) fail(ErrorCode::kInvalidArgument, "rANS encoder: no room for the states");
  front_ -= kRansStateBytes;
  for (int k = 0; k < kRansStates; ++k) store_u32(dst_.data() + front_ + 4 * k, states_[k]);
  return dst_.subspan(front_);
}

RansDecoder::RansDecoder(std::span<const uint8_t> src, uint64_t base_offset) : src_(src), base_offset_(base_offset) {
  if (src.size() < kRansStateBytes || src.size() % 2 != 0)
    corrupt("expected 32 bytes of rANS states and a whole number of words");
  for (int k = 0; k < kRansStates; ++k) {
    states_[k] = load_u32(src.data() + next_);
    if (states_[k] < kRansLow) corrupt("a rANS state is below 65536");
    next_ += 4;
  }
}

void RansDecoder::decode(const RansDecodeTable& table, std::span<uint8_t> symbols) {
  if (table.single_ >= 0) {
    std::memset(symbols.data(), table.single_, symbols.size());
    return;
  }
  const uint32_t* slots = table.slots_.data();
  const uint8_t* p = src_.data() + next_;
  const uint8_t* const end = src_.data() + src_.size();
  const auto step = [&p, slots](uint32_t& state, uint8_t& symbol) {
    const uint32_t entry = slots[state % kRansTotal];
    symbol = static_cast<uint8_t>(entry);
    const uint32_t x = (entry >> 20) * (state >> kRansBits) + ((entry >> 8) % kRansTotal);
    const uint32_t refilled = opaque(x << 16 | load_u16(p));
    const size_t low = opaque(static_cast<size_t>(x < kRansLow));
    p += 2 * low;
    state = low != 0 ? refilled : x;
  };
  uint32_t x0 = states_[0], x1 = states_[1], x2 = states_[2], x3 = states_[3];
  uint32_t x4 = states_[4], x5 = states_[5], x6 = states_[6], x7 = states_[7];
  size_t i = 0;
  // Eight symbols use at most eight words.
  for (; symbols.size() - i >= kRansStates && end - p >= 2 * kRansStates; i += kRansStates) {
    uint8_t* s = symbols.data() + i;
    step(x0, s[0]);
    step(x1, s[1]);
    step(x2, s[2]);
    step(x3, s[3]);
    step(x4, s[4]);
    step(x5, s[5]);
    step(x6, s[6]);
    step(x7, s[7]);
  }
  states_ = {x0, x1, x2, x3, x4, x5, x6, x7};
  for (; i < symbols.size(); ++i) {
    uint32_t& state = states_[i % kRansStates];
    const uint32_t entry = slots[state % kRansTotal];
    symbols[i] = static_cast<uint8_t>(entry);
    state = (entry >> 20) * (state >> kRansBits) + ((entry >> 8) % kRansTotal);
    if (state >= kRansLow) continue;
    if (end - p < 2) {
      next_ = src_.size();
      corrupt("the rANS words end before the last symbol");
    }
    state = state << 16 | load_u16(p);
    p += 2;
  }
  next_ = static_cast<size_t>(p - src_.data());
}

void RansDecoder::finish() const {
  if (next_ != src_.size()) corrupt("rANS words are left after the last symbol");
  for (uint32_t state : states_) {
    if (state != kRansLow) corrupt("a rANS state does not end where it began");
  }
}

void RansDecoder::corrupt(const char* text) const { fail(ErrorCode::kCorruptData, "byte ", base_offset_ + next_, ": ", text); }

std::span<const uint8_t> rans_encode(const RansEncodeTable& table, std::span<const uint8_t> symbols, std::span<uint8_t> dst) {
  RansEncoder encoder(dst);
  encoder.encode(table, symbols);
  return encoder.finish();
}

void rans_decode(const RansDecodeTable& table, std::span<const uint8_t> src, std::span<uint8_t> symbols, uint64_t base_offset) {
  RansDecoder decoder(src, base_offset);
  decoder.decode(table, symbols);
  decoder.finish();
}

}  // namespace kpd::coding
