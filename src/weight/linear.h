// weight: matrices with one input, and how a step computes them. Private: users see matrices (kpd/weight/matrix.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "kpd/base/memory.h"
#include "kpd/weight/matrix.h"
#include "weight/prepared.h"

namespace kpd::weight {

// Memory that grows and is kept from call to call. Thread-compatible.
class Workspace {
 public:
  // At least n bytes, aligned to 64; valid until the next call with the same slot.
  uint8_t* bytes(size_t slot, size_t n);
  float* floats(size_t slot, size_t n) { return reinterpret_cast<float*>(bytes(slot, n * sizeof(float))); }
  // Of the step-th transform of a group; all groups use the same ones by turns.
  PreparedRows& prepared(size_t step);

 private:
  std::vector<AlignedBuffer<uint8_t>> buffers_;
  std::vector<std::unique_ptr<PreparedRows>> prepared_;
};

// Matrices with one input. Immutable while it runs; thread-safe then, with a workspace per caller.
class Linear {
 public:
  // bias: [n_out], or empty. Throws Error(kInvalidArgument) for a matrix of another n_in than those it has, or whose transforms
  // do not fit its sizes or each other.
  void add(std::unique_ptr<Matrix> matrix, std::vector<float> bias);
  // The bias stays. Throws Error(kInvalidArgument) as add(), and for another shape than that of the i-th matrix.
  void replace(size_t i, std::unique_ptr<Matrix> matrix);
  size_t size() const { return matrices_.size(); }
  const Matrix& matrix(size_t i) const { return *matrices_[i]; }
  uint64_t bytes() const;
  // Transforms that run() makes of its input.
  size_t n_steps() const { return steps_.size(); }

  // outs[m] [n_rows, n_out of m] = T_out(W_m T_in(x [n_rows, n_in])) + bias_m.
  void run(const float* x, size_t n_rows, std::span<float* const> outs, Workspace& workspace, int n_threads) const;

 private:
  static constexpr size_t kInput = SIZE_MAX;  // instead of a step: the input itself
  // A transform of what the step `from` made; a step stands behind the one that it reads.
  struct Step {
    RowTransform transform;
    size_t from = kInput;
  };
  // What a matrix reads: the last steps of its chain that make floats and codes.
  struct Chain {
    size_t floats = kInput, codes = kInput;
  };

  void check(const Matrix& matrix) const;
  void plan();
  size_t step_of(const Transform& transform, size_t from);
  const float* floats_of(size_t step, const float* x, Workspace& workspace) const;
  void prepare(const float* x, size_t n_rows, Workspace& workspace, int n_threads) const;
  void add_bias(size_t m, size_t n_rows, size_t first, size_t last, float* out) const;
  void finish(size_t n_rows, std::span<float* const> outs, int n_threads) const;

  std::vector<std::unique_ptr<Matrix>> matrices_;
  std::vector<std::vector<float>> biases_;
  std::vector<Step> steps_;
  std::vector<Chain> chains_;          // of each matrix
  std::vector<RowTransform> outputs_;  // of those in whole_
  std::vector<size_t> whole_;          // matrices with an output transform
};

}  // namespace kpd::weight
