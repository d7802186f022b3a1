// coding: rANS (rans.h) with one state, for flushes so short that eight states would be most of them: packets.
//
// Format of a serial flush (normative; docs/format/gradient.md). All integers little-endian.
//   u32      the state x from which decoding starts, in [2^16, 2^32)
//   n x u16  words
// Every symbol is decoded as in rans.h with that one x, by a table that both sides know and that may be another for each
// symbol. After the last symbol x is 2^16; so a flush ends by itself and its length need not travel. Thread-compatible.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kpd/coding/rans.h"

namespace kpd::coding {

class RansSerialEncoder {
 public:
  // The symbol that comes before all put so far. It must have a frequency > 0, otherwise the flush decodes to something else.
  void put(const RansEncodeTable& table, uint8_t symbol);
  // Appends the flush to `out`; the encoder is then as new.
  void finish(std::vector<uint8_t>& out);

 private:
  uint32_t state_ = kRansLow;
  std::vector<uint16_t> words_;  // last first
};

// Reads nothing outside its span, whatever the bytes are. Errors are Error(kCorruptData) and start "byte N: ", N counted from
// base_offset at the start of src.
class RansSerialDecoder {
 public:
  // src begins with the flush and may go on behind it.
  explicit RansSerialDecoder(std::span<const uint8_t> src, uint64_t base_offset = 0);
  uint8_t get(const RansDecodeTable& table);
  // Call after the last symbol: throws unless the state is back at its start. The number of bytes of the flush.
  size_t finish() const;

 private:
  [[noreturn]] void corrupt(const char* text) const;
  std::span<const uint8_t> src_;
  size_t next_ = 0;
  uint64_t base_offset_;
  uint32_t state_ = kRansLow;
};

}  // namespace kpd::coding
