// coding: interleaved range asymmetric numeral systems (rANS; Duda 2013, arXiv 1311.2540) with static tables.
//
// Format of a flush (normative; docs/format/gradient.md). All integers little-endian.
//   8 x u32  the states x[0..7] from which decoding starts, each in [2^16, 2^32)
//   n x u16  words
// A table gives each symbol s of an alphabet of at most 256 a frequency f_s >= 0; they sum to 4096. start_s = f_0 + ... +
// f_(s-1). A flush holds one or more runs of symbols, each with a table of its own; how many symbols and which table is known
// to both sides. Symbol i of a run (i = 0, 1, ... anew in each run) is decoded with state x = x[i mod 8]:
//     slot = x mod 4096;  s = the symbol with start_s <= slot < start_s + f_s
//     x = f_s * floor(x / 4096) + slot - start_s
//     if x < 2^16:  x = x * 2^16 + the next word
// After the last run every state is 2^16 and all words are used; a stream for which that is not so is corrupt. (So a flush
// checks itself, weakly, and a table with one symbol of frequency 4096 costs nothing beyond the states.)
//
// Encoder and decoder neither allocate nor read or write outside their spans, whatever the bytes are. Thread-compatible.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace kpd::coding {

inline constexpr int kRansBits = 12;
inline constexpr uint32_t kRansTotal = 1u << kRansBits;
inline constexpr int kRansStates = 8;
inline constexpr uint32_t kRansLow = 1u << 16;  // states live in [kRansLow, 2^32) between symbols
inline constexpr uint64_t kRansStateBytes = 4 * kRansStates;

// Upper bound of a flush of n symbols.
constexpr uint64_t rans_max_bytes(uint64_t n_symbols) { return kRansStateBytes + 2 * n_symbols; }

// frequencies: 1..256 entries that sum to 4096, otherwise Error(kInvalidArgument). Zero means that the symbol does not occur.
class RansEncodeTable {
 public:
  explicit RansEncodeTable(std::span<const uint16_t> frequencies);

 private:
  friend class RansEncoder;
  friend class RansSerialEncoder;
  struct Entry {
    uint64_t reciprocal = 0;          // ceil(2^44 / f)
    uint32_t max_state = 0xffffffff;  // f * 2^20 - 1: a larger state first sheds a word
    uint16_t start = 0;
    uint16_t complement = 0;  // 4096 - f
  };
  std::array<Entry, 256> entries_{};
  bool single_ = false;  // one symbol has all the frequency: nothing is coded
};

class RansDecodeTable {
 public:
  explicit RansDecodeTable(std::span<const uint16_t> frequencies);

 private:
  friend class RansDecoder;
  friend class RansSerialDecoder;
  alignas(64) std::array<uint32_t, kRansTotal> slots_{};  // f << 20 | (slot - start) << 8 | symbol
  int single_ = -1;                                       // the symbol that has all the frequency
};

// Encodes the runs of a flush in reverse order, last run first, from the end of `dst` to its front.
class RansEncoder {
 public:
  explicit RansEncoder(std::span<uint8_t> dst);
  // The run that comes before all encoded so far. Every symbol must have a frequency > 0, otherwise the flush decodes to
  // something else. Error(kInvalidArgument) if fewer than rans_max_bytes(symbols.size()) bytes are left in dst.
  void encode(const RansEncodeTable& table, std::span<const uint8_t> symbols);
  // Writes the states. The flush, which ends at the end of dst. Error(kInvalidArgument) if 32 bytes are not left.
  std::span<const uint8_t> finish();

 private:
  std::span<uint8_t> dst_;
  size_t front_;  // dst_[front_ ..) is written
  std::array<uint32_t, kRansStates> states_;
};

// Decodes the runs in order. Errors are Error(kCorruptData) and start "byte N: ", N counted from base_offset at the start of
// src.
class RansDecoder {
 public:
  // src is exactly the flush.
  explicit RansDecoder(std::span<const uint8_t> src, uint64_t base_offset = 0);
  void decode(const RansDecodeTable& table, std::span<uint8_t> symbols);
  // Call after the last run: throws unless all words are used and every state is back at its start.
  void finish() const;

 private:
  [[noreturn]] void corrupt(const char* text) const;
  std::span<const uint8_t> src_;
  size_t next_ = 0;
  uint64_t base_offset_;
  std::array<uint32_t, kRansStates> states_;
};

// One run with one table.
std::span<const uint8_t> rans_encode(const RansEncodeTable& table, std::span<const uint8_t> symbols, std::span<uint8_t> dst);
void rans_decode(const RansDecodeTable& table, std::span<const uint8_t> src, std::span<uint8_t> symbols,
                 uint64_t base_offset = 0);

}  // namespace kpd::coding
