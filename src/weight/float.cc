// weight: the format "float": F32, F16 and BF16, laid out for the float product (src/kernels/float_product.h).
#include "kernels/float_product.h"
#include "kpd/base/block_type.h"
#include "weight/formats.h"
#include "weight/packed.h"

namespace kpd::weight {
namespace {

class FloatMatrix : public Matrix {
 public:
  FloatMatrix(const MatrixSource& source, int n_threads) : Matrix(source.n_out, source.n_in) {
    matrix_ = {float_dtype(source.weight().type), nullptr, n_out(), n_in()};
    size_ = kernels::float_packed_bytes(matrix_.dtype, n_out(), n_in());
    data_ = packed_bytes(size_);
    matrix_.bytes = data_.data;
    const size_t tile_bytes = kernels::float_packed_bytes(matrix_.dtype, tile(), n_in());
    pack_by_tiles(source, tile(), n_threads, [&](std::span<const uint8_t> rows, size_t n, size_t at) {
      kernels::pack_float_tiles(matrix_.dtype, rows, n, n_in(), 0, 1, {data_.data + at * tile_bytes, tile_bytes});
    });
  }

  std::string format() const override { return "float"; }
  uint64_t bytes() const override { return size_; }
  std::span<const Transform> inputs() const override { return {}; }
  size_t tile() const override { return kernels::kFloatTileOutputs; }
  void product(const MatrixInput& x, size_t first, size_t last, float* out, size_t stride) const override {
    kernels::float_product(matrix_, x.floats, n_in(), x.n_rows, first / tile(), (last + tile() - 1) / tile(), out, stride);
  }

 private:
  kernels::FloatMatrix matrix_;
  PackedBytes data_;
  size_t size_ = 0;
};

}  // namespace

Format float_format() {
  return {"float",
          "F32, F16 and BF16 as they are, in tiles for a float product",
          {},
          [](const MatrixSource& s) { return block_type_info(s.weight().type).block_values == 1; },
          [](const Spec&, const MatrixSource& s, int n_threads) -> std::unique_ptr<Matrix> {
            return std::make_unique<FloatMatrix>(s, n_threads);
          }};
}

}  // namespace kpd::weight
