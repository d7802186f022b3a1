// bench: integer weight products. One row (decode): packed weights read a second against the machine's read bandwidth of the
// same moment. Several rows (prefill): multiply-adds a second.
//
//   build/bench/bench_int_product [FORMAT] [THREADS]     default: all formats, 1 and 2 threads
//
// A set of different matrices of at least 128 MiB is gone through, so that weights come from memory as in a model. Best of some
// rounds; a round reads a plain array right before the products.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "kernels/int_product.h"
#include "kpd/base/cpu.h"
#include "kpd/base/dtype.h"
#include "kpd/base/rng.h"
#include "kpd/base/threads.h"

namespace {

using namespace kpd;
using namespace kpd::kernels;

constexpr size_t kSetBytes = size_t{128} << 20;

double seconds(const std::function<void()>& fn) {
  const auto start = std::chrono::steady_clock::now();
  fn();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Reads the whole array once.
void read_all(const std::vector<uint64_t>& data, int n_threads) {
  constexpr size_t kChunk = size_t{1} << 17;
  static std::atomic<uint64_t> sink;
  parallel_for(data.size() / kChunk, n_threads, [&](size_t chunk, int) {
    uint64_t sums[8] = {};
    const uint64_t* p = data.data() + chunk * kChunk;
    for (size_t i = 0; i < kChunk; i += 8) {
      for (size_t k = 0; k < 8; ++k) sums[k] ^= p[i + k];
    }
    sink = sums[0] ^ sums[1] ^ sums[2] ^ sums[3] ^ sums[4] ^ sums[5] ^ sums[6] ^ sums[7];
  });
}

struct Set {
  std::vector<uint8_t> bytes;
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
    bytes.resize(one * count + 64);
    uint8_t* first = bytes.data() + (64 - reinterpret_cast<uintptr_t>(bytes.data()) % 64) % 64;
    pack_tiles(type, src, n_out, n_in, 0, (n_out + kTileOutputs - 1) / kTileOutputs, {first, one});
    for (size_t i = 0; i < count; ++i) {
      if (i > 0) std::memcpy(first + i * one, first, one);
      matrices.push_back({layout, first + i * one, n_out, n_in});
    }
  }
};

void multiply(const IntMatrix& w, const Int8Rows& x, int n_threads, std::vector<float>& out) {
  const size_t n_parts = n_threads == 1 ? 1 : static_cast<size_t>(n_threads) * 2, n_tiles = w.n_tiles();
  parallel_for(n_parts, n_threads, [&](size_t part, int) {
    int_product(w, x, n_tiles * part / n_parts, n_tiles * (part + 1) / n_parts, out.data(), w.n_out);
  });
}

struct Shape {
  size_t n_out, n_in;
};

void measure(BlockType type, Shape shape, int n_threads, const std::vector<uint64_t>& array) {
  const size_t block = block_type_info(type).block_values;
  if (shape.n_in % block != 0) return;
  const Set set(type, shape.n_out, shape.n_in);
  const double set_bytes = static_cast<double>(packed_bytes(set.matrices[0].layout, shape.n_out, shape.n_in)) *
                           static_cast<double>(set.matrices.size());
  std::printf("| %s | %zu x %zu | %d |", block_type_info(type).name, shape.n_out, shape.n_in, n_threads);
  for (const size_t n_rows : {1u, 4u, 16u, 512u}) {
    std::vector<float> x(n_rows * shape.n_in), out(n_rows * shape.n_out);
    CounterRng rng(2);
    for (float& v : x) v = static_cast<float>(rng.next_normal());
    Int8Buffer rows;
    rows.resize(n_rows, shape.n_in);
    quantize_rows(x.data(), shape.n_in, 0, n_rows, rows);
    const size_t count = n_rows == 512 ? 1 : n_rows == 1 ? set.matrices.size() : (set.matrices.size() + 3) / 4;
    double best = 1e9, best_read = 1e9;
    for (int round = 0; round < (n_rows == 512 ? 2 : 5); ++round) {
      if (n_rows == 1) best_read = std::min(best_read, seconds([&] { read_all(array, n_threads); }));
      best = std::min(best, seconds([&] {
                        for (size_t i = 0; i < count; ++i) multiply(set.matrices[i], rows.rows(), n_threads, out);
                      }));
    }
    if (n_rows == 1) {
      std::printf(" %.2f | %.2f |", static_cast<double>(array.size() * 8) / best_read / 1e9, set_bytes / best / 1e9);
    }
    const double macs = static_cast<double>(count) * static_cast<double>(n_rows * shape.n_out * shape.n_in);
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
  const std::vector<uint64_t> array(kSetBytes / 8, 1);
  for (const BlockType type :
       {BlockType::kQ4_0, BlockType::kQ4_1, BlockType::kIQ4_NL, BlockType::kQ4_K, BlockType::kQ6_K, BlockType::kQ8_0}) {
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
