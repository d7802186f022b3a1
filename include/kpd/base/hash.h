// base: checksums and hashes. CRC-32 with zlib's polynomial, SHA-256 (FIPS 180-4).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

namespace kpd {

// Continues `crc` (0 to start) over bytes; equal to zlib's crc32().
uint32_t crc32(std::span<const uint8_t> bytes, uint32_t crc = 0);

using Sha256Digest = std::array<uint8_t, 32>;
Sha256Digest sha256(std::span<const uint8_t> bytes);
std::string hex(std::span<const uint8_t> bytes);
// First 8 bytes of SHA-256, little-endian.
uint64_t hash64(std::span<const uint8_t> bytes);

}  // namespace kpd
