// llm: groups of matrices, and the table of formats that lay weights out.
#include "kpd/llm/linear.h"

#include <algorithm>

#include "kpd/base/error.h"
#include "kpd/base/threads.h"
#include "llm/linear_formats.h"

namespace kpd::llm {
namespace {

size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

}  // namespace

const char* arithmetic_name(Arithmetic arithmetic) { return arithmetic == Arithmetic::kExact ? "exact" : "fast"; }

size_t WeightSource::row_bytes() const {
  const BlockTypeInfo& info = block_type_info(type);
  return n_in / info.block_values * info.block_bytes;
}

void WeightSource::gather(size_t first, size_t n, std::vector<uint8_t>& copies, const uint8_t** at) const {
  std::copy_n(rows.begin() + static_cast<std::ptrdiff_t>(first), n, at);
  if (!read || n == 0) return;
  const size_t bytes = row_bytes();
  const auto [lowest, highest] = std::minmax_element(at, at + n);
  const uint8_t* const begin = *lowest;
  const auto span = static_cast<size_t>(*highest - begin) + bytes;
  // Rows that lie near each other are read at once, with what lies between them: a call costs more than some bytes.
  constexpr size_t kSparse = 4;
  const bool together = span <= kSparse * n * bytes;
  copies.resize(std::max(copies.size(), together ? span : n * bytes));
  if (together) read(begin, {copies.data(), span});
  for (size_t i = 0; i < n; ++i) {
    uint8_t* const to = copies.data() + (together ? static_cast<size_t>(at[i] - begin) : i * bytes);
    if (!together) read(at[i], {to, bytes});
    at[i] = to;
  }
}

std::unique_ptr<WeightMatrix> make_matrix(const WeightSource& source, Arithmetic arithmetic, int n_threads) {
  if (source.n_in % block_type_info(source.type).block_values != 0) {
    fail(ErrorCode::kCorruptData, source.name, ": rows of ", source.n_in, " values are not whole blocks of ",
         block_type_info(source.type).name);
  }
  if (arithmetic == Arithmetic::kFast) {
    for (const LinearFormat& format : linear_formats()) {
      if (format.accepts(source)) return format.make(source, n_threads);
    }
  }
  return make_exact_matrix(source);
}

uint8_t* Workspace::bytes(size_t slot, size_t n) {
  if (slot >= buffers_.size()) buffers_.resize(slot + 1);
  buffers_[slot].resize(std::max<size_t>(n, 1));  // never null
  return buffers_[slot].data();
}

Prepared& Workspace::prepared(const Preparation& preparation) {
  for (const auto& [key, value] : prepared_) {
    if (key == &preparation) return *value;
  }
  prepared_.emplace_back(&preparation, preparation.make());
  return *prepared_.back().second;
}

void LinearGroup::add(std::unique_ptr<WeightMatrix> matrix, std::vector<float> bias) {
  matrices_.push_back(std::move(matrix));
  biases_.push_back(std::move(bias));
}

uint64_t LinearGroup::bytes() const {
  uint64_t sum = 0;
  for (const auto& matrix : matrices_) sum += matrix->bytes();
  return sum;
}

namespace {

// The outputs of all matrices in pieces of whole tiles: several per thread, so that an interrupted thread does not hold the
// others up. The pieces are numbered matrix after matrix.
class Pieces {
 public:
  struct Piece {
    size_t matrix, first, last;
  };

  Pieces(std::span<const std::unique_ptr<WeightMatrix>> matrices, int n_threads) : matrices_(matrices) {
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
  size_t step(const WeightMatrix& matrix) const { return round_up(wanted_, matrix.tile()); }
  size_t count(const WeightMatrix& matrix) const { return (matrix.n_out() + step(matrix) - 1) / step(matrix); }

  std::span<const std::unique_ptr<WeightMatrix>> matrices_;
  size_t wanted_;
};

}  // namespace

void LinearGroup::run(const float* x, size_t n_rows, std::span<float* const> outs, Workspace& workspace, int n_threads) const {
  const size_t n_in = matrices_.front()->n_in();
  for (size_t m = 0; m < matrices_.size(); ++m) {
    const Preparation* preparation = matrices_[m]->preparation();
    const auto end = matrices_.begin() + static_cast<std::ptrdiff_t>(m);
    const auto same = [&](const auto& matrix) { return matrix->preparation() == preparation; };
    if (preparation == nullptr || std::any_of(matrices_.begin(), end, same)) continue;
    Prepared& prepared = workspace.prepared(*preparation);
    preparation->resize(prepared, n_rows, n_in);
    constexpr size_t kRows = 16;
    parallel_for((n_rows + kRows - 1) / kRows, n_rows <= kRows ? 1 : n_threads, [&](size_t task, int) {
      preparation->prepare(x, n_in, task * kRows, std::min(n_rows, (task + 1) * kRows), prepared);
    });
  }
  const Pieces pieces(matrices_, n_threads);
  parallel_for(pieces.size(), n_threads, [&](size_t task, int) {
    const Pieces::Piece piece = pieces.piece(task);
    const WeightMatrix& matrix = *matrices_[piece.matrix];
    PreparedRows rows{x, nullptr, n_rows};
    if (matrix.preparation() != nullptr) rows.prepared = &workspace.prepared(*matrix.preparation());
    float* out = outs[piece.matrix];
    matrix.product(rows, piece.first, piece.last, out, matrix.n_out());
    const std::vector<float>& bias = biases_[piece.matrix];
    if (bias.empty()) return;
    for (size_t r = 0; r < n_rows; ++r) {
      for (size_t o = piece.first; o < piece.last; ++o) out[r * matrix.n_out() + o] += bias[o];
    }
  });
}

}  // namespace kpd::llm
