// base: CRC-32 with zlib's polynomial.
#pragma once

#include <cstdint>
#include <span>

namespace kpd {

// Continues `crc` (0 to start) over bytes; equal to zlib's crc32().
uint32_t crc32(std::span<const uint8_t> bytes, uint32_t crc = 0);

}  // namespace kpd
