// weight: the format "integer": blocks that have an integer product (src/kernels/int_product.h), laid out for it. Their input
// becomes 8-bit codes.
#include <array>

#include "kernels/int_product.h"
#include "weight/formats.h"
#include "weight/packed.h"

namespace kpd::weight {
namespace {

class IntegerMatrix : public Matrix {
 public:
  IntegerMatrix(const MatrixSource& source, int n_threads)
      : Matrix(source.n_out, source.n_in), inputs_{{{TransformKind::kRoundInt8, source.n_in}}} {
    const BlockType type = source.weight().type;
    matrix_ = {*kernels::int_layout(type), nullptr, n_out(), n_in()};
    size_ = kernels::packed_bytes(matrix_.layout, n_out(), n_in());
    data_ = packed_bytes(size_);
    matrix_.bytes = data_.data;
    const size_t tile_bytes = kernels::tile_bytes(matrix_.layout, n_in());
    pack_by_tiles(source, kernels::kTileOutputs, n_threads, [&](std::span<const uint8_t> rows, size_t n, size_t tile) {
      kernels::pack_tiles(type, rows, n, n_in(), 0, 1, {data_.data + tile * tile_bytes, tile_bytes});
    });
  }

  std::string format() const override { return "integer"; }
  uint64_t bytes() const override { return size_; }
  std::span<const Transform> inputs() const override { return inputs_; }
  size_t tile() const override { return kernels::kTileOutputs; }
  void product(const MatrixInput& x, size_t first, size_t last, float* out, size_t stride) const override {
    kernels::int_product(matrix_, *x.codes, first / tile(), (last + tile() - 1) / tile(), out, stride);
  }

 private:
  std::array<Transform, 1> inputs_;
  kernels::IntMatrix matrix_;
  PackedBytes data_;
  size_t size_ = 0;
};

}  // namespace

Format integer_format() {
  return {"integer",
          "blocks of integers as ggml stores them, in tiles for an integer product with 8-bit activations",
          {},
          [](const MatrixSource& s) {
            return kernels::int_layout(s.weight().type).has_value() && s.n_in % kernels::kBlockCols == 0;
          },
          [](const Spec&, const MatrixSource& s, int n_threads) -> std::unique_ptr<Matrix> {
            return std::make_unique<IntegerMatrix>(s, n_threads);
          }};
}

}  // namespace kpd::weight
