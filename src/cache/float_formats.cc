// cache: see float_formats.h.
#include "cache/float_formats.h"

#include <algorithm>
#include <cstring>

#include "kernels/llm_ops.h"
#include "kpd/base/dtype.h"

namespace kpd::cache {
namespace {

constexpr size_t kFewRows = 6;  // so many read 16-bit floats as they are; for more it pays to widen a block once

// Whole parts as floats: a pointer into the cache, or into a buffer they were widened to.
const float* widen(DType dtype, const uint8_t* src, size_t n, std::vector<float>& buffer) {
  if (dtype == DType::kFloat32) return reinterpret_cast<const float*>(src);
  buffer.resize(n);
  const auto* halves = reinterpret_cast<const uint16_t*>(src);
  dtype == DType::kFloat16 ? kernels::widen_fp16(halves, n, buffer.data()) : kernels::widen_bf16(halves, n, buffer.data());
  return buffer.data();
}

// matmul with keys or values as a block holds them. Few rows of 16-bit values ask for `next`.
void multiply(DType dtype, const float* a, const uint8_t* part, float* c, const kernels::MatmulShape& shape,
              const uint8_t* next, std::vector<float>& buffer) {
  if (dtype == DType::kFloat32 || shape.n_rows > kFewRows) {
    kernels::matmul(a, widen(dtype, part, shape.depth * shape.n, buffer), c, shape);
  } else {
    const auto* halves = reinterpret_cast<const uint16_t*>(part);
    const auto* ahead = reinterpret_cast<const uint16_t*>(next);
    dtype == DType::kFloat16 ? kernels::matmul_fp16(a, halves, c, shape, ahead)
                             : kernels::matmul_bf16(a, halves, c, shape, ahead);
  }
}

// What keys and values share: a part is 64 * width elements, of which a saved file has those of the tokens that are there.
template <class Base>
class FloatFormat : public Base {
 public:
  FloatFormat(DType dtype, size_t width) : dtype_(dtype), width_(width), element_(dtype_bytes(dtype)) {}

  size_t part_bytes(PartState /*state*/) const override { return width_ * kBlockTokens * element_; }
  void seal(const uint8_t* open, uint8_t* sealed, size_t /*first_token*/) const override {
    std::memcpy(sealed, open, part_bytes(PartState::kOpen));
  }
  size_t saved_bytes(PartState /*state*/, size_t n) const override { return n * width_ * element_; }

 protected:
  DType dtype_;
  size_t width_, element_;
};

// Tokens are columns.
class FloatKeys final : public FloatFormat<KeyFormat> {
 public:
  using FloatFormat::FloatFormat;

  void append(uint8_t* open, size_t slot, const float* row) const override {
    thread_local std::vector<uint8_t> narrow;
    narrow.resize(width_ * element_);
    store_floats({row, width_}, dtype_, narrow.data());
    put(narrow.data(), slot, open);
  }
  void move(const uint8_t* from, size_t from_slot, uint8_t* to, size_t to_slot) const override {
    for (size_t d = 0; d < width_; ++d)
      std::memmove(to + (d * kBlockTokens + to_slot) * element_, from + (d * kBlockTokens + from_slot) * element_, element_);
  }
  void read(ConstPart part, size_t first, size_t n, float* rows) const override {
    std::vector<uint8_t> row(width_ * element_);
    for (size_t i = 0; i < n; ++i) {
      get(part.data, first + i, row.data());
      load_floats({row.data(), width_, dtype_}, 0, {rows + i * width_, width_});
    }
  }
  void save(ConstPart part, size_t n, uint8_t* bytes) const override {
    for (size_t i = 0; i < n; ++i) get(part.data, i, bytes + i * width_ * element_);
  }
  void load(PartState /*state*/, std::span<const uint8_t> bytes, size_t n, uint8_t* part) const override {
    for (size_t i = 0; i < n; ++i) put(bytes.data() + i * width_ * element_, i, part);
  }
  void scores(const float* queries, size_t n_rows, ConstPart part, const uint8_t* next, float* scores,
              FormatScratch& scratch) const override {
    multiply(dtype_, queries, part.data, scores, scores_shape(n_rows, width_), next, scratch.widened);
  }

 private:
  void put(const uint8_t* row, size_t slot, uint8_t* part) const {
    for (size_t d = 0; d < width_; ++d) std::copy_n(row + d * element_, element_, part + (d * kBlockTokens + slot) * element_);
  }
  void get(const uint8_t* part, size_t slot, uint8_t* row) const {
    for (size_t d = 0; d < width_; ++d) std::copy_n(part + (d * kBlockTokens + slot) * element_, element_, row + d * element_);
  }
};

// Tokens are rows.
class FloatValues final : public FloatFormat<ValueFormat> {
 public:
  using FloatFormat::FloatFormat;

  void append(uint8_t* open, size_t slot, const float* row) const override {
    store_floats({row, width_}, dtype_, open + slot * width_ * element_);
  }
  void move(const uint8_t* from, size_t from_slot, uint8_t* to, size_t to_slot) const override {
    std::memmove(to + to_slot * width_ * element_, from + from_slot * width_ * element_, width_ * element_);
  }
  void read(ConstPart part, size_t first, size_t n, float* rows) const override {
    load_floats({part.data, kBlockTokens * width_, dtype_}, first * width_, {rows, n * width_});
  }
  void save(ConstPart part, size_t n, uint8_t* bytes) const override {
    std::memcpy(bytes, part.data, saved_bytes(part.state, n));
  }
  void load(PartState state, std::span<const uint8_t> bytes, size_t n, uint8_t* part) const override {
    std::memcpy(part, bytes.data(), saved_bytes(state, n));
  }
  void add_weighted(const float* weights, size_t n_rows, ConstPart part, const uint8_t* next, float* sums,
                    FormatScratch& scratch) const override {
    multiply(dtype_, weights, part.data, sums, sums_shape(n_rows, width_), next, scratch.widened);
  }
};

}  // namespace

std::unique_ptr<KeyFormat> float_keys(DType dtype, size_t width) { return std::make_unique<FloatKeys>(dtype, width); }
std::unique_ptr<ValueFormat> float_values(DType dtype, size_t width) { return std::make_unique<FloatValues>(dtype, width); }

LayerFormats float_formats(DType dtype, const Layer& layer) {
  return {float_keys(dtype, layer.key_width), float_values(dtype, layer.value_width), {}};
}

}  // namespace kpd::cache
