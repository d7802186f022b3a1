// llm: matrices of weights in the layout that their kernel wants, and groups of matrices that share an input.
//
// The forward pass knows only what stands here. A weight format is a WeightMatrix, a Preparation of its input if it wants one,
// and a row in the table of src/llm/linear.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kpd/base/block_type.h"
#include "kpd/base/memory.h"

namespace kpd::llm {

// exact: float activations times dequantized weights. fast: activations rounded to 8 bits, whole-number products where the
// format has them.
enum class Arithmetic { kExact, kFast };
const char* arithmetic_name(Arithmetic arithmetic);  // "exact", "fast"

// Rows of a stored matrix, in the order the model wants them. The bytes must outlive what is made of it in exact arithmetic.
struct WeightSource {
  std::string name;  // the tensor's, for errors
  BlockType type = BlockType::kF32;
  size_t n_in = 0;
  std::vector<const uint8_t*> rows;  // [n_out], block_bytes * n_in / block_values bytes each
  // Where the rows lie in a file that others may cut: how bytes of them are copied without a signal. Throws; thread-safe.
  // Empty: they are plain memory.
  std::function<void(const uint8_t* from, std::span<uint8_t> to)> read;
  size_t row_bytes() const;
  // The bytes of rows [first, first + n), a pointer each in `at`, which has room for n: into memory where they are that, else
  // into `copies`.
  void gather(size_t first, size_t n, std::vector<uint8_t>& copies, const uint8_t** at) const;
};

// What a preparation made of a group's input; memory is kept from call to call.
class Prepared {
 public:
  virtual ~Prepared() = default;
};

// What is done once to the rows of a group's input. Stateless; thread-safe.
class Preparation {
 public:
  virtual ~Preparation() = default;
  virtual std::unique_ptr<Prepared> make() const = 0;
  // Room for n_rows rows of n_in values.
  virtual void resize(Prepared& prepared, size_t n_rows, size_t n_in) const = 0;
  // Rows [first, last) of x [n_rows, n_in]; threads may prepare different rows.
  virtual void prepare(const float* x, size_t n_in, size_t first, size_t last, Prepared& prepared) const = 0;
};

// The input of a product: floats, and what the matrix's preparation made of them.
struct PreparedRows {
  const float* floats = nullptr;       // [n_rows, n_in]
  const Prepared* prepared = nullptr;  // null if the matrix has no preparation
  size_t n_rows = 0;
};

// Immutable; thread-safe.
class WeightMatrix {
 public:
  virtual ~WeightMatrix() = default;
  size_t n_out() const { return n_out_; }
  size_t n_in() const { return n_in_; }
  virtual uint64_t bytes() const = 0;                  // held in memory beside the mapped file
  virtual const Preparation* preparation() const = 0;  // null: the floats as they are
  virtual size_t tile() const = 0;                     // outputs are computed in multiples of it
  // out[r * stride + o] = sum over i of W[o][i] x[r][i] for o in [first, last), multiples of tile() or n_out.
  virtual void product(const PreparedRows& rows, size_t first, size_t last, float* out, size_t stride) const = 0;

 protected:
  WeightMatrix(size_t n_out, size_t n_in) : n_out_(n_out), n_in_(n_in) {}

 private:
  size_t n_out_, n_in_;
};

// Lays the weights out for the arithmetic asked for, on n_threads.
std::unique_ptr<WeightMatrix> make_matrix(const WeightSource& source, Arithmetic arithmetic, int n_threads);

// Memory that grows and is kept from call to call. Thread-compatible.
class Workspace {
 public:
  // At least n bytes, aligned to 64; valid until the next call with the same slot.
  uint8_t* bytes(size_t slot, size_t n);
  // What `preparation` keeps here.
  Prepared& prepared(const Preparation& preparation);
  float* floats(size_t slot, size_t n) { return reinterpret_cast<float*>(bytes(slot, n * sizeof(float))); }

 private:
  std::vector<AlignedBuffer<uint8_t>> buffers_;
  std::vector<std::pair<const Preparation*, std::unique_ptr<Prepared>>> prepared_;
};

// Matrices with one input. Immutable once filled; thread-safe with a workspace per caller.
class LinearGroup {
 public:
  // bias: [n_out], or empty.
  void add(std::unique_ptr<WeightMatrix> matrix, std::vector<float> bias);
  size_t size() const { return matrices_.size(); }
  const WeightMatrix& matrix(size_t i) const { return *matrices_[i]; }
  uint64_t bytes() const;

  // outs[m] [n_rows, n_out of m] = x [n_rows, n_in] W_m^T + bias_m, each preparation made once.
  void run(const float* x, size_t n_rows, std::span<float* const> outs, Workspace& workspace, int n_threads) const;

 private:
  std::vector<std::unique_ptr<WeightMatrix>> matrices_;
  std::vector<std::vector<float>> biases_;
};

}  // namespace kpd::llm
