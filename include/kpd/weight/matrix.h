// weight: one matrix of weights as the forward pass sees it. How its values are stored is its format's business (format.h).
//
// y = T_out(W T_in(x)) + bias: the chain of input transforms T_in is applied to each row of the input, once for all matrices of
// a group that have the same chain; the output transform T_out to each row of the product, when it is whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

namespace kpd::kernels {
struct Int8Rows;
}

namespace kpd::weight {

enum class TransformKind : uint8_t {
  kRotate,      // the randomized Hadamard transform of `size` values, signs of `seed`: orthogonal
  kRotateBack,  // its inverse
  kRoundInt8,   // 8-bit codes with a scale for 32 values; the last of a chain
};
const char* transform_kind_name(TransformKind kind);  // "rotate", ...

// What is done to a row of `size` values. Transforms that are equal do the same.
struct Transform {
  TransformKind kind = TransformKind::kRotate;
  size_t size = 0;
  uint64_t seed = 0;

  friend bool operator==(const Transform&, const Transform&) = default;
};

// The rows that a product reads, behind the matrix's chain of input transforms.
struct MatrixInput {
  const float* floats = nullptr;             // [n_rows, n_in]: as they were before kRoundInt8
  const kernels::Int8Rows* codes = nullptr;  // what kRoundInt8 made of them; null without it
  size_t n_rows = 0;
};

// Immutable; thread-safe.
class Matrix {
 public:
  virtual ~Matrix() = default;
  size_t n_out() const { return n_out_; }
  size_t n_in() const { return n_in_; }
  virtual std::string format() const = 0;                                   // the spec that makes it
  virtual uint64_t bytes() const = 0;                                       // held in memory beside the mapped file
  virtual std::span<const Transform> inputs() const = 0;                    // the chain, in order; each of n_in values
  virtual std::optional<Transform> output() const { return std::nullopt; }  // of n_out values; no rounding
  virtual size_t tile() const = 0;                                          // outputs are computed in multiples of it
  // out[r * stride + o] = sum over i of W[o][i] x[r][i] for o in [first, last), multiples of tile() or n_out. Threads may
  // compute different outputs.
  virtual void product(const MatrixInput& x, size_t first, size_t last, float* out, size_t stride) const = 0;

 protected:
  Matrix(size_t n_out, size_t n_in) : n_out_(n_out), n_in_(n_in) {}

 private:
  size_t n_out_, n_in_;
};

}  // namespace kpd::weight
