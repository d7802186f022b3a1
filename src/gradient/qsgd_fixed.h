// gradient: fixed-length codes of signed levels (qsgd, code=fixed): digits of radix 2^b - 1, packed in groups. Private.
//
// With s = 2^(b-1) - 1 levels an element is one of 2^b - 1 symbols: digit l for level l of a positive element, s + l of a
// negative one. k digits d_0 ... d_(k-1) travel as the number sum of d_i (2^b - 1)^i in w bits; (k, w) is the group of at most
// 64 bits with the least w / k. Three and fewer bits gain by it (1.586 for 2, 2.810 for 3), four a little (3.909), more
// nothing.
#pragma once

#include <cstdint>
#include <span>

namespace kpd::gradient::baselines {

inline constexpr uint32_t kMinFixedBits = 2, kMaxFixedBits = 8;

struct DigitGroup {
  uint32_t digits, bits;
};
// For 2^b - 1 symbols, b = 2 ... 8.
DigitGroup digit_group(uint32_t b);
// Of n digits: whole groups, then one of what is left, in the bits that its largest number needs.
uint64_t digit_bits(uint32_t b, uint32_t n);

// (digit_bits + 7) / 8 bytes at dst; the digits are below 2^b - 1.
void pack_digits(uint32_t b, std::span<const uint8_t> digits, uint8_t* dst);
// Reads what pack_digits wrote from exactly its bytes. Throws Error(kCorruptData) for a number that no digits make, which names
// the byte, counted from `offset` at the start of src.
void unpack_digits(uint32_t b, std::span<const uint8_t> src, uint64_t offset, std::span<uint8_t> digits);

}  // namespace kpd::gradient::baselines
