// llm: groups of matrices, and the table of formats that lay weights out.
#include "kpd/llm/linear.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "kpd/base/error.h"
#include "kpd/base/threads.h"
#include "llm/linear_formats.h"

namespace kpd::llm {
namespace {

constexpr size_t kAlignment = 64;

size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

}  // namespace

const char* arithmetic_name(Arithmetic arithmetic) { return arithmetic == Arithmetic::kExact ? "exact" : "fast"; }

size_t WeightSource::row_bytes() const {
  const BlockTypeInfo& info = block_type_info(type);
  return n_in / info.block_values * info.block_bytes;
}

const uint8_t* WeightSource::gather(size_t first, size_t n, std::vector<uint8_t>& copies) const {
  const size_t bytes = row_bytes();
  copies.resize(std::max(copies.size(), n * bytes));
  // Rows that follow each other in the file are read at once.
  for (size_t i = 0; i < n;) {
    const uint8_t* const begin = rows[first + i];
    size_t run = 1;
    while (i + run < n && rows[first + i + run] == begin + run * bytes) ++run;
    if (!read && run == n) return begin;
    const std::span<uint8_t> to(copies.data() + i * bytes, run * bytes);
    if (read) {
      read(begin, to);
    } else {
      std::memcpy(to.data(), begin, to.size());
    }
    i += run;
  }
  return copies.data();
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

void Workspace::Free::operator()(uint8_t* p) const { ::operator delete[](p, std::align_val_t{kAlignment}); }

uint8_t* Workspace::bytes(size_t slot, size_t n) {
  if (slot >= buffers_.size()) buffers_.resize(slot + 1);
  Buffer& buffer = buffers_[slot];
  if (n > buffer.size || buffer.data == nullptr) {
    const size_t size = round_up(std::max(n, buffer.size + buffer.size / 2), kAlignment);
    buffer.data.reset();
    buffer.data.reset(static_cast<uint8_t*>(::operator new[](size, std::align_val_t{kAlignment})));
    buffer.size = size;
  }
  return buffer.data.get();
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

struct Piece {
  size_t matrix, first, last;
};

// The outputs of all matrices in pieces of whole tiles: several per thread, so that an interrupted thread does not hold the
// others up.
std::vector<Piece> split_outputs(const std::vector<std::unique_ptr<WeightMatrix>>& matrices, int n_threads) {
  size_t n_out = 0;
  for (const auto& matrix : matrices) n_out += matrix->n_out();
  const size_t wanted = n_threads <= 1 ? n_out : std::max<size_t>(n_out / (static_cast<size_t>(n_threads) * 4), 16);
  std::vector<Piece> pieces;
  for (size_t m = 0; m < matrices.size(); ++m) {
    const size_t step = round_up(wanted, matrices[m]->tile());
    for (size_t first = 0; first < matrices[m]->n_out(); first += step) {
      pieces.push_back({m, first, std::min(first + step, matrices[m]->n_out())});
    }
  }
  return pieces;
}

}  // namespace

void LinearGroup::run(const float* x, size_t n_rows, std::span<float* const> outs, Workspace& workspace, int n_threads) const {
  const size_t n_in = matrices_.front()->n_in();
  std::vector<const Preparation*> done;
  for (const auto& matrix : matrices_) {
    const Preparation* preparation = matrix->preparation();
    if (preparation == nullptr || std::find(done.begin(), done.end(), preparation) != done.end()) continue;
    done.push_back(preparation);
    Prepared& prepared = workspace.prepared(*preparation);
    preparation->resize(prepared, n_rows, n_in);
    constexpr size_t kRows = 16;
    parallel_for((n_rows + kRows - 1) / kRows, n_rows <= kRows ? 1 : n_threads, [&](size_t task, int) {
      preparation->prepare(x, n_in, task * kRows, std::min(n_rows, (task + 1) * kRows), prepared);
    });
  }
  const std::vector<Piece> pieces = split_outputs(matrices_, n_threads);
  parallel_for(pieces.size(), n_threads, [&](size_t task, int) {
    const Piece& piece = pieces[task];
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
