// weight: groups of matrices (linear.h).
#include "weight/linear.h"

#include <algorithm>

#include "kpd/base/error.h"
#include "kpd/base/memory.h"
#include "kpd/base/threads.h"

namespace kpd::weight {
uint8_t* Workspace::bytes(size_t slot, size_t n) {
  if (slot >= buffers_.size()) buffers_.resize(slot + 1);
  buffers_[slot].resize(std::max<size_t>(n, 1));  // never null
  return buffers_[slot].data();
}

PreparedRows& Workspace::prepared(size_t step) {
  while (prepared_.size() <= step) prepared_.push_back(std::make_unique<PreparedRows>());
  return *prepared_[step];
}

void Linear::check(const Matrix& matrix) const {
  if (!matrices_.empty() && matrix.n_in() != matrices_.front()->n_in()) {
    fail(ErrorCode::kInvalidArgument, "a matrix of ", matrix.n_in(), " inputs beside one of ", matrices_.front()->n_in());
  }
  const std::span<const Transform> chain = matrix.inputs();
  for (size_t i = 0; i < chain.size(); ++i) {
    const bool rounds = chain[i].kind == TransformKind::kRoundInt8;
    if (chain[i].size != matrix.n_in() || (rounds && i + 1 != chain.size())) {
      fail(ErrorCode::kInvalidArgument, "a matrix of the format ", matrix.format(), ": step ", i, " of its input, ",
           transform_kind_name(chain[i].kind), " of ", chain[i].size, " values, does not fit ", matrix.n_in(), " values");
    }
  }
  if (const auto output = matrix.output();
      output && (output->size != matrix.n_out() || output->kind == TransformKind::kRoundInt8)) {
    fail(ErrorCode::kInvalidArgument, "a matrix of the format ", matrix.format(), ": its output, ",
         transform_kind_name(output->kind), " of ", output->size, " values, does not fit ", matrix.n_out(), " values");
  }
}

void Linear::add(std::unique_ptr<Matrix> matrix, std::vector<float> bias) {
  check(*matrix);
  if (!bias.empty() && bias.size() != matrix->n_out())
    fail(ErrorCode::kInvalidArgument, "a bias of ", bias.size(), " values for a matrix of ", matrix->n_out(), " outputs");
  matrices_.push_back(std::move(matrix));
  biases_.push_back(std::move(bias));
  plan();
}

void Linear::replace(size_t i, std::unique_ptr<Matrix> matrix) {
  if (i >= matrices_.size()) fail(ErrorCode::kInvalidArgument, "there is no matrix ", i, " in a group of ", matrices_.size());
  const Matrix& old = *matrices_[i];
  if (matrix->n_out() != old.n_out() || matrix->n_in() != old.n_in()) {
    fail(ErrorCode::kInvalidArgument, "a matrix of the shape [", matrix->n_out(), ", ", matrix->n_in(), "], expected [",
         old.n_out(), ", ", old.n_in(), "]");
  }
  check(*matrix);
  matrices_[i] = std::move(matrix);
  plan();
}

uint64_t Linear::bytes() const {
  uint64_t sum = 0;
  for (const auto& matrix : matrices_) sum += matrix->bytes();
  return sum;
}

size_t Linear::step_of(const Transform& transform, size_t from) {
  for (size_t i = 0; i < steps_.size(); ++i) {
    if (steps_[i].transform.value() == transform && steps_[i].from == from) return i;
  }
  steps_.push_back({RowTransform(transform), from});
  return steps_.size() - 1;
}

// Chains that begin alike share their steps.
void Linear::plan() {
  steps_.clear();
  chains_.clear();
  whole_.clear();
  outputs_.clear();
  for (size_t m = 0; m < matrices_.size(); ++m) {
    Chain chain;
    for (const Transform& transform : matrices_[m]->inputs()) {
      const size_t step = step_of(transform, chain.floats);
      (transform.kind == TransformKind::kRoundInt8 ? chain.codes : chain.floats) = step;
    }
    chains_.push_back(chain);
    if (const auto output = matrices_[m]->output()) {
      whole_.push_back(m);
      outputs_.emplace_back(*output);
    }
  }
}

const float* Linear::floats_of(size_t step, const float* x, Workspace& workspace) const {
  return step == kInput ? x : workspace.prepared(step).floats.data();
}

void Linear::prepare(const float* x, size_t n_rows, Workspace& workspace, int n_threads) const {
  if (steps_.empty()) return;
  for (size_t i = 0; i < steps_.size(); ++i) steps_[i].transform.resize(n_rows, workspace.prepared(i));
  constexpr size_t kRows = 16;
  parallel_for((n_rows + kRows - 1) / kRows, n_rows <= kRows ? 1 : n_threads, [&](size_t task, int) {
    for (size_t i = 0; i < steps_.size(); ++i) {
      steps_[i].transform.prepare(floats_of(steps_[i].from, x, workspace), task * kRows, std::min(n_rows, (task + 1) * kRows),
                                  workspace.prepared(i));
    }
  });
}

void Linear::add_bias(size_t m, size_t n_rows, size_t first, size_t last, float* out) const {
  const std::vector<float>& bias = biases_[m];
  if (bias.empty()) return;
  for (size_t r = 0; r < n_rows; ++r) {
    for (size_t o = first; o < last; ++o) out[r * bias.size() + o] += bias[o];
  }
}

// The matrices whose outputs are transformed: row by row, which needs all tiles of a row.
void Linear::finish(size_t n_rows, std::span<float* const> outs, int n_threads) const {
  if (whole_.empty()) return;
  parallel_for(whole_.size() * n_rows, n_threads, [&](size_t task, int) {
    const size_t m = whole_[task / n_rows];
    float* row = outs[m] + task % n_rows * matrices_[m]->n_out();
    outputs_[task / n_rows].apply(row, 1);
    add_bias(m, 1, 0, matrices_[m]->n_out(), row);
  });
}

namespace {

// The outputs of all matrices in pieces of whole tiles: several per thread, so that an interrupted thread does not hold the
// others up. The pieces are numbered matrix after matrix.
class Pieces {
 public:
  struct Piece {
    size_t matrix, first, last;
  };

