// weight: memory of packed matrices, and how they are packed. Private.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "kpd/base/threads.h"
#include "kpd/weight/source.h"

namespace kpd::weight {

// A part of a larger piece of memory, which it keeps alive.
struct PackedBytes {
  uint8_t* data = nullptr;
  std::shared_ptr<void> owner;
};

// n bytes, aligned to 64. Packed weights lie one behind the other in large pieces of memory for which huge pages are asked: a
// step reads all of them once, and with pages of 4 KiB every page is a miss of the address cache. Thread-safe.
PackedBytes packed_bytes(size_t n);

// Tile after tile of the source's rows, contiguous, through pack(rows, n, tile's place).
template <class Pack>
void pack_by_tiles(const MatrixSource& source, size_t tile_outputs, int n_threads, const Pack& pack) {
  const StoredTensor& tensor = source.weight();
  const size_t n_out = source.n_out, row_bytes = tensor.row_bytes();
  parallel_for((n_out + tile_outputs - 1) / tile_outputs, n_threads, [&](size_t tile, int) {
    thread_local std::vector<uint8_t> rows;
    const size_t first = tile * tile_outputs, n = std::min(tile_outputs, n_out - first);
    rows.resize(n * row_bytes);
    for (size_t j = 0; j < n; ++j) {
      std::memcpy(rows.data() + j * row_bytes, tensor.bytes + source.stored_row(first + j) * row_bytes, row_bytes);
    }
    pack(rows, n, tile);
  });
}

}  // namespace kpd::weight
