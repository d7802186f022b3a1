// base: hashes. SHA-256 (FIPS 180-4).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

namespace kpd {

using Sha256Digest = std::array<uint8_t, 32>;
Sha256Digest sha256(std::span<const uint8_t> bytes);
std::string hex(std::span<const uint8_t> bytes);
// First 8 bytes of SHA-256, little-endian.
uint64_t hash64(std::span<const uint8_t> bytes);

}  // namespace kpd
