// gradient: the 32-bit scale word of a rotated block (docs/format/gradient.md).
//
// Bits 31..23: exponent e, bits 22..1: mantissa m, bit 0: the block is rotated by three rounds where its size asks for two.
// Value (1 + m / 2^22) 2^(e - 256); the word 0 is a block of zeros, and e = 0 in any other word is corrupt. No NaN, no
// infinity, no sign can be expressed.
#pragma once

#include <cmath>
#include <cstdint>

namespace kpd::gradient {

inline constexpr uint32_t kThreeRoundsBit = 1;

// The nearest word; a scale that is zero or too small becomes 0, a too large one the largest.
inline uint32_t make_scale_word(double scale, bool three_rounds) {
  if (!(scale > 0)) return 0;
  int e = 0;
  const double fraction = std::frexp(scale, &e);  // [.5, 1), exact
  uint64_t mantissa = static_cast<uint64_t>(fraction * 8388608.0 + 0.5) - 4194304;
  if (mantissa == 4194304) {
    mantissa = 0;
    ++e;
  }
  const int biased = e - 1 + 256;
  if (biased < 1) return 0;
  const uint32_t bit = three_rounds ? kThreeRoundsBit : 0;
  if (biased > 511) return 511u << 23 | 4194303u << 1 | bit;
  return static_cast<uint32_t>(biased) << 23 | static_cast<uint32_t>(mantissa) << 1 | bit;
}

inline double scale_of_word(uint32_t word) {
  if (word == 0) return 0;
  const double fraction = 1.0 + static_cast<double>((word >> 1) & 4194303u) * 0x1p-22;
  return std::ldexp(fraction, static_cast<int>(word >> 23) - 256);
}

inline bool three_rounds_of_word(uint32_t word) { return (word & kThreeRoundsBit) != 0; }
inline bool valid_scale_word(uint32_t word) { return word == 0 || word >> 23 != 0; }

}  // namespace kpd::gradient
