// llm: exact arithmetic, float activations times the dequantized weights, for every type that can be read.
#include <algorithm>
#include <vector>

#include "kernels/matmul.h"
#include "kpd/quant/blocks.h"
#include "llm/linear_formats.h"

namespace kpd::llm {
namespace {

constexpr size_t kTile = 16;

class ExactMatrix : public WeightMatrix {
 public:
  explicit ExactMatrix(const WeightSource& source) : WeightMatrix(source.rows.size(), source.n_in), source_(source) {}

  uint64_t bytes() const override { return source_.rows.size() * sizeof(source_.rows[0]); }
  const Preparation* preparation() const override { return nullptr; }
  size_t tile() const override { return kTile; }

  void product(const PreparedRows& rows, size_t first, size_t last, float* out, size_t stride) const override {
    // Kept by the thread: sixteen rows of weights as they come, and as a panel.
    thread_local std::vector<float> values, panel;
    values.resize(kTile * n_in());
    panel.resize(kTile * n_in());
    const size_t row_bytes = source_.row_bytes();
    for (size_t o = first; o < last; o += kTile) {
      const size_t n = std::min(kTile, last - o);
      for (size_t j = 0; j < n; ++j)
        quant::dequantize_blocks(source_.type, {source_.rows[o + j], row_bytes}, 0, {values.data() + j * n_in(), n_in()});
      std::fill(values.begin() + static_cast<std::ptrdiff_t>(n * n_in()), values.end(), 0.0f);
      kernels::transpose_to_panel(values.data(), n_in(), n_in(), panel.data());
      kernels::matmul(rows.floats, panel.data(), out + o,
                      {.n_rows = rows.n_rows, .depth = n_in(), .n = n, .lda = n_in(), .ldb = kTile, .ldc = stride});
    }
  }

 private:
  WeightSource source_;
};

}  // namespace

std::unique_ptr<WeightMatrix> make_exact_matrix(const WeightSource& source) { return std::make_unique<ExactMatrix>(source); }

std::span<const LinearFormat> linear_formats() { return {}; }

}  // namespace kpd::llm
