// weight: the format "stored": any type that can be read, where it lies: bytes are dequantized tile by tile whenever they are
// read, and multiplied in float. Exact arithmetic.
#include <algorithm>
#include <vector>

#include "kernels/float_product.h"
#include "kpd/quant/blocks.h"
#include "weight/formats.h"

namespace kpd::weight {
namespace {

constexpr size_t kTile = kernels::kFloatTileOutputs;
constexpr size_t kGatheredBytes = size_t{64} << 10;  // of stored rows at once

class StoredMatrix : public Matrix {
 public:
  explicit StoredMatrix(const MatrixSource& source) : Matrix(source.n_out, source.n_in), source_(source) {}

  std::string format() const override { return "stored"; }
  uint64_t bytes() const override { return 0; }
  std::span<const Transform> inputs() const override { return {}; }
  size_t tile() const override { return kTile; }

  void product(const MatrixInput& x, size_t first, size_t last, float* out, size_t stride) const override {
    // Kept by the thread: stored rows of some tiles, and sixteen of them as they come and as a tile.
    thread_local std::vector<uint8_t> stored;
    thread_local std::vector<const uint8_t*> at;
    thread_local std::vector<float> values, tile;
    values.resize(kTile * n_in());
    tile.resize(kTile * n_in());
    const StoredTensor& tensor = source_.weight();
    const size_t row_bytes = tensor.row_bytes();
    const size_t n_gathered = std::max<size_t>(kGatheredBytes / (kTile * row_bytes), 1) * kTile;
    for (size_t o = first; o < last; o += kTile) {
      const size_t n = std::min(kTile, last - o), in_gathered = (o - first) % n_gathered;
      if (in_gathered == 0) {
        const size_t n_rows = std::min(n_gathered, last - o);
        at.resize(std::max(at.size(), n_rows));
        source_.gather(o, n_rows, stored, at.data());
      }
      for (size_t j = 0; j < n; ++j) {
        quant::dequantize_blocks(tensor.type, {at[in_gathered + j], row_bytes}, 0, {values.data() + j * n_in(), n_in()});
      }
      kernels::pack_float_tile(values.data(), n_in(), n, n_in(), tile.data());
      const kernels::FloatMatrix w{DType::kFloat32, reinterpret_cast<const uint8_t*>(tile.data()), n, n_in()};
      kernels::float_product(w, x.floats, n_in(), x.n_rows, 0, 1, out + o, stride);
    }
  }

 private:
  MatrixSource source_;
};

}  // namespace

Format stored_format() {
  return {"stored",
          "any type where it lies in the file, dequantized whenever it is read: exact arithmetic",
          {},
          [](const MatrixSource&) { return true; },
          [](const Spec&, const MatrixSource& s, int) -> std::unique_ptr<Matrix> { return std::make_unique<StoredMatrix>(s); }};
}

}  // namespace kpd::weight
