// base: CRC-32 (polynomial 0xedb88320, reflected; zlib's). Sixteen bytes a step by tables; where the machine multiplies without
// carries, 64 bytes a step by folding (Gopal et al., "Fast CRC computation for generic polynomials using PCLMULQDQ", Intel
// 2009).
//
// Folding: a 16-byte word A that stands D bits before the end of a message may be replaced by A * x^D mod P added there. Bit i
// of a reflected 64-bit word is the coefficient of x^(63-i), so that a carry-less product of two such words is theirs times x;
// the constants below are one power lower for it.
#include "base/targets.h"  // must come before Highway's headers

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "base/crc32.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "base/dispatch.h"
#include "kpd/base/bytes.h"
#include "kpd/base/hash.h"

#ifndef KPD_BASE_CRC32_ONCE
#define KPD_BASE_CRC32_ONCE
namespace kpd {
namespace {

constexpr uint32_t kPolynomial = 0xedb88320u;
constexpr size_t kFoldBytes = 64;
constexpr int kSlices = 16;
using CrcTables = std::array<std::array<uint32_t, 256>, kSlices>;

constexpr uint32_t times_x(uint32_t v) { return (v >> 1) ^ ((v & 1u) ? kPolynomial : 0u); }

// tables[k][b]: the remainder of byte b followed by k zero bytes.
constexpr CrcTables make_crc_tables() {
  CrcTables tables{};
  for (uint32_t b = 0; b < 256; ++b) {
    uint32_t v = b;
    for (int bit = 0; bit < 8; ++bit) v = times_x(v);
    tables[0][b] = v;
  }
  for (int k = 1; k < kSlices; ++k) {
    for (uint32_t b = 0; b < 256; ++b) tables[k][b] = (tables[k - 1][b] >> 8) ^ tables[0][tables[k - 1][b] & 0xffu];
  }
  return tables;
}

constexpr CrcTables kCrcTables = make_crc_tables();

// x^n mod P as a reflected 64-bit word.
constexpr uint64_t power_of_x(int n) {
  uint32_t v = 0x80000000u;
  for (int i = 0; i < n; ++i) v = times_x(v);
  return uint64_t{v} << 32;
}

// To fold over D bits: the lower word, which stands 64 bits further from the end, and the upper word.
constexpr uint64_t kFold512[2] = {power_of_x(512 + 63), power_of_x(512 - 1)};
constexpr uint64_t kFold128[2] = {power_of_x(128 + 63), power_of_x(128 - 1)};

// The four bytes of `word`, of which the last is followed by `after` bytes of the step.
inline uint32_t crc_word(uint32_t word, int after) {
  return kCrcTables[after + 3][word & 0xffu] ^ kCrcTables[after + 2][(word >> 8) & 0xffu] ^
         kCrcTables[after + 1][(word >> 16) & 0xffu] ^ kCrcTables[after][word >> 24];
}

// Continues the remainder v, without the inversions at both ends.
uint32_t crc_by_tables(const uint8_t* p, size_t n, uint32_t v) {
  for (; n >= 16; n -= 16, p += 16) {
    v = crc_word(v ^ load_u32(p), 12) ^ crc_word(load_u32(p + 4), 8) ^ crc_word(load_u32(p + 8), 4) ^
        crc_word(load_u32(p + 12), 0);
  }
  for (; n > 0; --n, ++p) v = (v >> 8) ^ kCrcTables[0][(v ^ *p) & 0xffu];
  return v;
}

}  // namespace
}  // namespace kpd
#endif  // KPD_BASE_CRC32_ONCE

HWY_BEFORE_NAMESPACE();
namespace kpd {
namespace {
namespace HWY_NAMESPACE {

#if !KPD_TARGET_IS_SCALAR

namespace hn = hwy::HWY_NAMESPACE;

// n >= kFoldBytes.
uint32_t crc_by_folding(const uint8_t* p, size_t n, uint32_t v) {
  const hn::FixedTag<uint64_t, 2> d;
  const hn::FixedTag<uint8_t, 16> d8;
  using V = hn::Vec<decltype(d)>;
  const auto load = [&](const uint8_t* from) HWY_ATTR { return hn::BitCast(d, hn::LoadU(d8, from)); };
  const auto fold = [&](V a, V k, V next)
                        HWY_ATTR { return hn::Xor(hn::Xor(hn::CLMulLower(a, k), hn::CLMulUpper(a, k)), next); };

  const uint64_t start[2] = {v, 0};
  V a0 = hn::Xor(load(p), hn::LoadU(d, start));
  V a1 = load(p + 16), a2 = load(p + 32), a3 = load(p + 48);
  const V k512 = hn::LoadU(d, kFold512);
  for (p += kFoldBytes, n -= kFoldBytes; n >= kFoldBytes; p += kFoldBytes, n -= kFoldBytes) {
    a0 = fold(a0, k512, load(p));
    a1 = fold(a1, k512, load(p + 16));
    a2 = fold(a2, k512, load(p + 32));
    a3 = fold(a3, k512, load(p + 48));
  }
  const V k128 = hn::LoadU(d, kFold128);
  const V last = fold(fold(fold(a0, k128, a1), k128, a2), k128, a3);
  uint8_t bytes[16];
  hn::StoreU(hn::BitCast(d8, last), d8, bytes);
  return crc_by_tables(p, n, crc_by_tables(bytes, sizeof(bytes), 0));
}

#endif  // !KPD_TARGET_IS_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace
}  // namespace kpd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kpd {
namespace {
KPD_KERNEL(crc_by_folding, uint32_t(const uint8_t* p, size_t n, uint32_t v));
uint32_t scalar::crc_by_folding(const uint8_t* p, size_t n, uint32_t v) { return crc_by_tables(p, n, v); }
KPD_DISPATCH(crc_by_folding);
}  // namespace

uint32_t crc32(std::span<const uint8_t> bytes, uint32_t crc) {
  // Short inputs never ask for the instruction set.
  if (bytes.size() < 2 * kFoldBytes) return ~crc_by_tables(bytes.data(), bytes.size(), ~crc);
  return ~crc_by_folding(bytes.data(), bytes.size(), ~crc);
}

}  // namespace kpd
#endif  // HWY_ONCE