  Pieces(std::span<const std::unique_ptr<Matrix>> matrices, int n_threads) : matrices_(matrices) {
    size_t n_out = 0;
    for (const auto& matrix : matrices) n_out += matrix->n_out();
    wanted_ = std::max<size_t>(n_threads <= 1 ? n_out : n_out / (static_cast<size_t>(n_threads) * 4), 16);
  }

  size_t size() const {
    size_t n = 0;
    for (const auto& matrix : matrices_) n += count(*matrix);
    return n;
  }

  Piece piece(size_t index) const {
    size_t m = 0;
    for (; index >= count(*matrices_[m]); ++m) index -= count(*matrices_[m]);
    const size_t first = index * step(*matrices_[m]);
    return {m, first, std::min(first + step(*matrices_[m]), matrices_[m]->n_out())};
  }

 private:
  size_t step(const Matrix& matrix) const { return round_up(wanted_, matrix.tile()); }
  size_t count(const Matrix& matrix) const { return (matrix.n_out() + step(matrix) - 1) / step(matrix); }

  std::span<const std::unique_ptr<Matrix>> matrices_;
  size_t wanted_;
};

}  // namespace

void Linear::run(const float* x, size_t n_rows, std::span<float* const> outs, Workspace& workspace, int n_threads) const {
  prepare(x, n_rows, workspace, n_threads);
  const Pieces pieces(matrices_, n_threads);
  parallel_for(pieces.size(), n_threads, [&](size_t task, int) {
    const Pieces::Piece piece = pieces.piece(task);
    const Matrix& matrix = *matrices_[piece.matrix];
    const Chain& chain = chains_[piece.matrix];
    const MatrixInput input{floats_of(chain.floats, x, workspace),
                            chain.codes == kInput ? nullptr : &workspace.prepared(chain.codes).code_rows, n_rows};
    float* out = outs[piece.matrix];
    matrix.product(input, piece.first, piece.last, out, matrix.n_out());
    if (!matrix.output()) add_bias(piece.matrix, n_rows, piece.first, piece.last, out);
  });
  finish(n_rows, outs, n_threads);
}

}  // namespace kpd::weight
