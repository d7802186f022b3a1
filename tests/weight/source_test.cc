// Rows of a matrix in the tensors that it is made of.
#include "kpd/weight/source.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "base/expect_error.h"

namespace kpd::weight {
namespace {

constexpr size_t kRows = 100, kCols = 32, kBytes = kCols * sizeof(float);

// Row r has r * 100 + i in column i.
struct Memory {
  std::vector<float> values = std::vector<float>(kRows * kCols);
  Memory() {
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i / kCols * 100 + i % kCols);
  }
  StoredTensor tensor() const {
    return {"w", BlockType::kF32, kRows, kCols, reinterpret_cast<const uint8_t*>(values.data()), {}};
  }
};

MatrixSource rows_of(const StoredTensor& tensor, size_t first, size_t n, size_t pair_width = 0) {
  return {n, kCols, {{std::string(MatrixSource::kWeight), tensor}}, first, pair_width};
}

// Which stored rows they are.
std::vector<size_t> stored(const MatrixSource& source) {
  std::vector<float> values(source.n_out * kCols);
  source.values(0, source.n_out, values.data());
  std::vector<size_t> rows;
  for (size_t o = 0; o < source.n_out; ++o) {
    rows.push_back(static_cast<size_t>(values[o * kCols]) / 100);
    EXPECT_EQ(values[o * kCols + 7], static_cast<float>(rows.back() * 100 + 7));
    EXPECT_EQ(source.stored_row(o), rows.back());
  }
  return rows;
}

TEST(MatrixSource, SlicesAndPairs) {
  const Memory memory;
  EXPECT_EQ(stored(rows_of(memory.tensor(), 0, 3)), (std::vector<size_t>{0, 1, 2}));
  EXPECT_EQ(stored(rows_of(memory.tensor(), 97, 3)), (std::vector<size_t>{97, 98, 99}));
  // Halves of a head of six: the file has the two values of a pair side by side.
  EXPECT_EQ(stored(rows_of(memory.tensor(), 0, 6, 6)), (std::vector<size_t>{0, 2, 4, 1, 3, 5}));
  EXPECT_EQ(stored(rows_of(memory.tensor(), 10, 8, 4)), (std::vector<size_t>{10, 12, 11, 13, 14, 16, 15, 17}));
}

TEST(MatrixSource, RowsAreCopiedWhereTheyCannotBePointedAt) {
  const Memory memory;
  size_t n_reads = 0;
  StoredTensor tensor = memory.tensor();
  const MatrixSource plain = rows_of(tensor, 0, 6, 6);
  std::vector<const uint8_t*> at(kRows);
  std::vector<uint8_t> copies;
  const auto check = [&](const MatrixSource& source, size_t first, size_t n) {
    source.gather(first, n, copies, at.data());
    for (size_t i = 0; i < n; ++i) {
      EXPECT_EQ(std::memcmp(at[i], memory.values.data() + source.stored_row(first + i) * kCols, kBytes), 0)
          << first << ' ' << i;
    }
  };
  check(plain, 0, 6);
  EXPECT_EQ(at[1], tensor.bytes + 2 * kBytes) << "memory is not copied";
  EXPECT_TRUE(copies.empty());
  tensor.read = [&](const uint8_t* from, std::span<uint8_t> to) {
    ++n_reads;
    std::copy_n(from, to.size(), to.begin());
  };
  const MatrixSource source = rows_of(tensor, 0, 6, 6);
  check(source, 0, 6);
  EXPECT_EQ(n_reads, 1u) << "rows that lie near each other are read at once";
  check(source, 1, 3);
  check(source, 5, 1);
  EXPECT_EQ(n_reads, 3u);
  // Far from each other: each by itself, and nothing of what lies between.
  check(rows_of(tensor, 0, 100, 100), 49, 2);
  EXPECT_EQ(n_reads, 5u);
}

TEST(MatrixSource, WhatDoesNotFitIsNamed) {
  const Memory memory;
  StoredTensor tensor = memory.tensor();
  EXPECT_KPD_ERROR(kCorruptData, "w: 100 rows of 32 values, expected rows 98 to 101 of 32", rows_of(tensor, 98, 3).check());
  EXPECT_KPD_ERROR(kCorruptData, "w: 7 rows are not whole heads of 4", rows_of(tensor, 0, 7, 4).check());
  MatrixSource wide = rows_of(tensor, 0, 3);
  wide.n_in = 64;
  EXPECT_KPD_ERROR(kCorruptData, "of 32 values, expected rows 0 to 3 of 64", wide.check());
  tensor.type = BlockType::kQ4_K;
  EXPECT_KPD_ERROR(kCorruptData, "w: rows of 32 values are not whole blocks of Q4_K", rows_of(tensor, 0, 3).check());
  EXPECT_KPD_ERROR(kInvalidArgument, "w: there is no part 'scales'", rows_of(tensor, 0, 3).part("scales"));
  EXPECT_KPD_ERROR(kInvalidArgument, "no part 'weight'", MatrixSource{}.check());
}

}  // namespace
}  // namespace kpd::weight
