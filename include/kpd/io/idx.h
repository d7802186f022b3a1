// io: IDX, the format of MNIST, Fashion-MNIST and EMNIST (Y. LeCun, "The MNIST database", file format): unsigned bytes of any
// shape, plain or gzip-compressed.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kpd/base/limits.h"

namespace kpd::io {

struct IdxArray {
  std::vector<uint64_t> shape;  // images: [n, rows, columns]; labels: [n]
  std::vector<uint8_t> data;    // row-major
};

// `bytes` are a whole file, gzip-compressed if they open with gzip's magic. Decompression stops at the size that the header's
// dimensions give, and that size is compared with what the compressed bytes can hold before it is allocated.
IdxArray parse_idx(std::span<const uint8_t> bytes, std::string_view name, const Limits& limits = {});

IdxArray load_idx(const std::string& path, const Limits& limits = {});

}  // namespace kpd::io
