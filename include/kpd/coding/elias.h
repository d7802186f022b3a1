// coding: bit strings and Elias' universal codes (Elias 1975), which QSGD (Alistarh et al., NIPS 2017, section 3.2) uses for
// its levels and gaps.
//
// Bits are written from the most significant bit of each byte to the least: bit k of the string is bit 7 - k mod 8 of byte k
// / 8. The last byte is filled with zeros. Neither class allocates or leaves its span. Thread-compatible.
//
// omega(1) = "0"; omega(n) = the groups bin(n), preceded by bin(length of bin(n) - 1), preceded by ... down to a group of two
// bits, then "0". gamma(n) = length of bin(n) - 1 zeros, then bin(n).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace kpd::coding {

class BitWriter {
 public:
  explicit BitWriter(std::span<uint8_t> dst) : dst_(dst) {}
  // The low n_bits (0..32) of value, most significant first. Error(kInvalidArgument) if dst is full.
  void put(uint32_t value, int n_bits);
  uint64_t bits() const { return 8 * static_cast<uint64_t>(offset_) + n_pending_; }
  // Fills the last byte and returns the number of bytes written. Call once.
  size_t finish();

 private:
  void store(int n_bytes);
  std::span<uint8_t> dst_;
  size_t offset_ = 0;
  uint64_t pending_ = 0;  // the low n_pending_ < 32 bits are not stored yet
  int n_pending_ = 0;
};

// Errors are Error(kCorruptData) and start "byte N: ", N counted from base_offset at the start of src.
class BitReader {
 public:
  explicit BitReader(std::span<const uint8_t> src, uint64_t base_offset = 0) : src_(src), base_offset_(base_offset) {}
  // The next n_bits (0..32). Throws if fewer are left.
  uint32_t get(int n_bits);
  // Bits left, with those that fill the last byte.
  uint64_t remaining_bits() const { return 8 * static_cast<uint64_t>(src_.size() - offset_) + n_ready_; }
  // Throws unless fewer than 8 bits are left and all are zero.
  void finish();
  [[noreturn]] void corrupt(const char* text) const;

 private:
  std::span<const uint8_t> src_;
  uint64_t base_offset_;
  size_t offset_ = 0;
  uint64_t ready_ = 0;  // the low n_ready_ bits are read but not handed out
  int n_ready_ = 0;
};

// value in 1..2^32-1, otherwise Error(kInvalidArgument).
void put_elias_omega(BitWriter& writer, uint32_t value);
void put_elias_gamma(BitWriter& writer, uint32_t value);
int elias_omega_bits(uint32_t value);
int elias_gamma_bits(uint32_t value);

// A value in 1..max; a larger one, or a code no writer makes, is Error(kCorruptData).
uint32_t get_elias_omega(BitReader& reader, uint32_t max = 0xffffffff);
uint32_t get_elias_gamma(BitReader& reader, uint32_t max = 0xffffffff);

}  // namespace kpd::coding
