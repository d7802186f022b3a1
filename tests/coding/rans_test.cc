// rANS: round trips over random and extreme tables, the format against a plain decoder, size, and hostile streams.
#include "kpd/coding/rans.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/expect_error.h"
#include "kpd/base/bytes.h"
#include "kpd/base/error.h"
#include "kpd/base/hash.h"
#include "kpd/base/rng.h"

namespace kpd::coding {
namespace {

using Table = std::vector<uint16_t>;

// Random frequencies with sum 4096; `skew` concentrates them. Some are zero.
Table random_table(CounterRng& rng, int n_symbols, int skew) {
  std::vector<double> weights(n_symbols);
  double sum = 0;
  for (double& w : weights) sum += w = std::pow(rng.next_double(), skew);
  Table f(n_symbols);
  int total = 0;
  for (int s = 0; s < n_symbols; ++s) total += f[s] = static_cast<uint16_t>(4096 * weights[s] / sum);
  f[rng.next_below(n_symbols)] += static_cast<uint16_t>(4096 - total);
  return f;
}

std::vector<uint8_t> random_symbols(CounterRng& rng, const Table& f, size_t n) {
  std::vector<uint8_t> by_slot;
  for (size_t s = 0; s < f.size(); ++s) by_slot.insert(by_slot.end(), f[s], static_cast<uint8_t>(s));
  std::vector<uint8_t> out(n);
  for (uint8_t& s : out) s = by_slot[rng.next_below(4096)];
  return out;
}

std::vector<uint8_t> encode(const Table& f, const std::vector<uint8_t>& symbols) {
  std::vector<uint8_t> buffer(rans_max_bytes(symbols.size()));
  const std::span<const uint8_t> flush = rans_encode(RansEncodeTable(f), symbols, buffer);
  return {flush.begin(), flush.end()};
}

// The format's text, word for word.
std::vector<uint8_t> plain_decode(const Table& f, const std::vector<uint8_t>& flush, size_t n) {
  uint32_t x[8];
  for (int k = 0; k < 8; ++k) x[k] = load_u32(flush.data() + 4 * k);
  size_t next = 32;
  std::vector<uint8_t> out;
  for (size_t i = 0; i < n; ++i) {
    const uint32_t slot = x[i % 8] % 4096;
    uint32_t s = 0, start = 0;
    while (slot >= start + f[s]) start += f[s++];
    x[i % 8] = f[s] * (x[i % 8] / 4096) + slot - start;
    if (x[i % 8] < 65536) {
      x[i % 8] = x[i % 8] * 65536 + load_u16(flush.data() + next);
      next += 2;
    }
    out.push_back(static_cast<uint8_t>(s));
  }
  EXPECT_EQ(next, flush.size());
  for (uint32_t state : x) EXPECT_EQ(state, 65536u);
  return out;
}

TEST(Rans, RoundTripsOverRandomTables) {
  CounterRng rng(1);
  for (int trial = 0; trial < 300; ++trial) {
    const Table f = random_table(rng, 1 + static_cast<int>(rng.next_below(256)), 1 + trial % 12);
    const std::vector<uint8_t> symbols = random_symbols(rng, f, trial < 40 ? trial : rng.next_below(3000));
    const std::vector<uint8_t> flush = encode(f, symbols);
    std::vector<uint8_t> decoded(symbols.size());
    rans_decode(RansDecodeTable(f), flush, decoded);
    ASSERT_EQ(decoded, symbols);
    ASSERT_EQ(plain_decode(f, flush, symbols.size()), symbols);
  }
}

TEST(Rans, EveryFrequencyDividesExactly) {
  // Two symbols with f and 4096 - f: the reciprocal must be exact for every divisor over the whole range of states.
  CounterRng rng(2);
  for (uint16_t f = 1; f < 4096; ++f) {
    const Table table = {f, static_cast<uint16_t>(4096 - f)};
    std::vector<uint8_t> symbols(256);
    for (uint8_t& s : symbols) s = static_cast<uint8_t>(rng.next_u32() & 1);
    const std::vector<uint8_t> flush = encode(table, symbols);
    std::vector<uint8_t> decoded(symbols.size());
    rans_decode(RansDecodeTable(table), flush, decoded);
    ASSERT_EQ(decoded, symbols) << f;
  }
}

TEST(Rans, SizeIsNearTheEntropy) {
  CounterRng rng(3);
  for (int skew : {1, 4, 12}) {
    const Table f = random_table(rng, 20, skew);
    const std::vector<uint8_t> symbols = random_symbols(rng, f, 1 << 17);
    double bits = 0;
    for (uint8_t s : symbols) bits += 12 - std::log2(f[s]);
    const double coded = 8.0 * encode(f, symbols).size();
    EXPECT_NEAR(coded, bits + 128, 150 + 1e-4 * bits);
  }
}

TEST(Rans, OneSymbolWithAllTheFrequencyCostsNothing) {
  for (const Table& f : {Table{4096}, Table{0, 0, 4096, 0}}) {
    const auto symbol = static_cast<uint8_t>(f.size() == 1 ? 0 : 2);
    const std::vector<uint8_t> symbols(5000, symbol);
    const std::vector<uint8_t> flush = encode(f, symbols);
    EXPECT_EQ(flush.size(), 32u);
    std::vector<uint8_t> decoded(symbols.size());
    rans_decode(RansDecodeTable(f), flush, decoded);
    EXPECT_EQ(decoded, symbols);
  }
}

TEST(Rans, RunsWithTheirOwnTablesShareAFlush) {
  CounterRng rng(4);
  std::vector<Table> tables;
  std::vector<std::vector<uint8_t>> runs;
  uint64_t n = 0;
  for (int r = 0; r < 25; ++r) {
    tables.push_back(r % 7 == 3 ? Table{0, 4096} : random_table(rng, 2 + r, 1 + r % 5));
    runs.push_back(random_symbols(rng, tables.back(), rng.next_below(200)));
    n += runs.back().size();
  }
  std::vector<uint8_t> buffer(rans_max_bytes(n));
  RansEncoder encoder(buffer);
  for (int r = 24; r >= 0; --r) encoder.encode(RansEncodeTable(tables[r]), runs[r]);
  const std::span<const uint8_t> flush = encoder.finish();
  RansDecoder decoder(flush);
  for (int r = 0; r < 25; ++r) {
    std::vector<uint8_t> decoded(runs[r].size());
    decoder.decode(RansDecodeTable(tables[r]), decoded);
    ASSERT_EQ(decoded, runs[r]) << r;
  }
  EXPECT_NO_THROW(decoder.finish());
}

TEST(Rans, RefusesBadTablesAndSmallBuffers) {
  for (const Table& f : {Table{}, Table{4095}, Table{4096, 1}, Table{2048, 2047}, Table(257, 16)}) {
    EXPECT_KPD_ERROR(kInvalidArgument, "that sum to 4096", RansEncodeTable{f});
    EXPECT_KPD_ERROR(kInvalidArgument, "that sum to 4096", RansDecodeTable{f});
  }
  const Table f = {2048, 2048};
  const std::vector<uint8_t> symbols(100, 1);
  for (size_t size : {0, 10, 31, 32, 200, 231}) {
    std::vector<uint8_t> buffer(size);
    SCOPED_TRACE(size);
    EXPECT_KPD_ERROR(kInvalidArgument, "100 symbols need room", rans_encode(RansEncodeTable(f), symbols, buffer));
  }
  std::vector<uint8_t> tiny(31);
  EXPECT_KPD_ERROR(kInvalidArgument, "no room for the states", RansEncoder(tiny).finish());
}

// Decodes hostile bytes from an exact heap copy, so that the address sanitizer sees any stray read.
bool decodes(const RansDecodeTable& table, const std::vector<uint8_t>& flush, std::vector<uint8_t>& out) {
  const std::vector<uint8_t> copy(flush);
  try {
    rans_decode(table, copy, out, 7);
    return true;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCorruptData);
    EXPECT_EQ(std::string(error.what()).rfind("byte ", 0), 0u) << error.what();
    return false;
  }
}

TEST(Rans, TruncatedAndExtendedFlushesAreRefused) {
  CounterRng rng(5);
  const Table f = random_table(rng, 12, 3);
  const RansDecodeTable table(f);
  const std::vector<uint8_t> symbols = random_symbols(rng, f, 203);
  const std::vector<uint8_t> flush = encode(f, symbols);
  std::vector<uint8_t> out(symbols.size());
  for (size_t size = 0; size < flush.size(); ++size) {
    EXPECT_FALSE(decodes(table, {flush.begin(), flush.begin() + static_cast<ptrdiff_t>(size)}, out)) << size;
  }
  for (size_t extra : {1, 2, 16, 100}) {
    std::vector<uint8_t> longer(flush);
    longer.insert(longer.end(), extra, uint8_t{0});
    EXPECT_FALSE(decodes(table, longer, out)) << extra;
  }
  EXPECT_TRUE(decodes(table, flush, out));
  // Another number of symbols than was written.
  for (size_t n : {size_t{0}, size_t{1}, symbols.size() - 1, symbols.size() + 1, symbols.size() + 4000}) {
    std::vector<uint8_t> other(n);
    EXPECT_FALSE(decodes(table, flush, other)) << n;
  }
}

TEST(Rans, FlippedBitsAreRefused) {
  CounterRng rng(6);
  const Table f = random_table(rng, 30, 2);
  const RansDecodeTable table(f);
  const std::vector<uint8_t> symbols = random_symbols(rng, f, 150);
  const std::vector<uint8_t> flush = encode(f, symbols);
  std::vector<uint8_t> out(symbols.size());
  for (size_t bit = 0; bit < 8 * flush.size(); ++bit) {
    std::vector<uint8_t> damaged(flush);
    damaged[bit / 8] ^= static_cast<uint8_t>(1 << (bit % 8));
    EXPECT_FALSE(decodes(table, damaged, out)) << bit;
  }
  for (int trial = 0; trial < 2000; ++trial) {
    std::vector<uint8_t> noise(rng.next_below(300));
    for (uint8_t& b : noise) b = static_cast<uint8_t>(rng.next_u32());
    EXPECT_FALSE(decodes(table, noise, out));
  }
}

TEST(Rans, FlushIsFrozen) {
  const Table f = {1, 95, 1000, 2000, 900, 99, 1};
  CounterRng rng(7);
  const std::vector<uint8_t> flush = encode(f, random_symbols(rng, f, 1000));
  EXPECT_EQ(flush.size(), 242u);
  EXPECT_EQ(hex(sha256(flush)), "d701571abfc479cdba5bb38d506ffddddfa83c67ca155ec6df1e49687dbe807b");
}

}  // namespace
}  // namespace kpd::coding
