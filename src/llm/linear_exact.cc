// llm: exact arithmetic, float activations times the dequantized weights, for every type that can be read.
#include <algorithm>
#include <vector>

#include "kernels/float_product.h"
#include "kpd/quant/blocks.h"
#include "llm/linear_formats.h"

namespace kpd::llm {
namespace {

constexpr size_t kTile = kernels::kFloatTileOutputs;

class ExactMatrix : public WeightMatrix {
 public:
  explicit ExactMatrix(const WeightSource& source) : WeightMatrix(source.rows.size(), source.n_in), source_(source) {}

  uint64_t bytes() const override { return source_.rows.size() * sizeof(source_.rows[0]); }
  const Preparation* preparation() const override { return nullptr; }
  size_t tile() const override { return kTile; }

  void product(const PreparedRows& rows, size_t first, size_t last, float* out, size_t stride) const override {
    // Kept by the thread: sixteen rows of weights as they come, and as a tile.
    thread_local std::vector<float> values, tile;
    thread_local std::vector<uint8_t> stored;
    values.resize(kTile * n_in());
    tile.resize(kTile * n_in());
    const size_t row_bytes = source_.row_bytes();
    for (size_t o = first; o < last; o += kTile) {
      const size_t n = std::min(kTile, last - o);
      const uint8_t* const bytes = source_.gather(o, n, stored);
      for (size_t j = 0; j < n; ++j) {
        quant::dequantize_blocks(source_.type, {bytes + j * row_bytes, row_bytes}, 0, {values.data() + j * n_in(), n_in()});
      }
      kernels::pack_float_tile(values.data(), n_in(), n, n_in(), tile.data());
      const kernels::FloatMatrix w{DType::kFloat32, reinterpret_cast<const uint8_t*>(tile.data()), n, n_in()};
      kernels::float_product(w, rows.floats, n_in(), rows.n_rows, 0, 1, out + o, stride);
    }
  }

 private:
  WeightSource source_;
};

}  // namespace

std::unique_ptr<WeightMatrix> make_exact_matrix(const WeightSource& source) { return std::make_unique<ExactMatrix>(source); }

}  // namespace kpd::llm
