// llm: fast arithmetic. Block types that have a whole-number product are laid out for it and their input becomes 8-bit codes;
// plain floats are laid out for the float product.
#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>
#include <vector>

#include "kernels/float_product.h"
#include "kernels/int_product.h"
#include "kpd/base/memory.h"
#include "kpd/base/threads.h"
#include "llm/linear_formats.h"

namespace kpd::llm {
namespace {

// A part of an arena, which it keeps alive.
struct PackedBytes {
  uint8_t* data = nullptr;
  std::shared_ptr<Arena> arena;
};

// Packed weights lie one behind the other in large blocks, which go when the last of their matrices does.
PackedBytes packed_bytes(size_t n) {
  constexpr size_t kBlockBytes = 8 * kHugePageBytes;
  static std::mutex mutex;
  static std::weak_ptr<Arena> newest;
  const std::lock_guard lock(mutex);
  std::shared_ptr<Arena> arena = newest.lock();
  if (arena == nullptr || !arena->has_room(n)) newest = arena = std::make_shared<Arena>(kBlockBytes);
  return {arena->take(n), arena};
}

// Tile after tile of source rows, contiguous, through pack(rows, n, tile's place).
template <class Pack>
void pack_by_tiles(const WeightSource& source, size_t tile_outputs, int n_threads, const Pack& pack) {
  const size_t n_out = source.rows.size(), row_bytes = source.row_bytes();
  parallel_for((n_out + tile_outputs - 1) / tile_outputs, n_threads, [&](size_t tile, int) {
    thread_local std::vector<uint8_t> rows;
    const size_t first = tile * tile_outputs, n = std::min(tile_outputs, n_out - first);
    rows.resize(n * row_bytes);
    for (size_t j = 0; j < n; ++j) std::memcpy(rows.data() + j * row_bytes, source.rows[first + j], row_bytes);
    pack(rows, n, tile);
  });
}

class Int8Prepared : public Prepared {
 public:
  kernels::Int8Buffer buffer;
};

class Int8Preparation : public Preparation {
 public:
  std::unique_ptr<Prepared> make() const override { return std::make_unique<Int8Prepared>(); }
  void resize(Prepared& prepared, size_t n_rows, size_t n_in) const override {
    static_cast<Int8Prepared&>(prepared).buffer.resize(n_rows, n_in);
  }
  void prepare(const float* x, size_t n_in, size_t first, size_t last, Prepared& prepared) const override {
    kernels::quantize_rows(x, n_in, first, last, static_cast<Int8Prepared&>(prepared).buffer);
  }
};

const Int8Preparation& int8_preparation() {
  static const Int8Preparation preparation;
  return preparation;
}

class IntegerMatrix : public WeightMatrix {
 public:
  IntegerMatrix(const WeightSource& source, int n_threads) : WeightMatrix(source.rows.size(), source.n_in) {
    matrix_ = {*kernels::int_layout(source.type), nullptr, n_out(), n_in()};
    size_ = kernels::packed_bytes(matrix_.layout, n_out(), n_in());
    data_ = packed_bytes(size_);
    matrix_.bytes = data_.data;
    const size_t tile_bytes = kernels::tile_bytes(matrix_.layout, n_in());
    pack_by_tiles(source, kernels::kTileOutputs, n_threads, [&](std::span<const uint8_t> rows, size_t n, size_t tile) {
      kernels::pack_tiles(source.type, rows, n, n_in(), 0, 1, {data_.data + tile * tile_bytes, tile_bytes});
    });
  }

  uint64_t bytes() const override { return size_; }
  const Preparation* preparation() const override { return &int8_preparation(); }
  size_t tile() const override { return kernels::kTileOutputs; }
  void product(const PreparedRows& rows, size_t first, size_t last, float* out, size_t stride) const override {
    const kernels::Int8Rows x = static_cast<const Int8Prepared&>(*rows.prepared).buffer.rows();
    kernels::int_product(matrix_, x, first / tile(), (last + tile() - 1) / tile(), out, stride);
  }

 private:
  kernels::IntMatrix matrix_;
  PackedBytes data_;
  size_t size_ = 0;
};

DType dtype_of(BlockType type) {
  return type == BlockType::kF32 ? DType::kFloat32 : type == BlockType::kF16 ? DType::kFloat16 : DType::kBFloat16;
}

class FloatMatrixWeights : public WeightMatrix {
 public:
  FloatMatrixWeights(const WeightSource& source, int n_threads) : WeightMatrix(source.rows.size(), source.n_in) {
    matrix_ = {dtype_of(source.type), nullptr, n_out(), n_in()};
    size_ = kernels::float_packed_bytes(matrix_.dtype, n_out(), n_in());
    data_ = packed_bytes(size_);
    matrix_.bytes = data_.data;
    const size_t tile_bytes = kernels::float_packed_bytes(matrix_.dtype, tile(), n_in());
    pack_by_tiles(source, tile(), n_threads, [&](std::span<const uint8_t> rows, size_t n, size_t at) {
      kernels::pack_float_tiles(matrix_.dtype, rows, n, n_in(), 0, 1, {data_.data + at * tile_bytes, tile_bytes});
    });
  }

  uint64_t bytes() const override { return size_; }
  const Preparation* preparation() const override { return nullptr; }
  size_t tile() const override { return kernels::kFloatTileOutputs; }
  void product(const PreparedRows& rows, size_t first, size_t last, float* out, size_t stride) const override {
    kernels::float_product(matrix_, rows.floats, n_in(), rows.n_rows, first / tile(), (last + tile() - 1) / tile(), out,
                           stride);
  }

 private:
  kernels::FloatMatrix matrix_;
  PackedBytes data_;
  size_t size_ = 0;
};

constexpr std::array<LinearFormat, 2> kFormats = {{
    {"integer",
     [](const WeightSource& s) { return kernels::int_layout(s.type).has_value() && s.n_in % kernels::kBlockCols == 0; },
     [](const WeightSource& s, int n_threads) -> std::unique_ptr<WeightMatrix> {
       return std::make_unique<IntegerMatrix>(s, n_threads);
     }},
    {"float", [](const WeightSource& s) { return block_type_info(s.type).block_values == 1; },
     [](const WeightSource& s, int n_threads) -> std::unique_ptr<WeightMatrix> {
       return std::make_unique<FloatMatrixWeights>(s, n_threads);
     }},
}};

}  // namespace

std::span<const LinearFormat> linear_formats() { return kFormats; }

}  // namespace kpd::llm
