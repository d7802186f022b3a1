// llm: exact arithmetic, float activations times the dequantized weights, for every type that can be read.
#include <algorithm>
#include <vector>

#include "kernels/float_product.h"
#include "kpd/quant/blocks.h"
#include "llm/linear_formats.h"

namespace kpd::llm {
namespace {

constexpr size_t kTile = kernels::kFloatTileOutputs;
constexpr size_t kGatheredBytes = size_t{64} << 10;  // of stored rows at once

class ExactMatrix : public WeightMatrix {
 public:
  explicit ExactMatrix(const WeightSource& source) : WeightMatrix(source.rows.size(), source.n_in), source_(source) {}

  uint64_t bytes() const override { return source_.rows.size() * sizeof(source_.rows[0]); }
  const Preparation* preparation() const override { return nullptr; }
  size_t tile() const override { return kTile; }

  void product(const PreparedRows& rows, size_t first, size_t last, float* out, size_t stride) const override {
    // Kept by the thread: stored rows of some tiles, and sixteen of them as they come and as a tile.
    thread_local std::vector<uint8_t> stored;
    thread_local std::vector<const uint8_t*> at;
    thread_local std::vector<float> values, tile;
    values.resize(kTile * n_in());
    tile.resize(kTile * n_in());
    const size_t row_bytes = source_.row_bytes();
    const size_t n_gathered = std::max<size_t>(kGatheredBytes / (kTile * row_bytes), 1) * kTile;
    for (size_t o = first; o < last; o += kTile) {
      const size_t n = std::min(kTile, last - o), in_gathered = (o - first) % n_gathered;
      if (in_gathered == 0) {
        const size_t n_rows = std::min(n_gathered, last - o);
        at.resize(std::max(at.size(), n_rows));
        source_.gather(o, n_rows, stored, at.data());
      }
      for (size_t j = 0; j < n; ++j) {
        quant::dequantize_blocks(source_.type, {at[in_gathered + j], row_bytes}, 0, {values.data() + j * n_in(), n_in()});
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
