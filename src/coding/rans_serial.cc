// coding: rANS with one state. The format stands in the header; clear before fast, for packets are short.
#include "kpd/coding/rans_serial.h"

#include "kpd/base/bytes.h"
#include "kpd/base/error.h"

namespace kpd::coding {

void RansSerialEncoder::put(const RansEncodeTable& table, uint8_t symbol) {
  if (table.single_) return;
  const RansEncodeTable::Entry& e = table.entries_[symbol];
  if (state_ > e.max_state) {
    words_.push_back(static_cast<uint16_t>(state_));
    state_ >>= 16;
  }
  state_ = state_ + e.start + static_cast<uint32_t>((state_ * e.reciprocal) >> 44) * e.complement;
}

void RansSerialEncoder::finish(std::vector<uint8_t>& out) {
  const size_t at = out.size();
  out.resize(at + 4 + 2 * words_.size());
  store_u32(out.data() + at, state_);
  for (size_t i = 0; i < words_.size(); ++i) store_u16(out.data() + at + 4 + 2 * i, words_[words_.size() - 1 - i]);
  words_.clear();
  state_ = kRansLow;
}

RansSerialDecoder::RansSerialDecoder(std::span<const uint8_t> src, uint64_t base_offset)
    : src_(src), base_offset_(base_offset) {
  if (src.size() < 4) corrupt("expected 4 bytes of a rANS state");
  state_ = load_u32(src.data());
  if (state_ < kRansLow) corrupt("a rANS state is below 65536");
  next_ = 4;
}

uint8_t RansSerialDecoder::get(const RansDecodeTable& table) {
  if (table.single_ >= 0) return static_cast<uint8_t>(table.single_);
  const uint32_t entry = table.slots_[state_ % kRansTotal];
  uint32_t x = (entry >> 20) * (state_ >> kRansBits) + ((entry >> 8) % kRansTotal);
  if (x < kRansLow) {
    if (src_.size() - next_ < 2) corrupt("the rANS words end early");
    x = x << 16 | load_u16(src_.data() + next_);
    next_ += 2;
  }
  state_ = x;
  return static_cast<uint8_t>(entry);
}

size_t RansSerialDecoder::finish() const {
  if (state_ != kRansLow) corrupt("the rANS state does not end at its start");
  return next_;
}

void RansSerialDecoder::corrupt(const char* text) const {
  fail(ErrorCode::kCorruptData, "byte ", base_offset_ + next_, ": ", text);
}

}  // namespace kpd::coding
