// base: limits that are on by default wherever bytes are parsed. A caller may raise them; data never can.
#pragma once

#include <cstdint>

namespace kpd {

struct Limits {
  uint64_t max_elements = uint64_t{1} << 36;        // of one tensor
  uint64_t max_total_elements = uint64_t{1} << 37;  // of one message or file
  uint32_t max_tensors = 1u << 20;
  uint32_t max_name_bytes = 4096;
  uint32_t max_dims = 16;
  uint64_t max_header_bytes = uint64_t{1} << 28;  // JSON or manifest
  // Decoded elements allowed per byte of input: stops a tiny message that claims a huge tensor. A block of zeros is the
  // extreme, 4 bytes for up to 32767 elements: a block of 16384 with a tail.
  uint64_t max_elements_per_byte = 8192;
};

}  // namespace kpd
