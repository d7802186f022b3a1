// bench: integer weight products. One row (decode): packed weights read a second against the machine's read bandwidth of the
// same moment. Several rows (prefill): multiply-adds a second.
//
//   build/bench/bench_int_product [FORMAT] [THREADS]     default: all formats, 1 and 2 threads
//
// A set of different matrices of 128 MiB is gone through, so that one row's weights come from memory as in a model; the best
// matrix counts, and the best of as many readings of a plain array between them. 512 rows are multiplied with part of a matrix.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "kernels/int_product.h"
#include "kpd/base/cpu.h"
#include "kpd/base/dtype.h"
#include "kpd/base/rng.h"
#include "timing.h"

namespace {

using namespace kpd;
using namespace kpd::kernels;
using namespace kpd::bench;

constexpr size_t kSetBytes = size_t{128} << 20;

struct Set {
  MemoryBlock pages;
  std::vector<IntMatrix> matrices;

  Set(BlockType type, size_t n_out, size_t n_in) {
    const BlockTypeInfo& info = block_type_info(type);
    std::vector<uint8_t> src(n_out * n_in / info.block_values * info.block_bytes);
    CounterRng rng(1);
    for (size_t i = 0; i + 4 <= src.size(); i += 4) {
      const uint32_t word = rng.next_u32() & 0x1fff1fffu;  // no scale that is not finite
      std::memcpy(src.data() + i, &word, 4);
    }
    const IntLayout layout = *int_layout(type);
    const size_t one = packed_bytes(layout, n_out, n_in), count = std::max<size_t>(1, kSetBytes / one);
    pages = MemoryBlock(one * count);
    uint8_t* first = pages.data();
    pack_tiles(type, src, n_out, n_in, 0, (n_out + kTileOutputs - 1) / kTileOutputs, {first, one});
    for (size_t i = 0; i < count; ++i) {
      if (i > 0) std::memcpy(first + i * one, first, one);
      matrices.push_back({layout, first + i * one, n_out, n_in});
    }
  }
};

struct Shape {
  size_t n_out, n_in;
};

void measure(BlockType type, Shape shape, int n_threads, std::span<uint64_t> array) {
  const size_t block = block_type_info(type).block_values;
  if (shape.n_in % block != 0) return;
  const Set set(type, shape.n_out, shape.n_in);
  const double one_bytes = static_cast<double>(packed_bytes(set.matrices[0].layout, shape.n_out, shape.n_in));
  double best_read = 1e9;
  std::printf("| %s | %zu x %zu | %d |", block_type_info(type).name, shape.n_out, shape.n_in, n_threads);
  for (const size_t n_rows : {1u, 4u, 16u, 512u}) {
    std::vector<float> x(n_rows * shape.n_in), out(n_rows * shape.n_out);
    CounterRng rng(2);
    for (float& v : x) v = static_cast<float>(rng.next_normal());
    Int8Buffer rows;
    rows.resize(n_rows, shape.n_in);
    quantize_rows(x.data(), shape.n_in, 0, n_rows, rows);
    // One row's time is of at least 8 MB of weights in a row.
    const size_t count = n_rows == 1 ? static_cast<size_t>(8e6 / one_bytes) + 1 : 1;
    const size_t n_tiles = n_rows == 512 ? (size_t{1} << 18) / shape.n_in / kTileOutputs : set.matrices[0].n_tiles();
    double best = 1e9;
    for (size_t round = 0; round < 24; ++round) {
      if (n_rows == 1) best_read = std::min(best_read, seconds(n_threads, [&] { read_all(array, n_threads); }));
      const double time = seconds(n_threads, [&] {
        for (size_t i = 0; i < count; ++i) {
          const IntMatrix& w = set.matrices[(i + round * count) % set.matrices.size()];
          split(n_tiles, n_threads, [&](size_t t, size_t end) { int_product(w, rows.rows(), t, end, out.data(), w.n_out); });
        }
      });
      best = std::min(best, time / static_cast<double>(count));
    }
    if (n_rows == 1) {
      std::printf(" %.2f | %.2f |", static_cast<double>(array.size() * 8) / best_read / 1e9, one_bytes / best / 1e9);
    }
    const double macs = static_cast<double>(n_rows * n_tiles * kTileOutputs * shape.n_in);
    std::printf(" %.1f |", macs / best / 1e9);
    std::fflush(stdout);
  }
  std::printf("\n");
}

}  // namespace

int main(int argc, char** argv) {
  std::printf(
      "instruction set %s\n\n| format | shape | threads | read GB/s | weights GB/s at 1 row | 10^9 multiply-adds/s: 1 row | 4 "
      "| "
      "16 | 512 |\n|---|---|---|---|---|---|---|---|---|\n",
      active_isa().c_str());
  const MemoryBlock pages(kSetBytes);
  const std::span<uint64_t> array = words(pages);
  std::fill(array.begin(), array.end(), 1);
  for (const BlockType type :
       {BlockType::kQ4_0, BlockType::kQ4_1, BlockType::kIQ4_NL, BlockType::kIQ4_XS, BlockType::kQ4_K, BlockType::kQ5_0,
        BlockType::kQ5_1, BlockType::kQ5_K, BlockType::kQ6_K, BlockType::kQ8_0, BlockType::kQ2_K, BlockType::kQ3_K}) {
    if (argc > 1 && std::string(argv[1]) != "all" && std::string(argv[1]) != block_type_info(type).name) continue;
    for (const int n_threads : {1, 2}) {
      if (argc > 2 && std::atoi(argv[2]) != n_threads) continue;
      for (const Shape shape : {Shape{4096, 4096}, Shape{1536, 576}, Shape{576, 1536}, Shape{49152, 576}}) {
        measure(type, shape, n_threads, array);
      }
    }
  }
  return 0;
}
