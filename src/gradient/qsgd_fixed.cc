// gradient: see qsgd_fixed.h.
#include "gradient/qsgd_fixed.h"

#include <algorithm>
#include <bit>

#include "gradient/baseline_tools.h"

namespace kpd::gradient::baselines {
namespace {

constexpr uint64_t power(uint64_t radix, uint32_t n) {
  uint64_t p = 1;
  for (uint32_t i = 0; i < n; ++i) p *= radix;
  return p;
}

// The bits of the largest number of n digits.
constexpr uint32_t group_bits(uint64_t radix, uint32_t n) { return static_cast<uint32_t>(std::bit_width(power(radix, n) - 1)); }

constexpr DigitGroup kGroups[] = {{29, 46}, {21, 59}, {11, 43}, {1, 5}, {1, 6}, {1, 7}, {1, 8}};
static_assert(group_bits(3, 29) == 46 && group_bits(7, 21) == 59 && group_bits(15, 11) == 43);

// f(radix, group) with both known to the compiler: a division by a constant is a multiplication.
template <class F>
void with_radix(uint32_t b, const F& f) {
  switch (b) {
    case 2:
      return f.template operator()<3, 29>();
    case 3:
      return f.template operator()<7, 21>();
    case 4:
      return f.template operator()<15, 11>();
    case 5:
      return f.template operator()<31, 1>();
    case 6:
      return f.template operator()<63, 1>();
    case 7:
      return f.template operator()<127, 1>();
    default:
      return f.template operator()<255, 1>();
  }
}

void put_number(BitPacker& packer, uint64_t v, uint32_t bits) {
  packer.put(v & 0xffffffffu, std::min(bits, 32u));
  if (bits > 32) packer.put(v >> 32, bits - 32);
}

uint64_t get_number(BitUnpacker& unpacker, uint32_t bits) {
  const uint64_t low = unpacker.get(std::min(bits, 32u));
  return bits > 32 ? low | static_cast<uint64_t>(unpacker.get(bits - 32)) << 32 : low;
}

}  // namespace

DigitGroup digit_group(uint32_t b) { return kGroups[b - kMinFixedBits]; }

uint64_t digit_bits(uint32_t b, uint32_t n) {
  const DigitGroup group = digit_group(b);
  const uint32_t left = n % group.digits;
  return uint64_t{n / group.digits} * group.bits + (left > 0 ? group_bits((1u << b) - 1, left) : 0);
}

void pack_digits(uint32_t b, std::span<const uint8_t> digits, uint8_t* dst) {
  with_radix(b, [&]<uint64_t kRadix, uint32_t kDigits>() {
    BitPacker packer(dst);
    for (size_t first = 0; first < digits.size(); first += kDigits) {
      const uint32_t count = static_cast<uint32_t>(std::min<size_t>(kDigits, digits.size() - first));
      uint64_t v = 0;
      for (uint32_t i = count; i > 0; --i) v = v * kRadix + digits[first + i - 1];
      put_number(packer, v, group_bits(kRadix, count));
    }
    packer.finish();
  });
}

void unpack_digits(uint32_t b, std::span<const uint8_t> src, uint64_t offset, std::span<uint8_t> digits) {
  with_radix(b, [&]<uint64_t kRadix, uint32_t kDigits>() {
    BitUnpacker unpacker(src);
    uint64_t at = 0;  // in bits
    for (size_t first = 0; first < digits.size(); first += kDigits) {
      const uint32_t count = static_cast<uint32_t>(std::min<size_t>(kDigits, digits.size() - first));
      const uint32_t bits = group_bits(kRadix, count);
      uint64_t v = get_number(unpacker, bits);
      for (uint32_t i = 0; i < count; ++i, v /= kRadix) digits[first + i] = static_cast<uint8_t>(v % kRadix);
      if (v != 0) corrupt_at(offset + at / 8, "a group of ", count, " digits of radix ", kRadix, " is too large");
      at += bits;
    }
  });
}

}  // namespace kpd::gradient::baselines
