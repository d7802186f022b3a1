// A method that seals, put together by the test: open blocks of floats, sealed ones of 8-bit numbers, keys by channel and
// values by token. What a query reads follows from its distance alone, whatever the cuts; what can be cut off exactly is said
// beforehand.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/expect_error.h"
#include "cache/float_formats.h"
#include "cache/registry.h"
#include "kpd/base/rng.h"

namespace kpd::cache {
namespace {

constexpr size_t kWidth = 8, kHeads = 2, kExactBlocks = 2, kKeptBlocks = 3;

// n numbers, `step` apart, as 8 bits each between their least and largest: two floats, then n bytes.
constexpr size_t coded_bytes(size_t n) { return 8 + n; }
void code(const float* x, size_t n, size_t step, uint8_t* out) {
  float least = x[0], most = x[0];
  for (size_t i = 0; i < n; ++i) {
    least = std::min(least, x[i * step]);
    most = std::max(most, x[i * step]);
  }
  const float scale = (most - least) / 255;
  std::memcpy(out, &least, 4);
  std::memcpy(out + 4, &scale, 4);
  for (size_t i = 0; i < n; ++i) out[8 + i] = scale == 0 ? 0 : static_cast<uint8_t>(std::lround((x[i * step] - least) / scale));
}
void decode(const uint8_t* in, size_t n, size_t step, float* x) {
  float least = 0, scale = 0;
  std::memcpy(&least, in, 4);
  std::memcpy(&scale, in + 4, 4);
  for (size_t i = 0; i < n; ++i) x[i * step] = least + scale * static_cast<float>(in[8 + i]);
}

// Sealed rows [64, kWidth], by channel or by token.
template <class Base, bool kByChannel>
class Coded : public Base {
 public:
  explicit Coded(std::unique_ptr<Base> open) : open_(std::move(open)) {}
  size_t part_bytes(PartState state) const override {
    if (state == PartState::kOpen) return open_->part_bytes(state);
    return kByChannel ? kWidth * coded_bytes(kBlockTokens) : kBlockTokens * coded_bytes(kWidth);
  }
  void append(uint8_t* open, size_t slot, const float* row) const override { open_->append(open, slot, row); }
  void seal(const uint8_t* open, uint8_t* sealed, size_t /*first_token*/) const override {
    std::vector<float> rows(kBlockTokens * kWidth);
    open_->read({open, PartState::kOpen}, 0, kBlockTokens, rows.data());
    for (size_t d = 0; kByChannel && d < kWidth; ++d)
      code(rows.data() + d, kBlockTokens, kWidth, sealed + d * coded_bytes(kBlockTokens));
    for (size_t t = 0; !kByChannel && t < kBlockTokens; ++t)
      code(rows.data() + t * kWidth, kWidth, 1, sealed + t * coded_bytes(kWidth));
  }
  void move(const uint8_t* from, size_t from_slot, uint8_t* to, size_t to_slot) const override {
    open_->move(from, from_slot, to, to_slot);
  }
  void read(ConstPart part, size_t first, size_t n, float* out) const override {
    if (part.state == PartState::kOpen) return open_->read(part, first, n, out);
    const std::vector<float> rows = sealed_rows(part.data);
    std::copy_n(rows.data() + first * kWidth, n * kWidth, out);
  }
  size_t saved_bytes(PartState state, size_t n) const override {
    return state == PartState::kOpen ? open_->saved_bytes(state, n) : part_bytes(state);
  }
  void save(ConstPart part, size_t n, uint8_t* bytes) const override {
    part.state == PartState::kOpen ? open_->save(part, n, bytes)
                                   : static_cast<void>(std::memcpy(bytes, part.data, part_bytes(part.state)));
  }
  void load(PartState state, std::span<const uint8_t> bytes, size_t n, uint8_t* part) const override {
    state == PartState::kOpen ? open_->load(state, bytes, n, part)
                              : static_cast<void>(std::memcpy(part, bytes.data(), bytes.size()));
  }

 protected:
  std::vector<float> sealed_rows(const uint8_t* sealed) const {
    std::vector<float> rows(kBlockTokens * kWidth);
    for (size_t d = 0; kByChannel && d < kWidth; ++d)
      decode(sealed + d * coded_bytes(kBlockTokens), kBlockTokens, kWidth, rows.data() + d);
    for (size_t t = 0; !kByChannel && t < kBlockTokens; ++t)
      decode(sealed + t * coded_bytes(kWidth), kWidth, 1, rows.data() + t * kWidth);
    return rows;
  }
  std::unique_ptr<Base> open_;
};

class CodedKeys final : public Coded<KeyFormat, true> {
 public:
  using Coded::Coded;
  void scores(const float* queries, size_t n_rows, ConstPart part, const uint8_t* next, float* scores,
              FormatScratch& scratch) const override {
    if (part.state == PartState::kOpen) return open_->scores(queries, n_rows, part, next, scores, scratch);
    const std::vector<float> keys = sealed_rows(part.data);
    for (size_t r = 0; r < n_rows; ++r) {
      for (size_t t = 0; t < kBlockTokens; ++t) {
        float sum = 0;
        for (size_t d = 0; d < kWidth; ++d) sum += queries[r * kWidth + d] * keys[t * kWidth + d];
        scores[r * kBlockTokens + t] = sum;
      }
    }
  }
};

// Sums are kept turned around, so that the driver's finish() is needed.
class CodedValues final : public Coded<ValueFormat, false> {
 public:
  using Coded::Coded;
  void add_weighted(const float* weights, size_t n_rows, ConstPart part, const uint8_t* /*next*/, float* sums,
                    FormatScratch& /*scratch*/) const override {
    std::vector<float> values(kBlockTokens * kWidth);
    read(part, 0, kBlockTokens, values.data());
    for (size_t r = 0; r < n_rows; ++r) {
      for (size_t t = 0; t < kBlockTokens; ++t) {
        for (size_t d = 0; d < kWidth; ++d)
          sums[r * kWidth + kWidth - 1 - d] += weights[r * kBlockTokens + t] * values[t * kWidth + d];
      }
    }
  }
  void finish(float* sums, size_t n_rows) const override {
    for (size_t r = 0; r < n_rows; ++r) std::reverse(sums + r * kWidth, sums + (r + 1) * kWidth);
  }
};

LayerFormats coded_formats(const Spec& /*spec*/, const Layer& /*layer*/) {
  return {std::make_unique<CodedKeys>(float_keys(DType::kFloat32, kWidth)),
          std::make_unique<CodedValues>(float_values(DType::kFloat32, kWidth)),
          {kExactBlocks, kKeptBlocks}};
}
LayerFormats plain_formats(const Spec& /*spec*/, const Layer& layer) { return float_formats(DType::kFloat32, layer); }

constexpr std::string_view kKeys[] = {"bits"};
constexpr MethodRow kRows[] = {{"coded", kKeys, coded_formats, nullptr}, {"plain", {}, plain_formats, nullptr}};

// Layer 0 seals, layer 1 does not; each has one KV head.
std::unique_ptr<KvCache> make(size_t capacity, int n_threads, const std::string& spec = "coded:bits=8") {
  const Layer layers[] = {{1, kWidth, kWidth, 0}, {1, kWidth, kWidth, 0}};
  const std::string specs[] = {spec, "plain"};
  return make_cache_of(kRows, specs, layers, capacity, n_threads);
}

std::vector<float> row_of(size_t token, int kind, size_t n) {
  CounterRng rng(3 * token + static_cast<size_t>(kind));
  std::vector<float> x(n);
  for (float& v : x) v = static_cast<float>(rng.next_normal());
  return x;
}

// Tokens [length, length + n) of sequence 0; both layers get the same. Returns layer 0's attention.
std::vector<float> append(KvCache& cache, SequenceId id, size_t n) {
  const size_t first = cache.length(id);
  std::vector<int32_t> positions;
  std::vector<float> q, k, v;
  for (size_t t = first; t < first + n; ++t) {
    positions.push_back(static_cast<int32_t>(t));
    for (auto [to, kind, width] : {std::tuple(&q, 0, kHeads * kWidth), std::tuple(&k, 1, kWidth), std::tuple(&v, 2, kWidth)}) {
      const std::vector<float> row = row_of(t, kind, width);
      to->insert(to->end(), row.begin(), row.end());
    }
  }
  std::vector<float> out(n * kHeads * kWidth), plain(out.size());
  cache.begin({{{id, positions}}});
  cache.attend(0, q.data(), k.data(), v.data(), out.data(), {kHeads, 0.3f, 0, 0});
  cache.attend(1, q.data(), k.data(), v.data(), plain.data(), {kHeads, 0.3f, 0, 0});
  cache.commit();
  return out;
}

// Attention of token `query` in double: tokens of blocks at least kExactBlocks behind its own as they were coded.
std::vector<double> expected(size_t query) {
  const CodedKeys keys(float_keys(DType::kFloat32, kWidth));
  const CodedValues values(float_values(DType::kFloat32, kWidth));
  std::vector<float> k((query + 1) * kWidth), v(k.size());
  for (size_t t = 0; t <= query; ++t) {
    std::ranges::copy(row_of(t, 1, kWidth), k.begin() + static_cast<std::ptrdiff_t>(t * kWidth));
    std::ranges::copy(row_of(t, 2, kWidth), v.begin() + static_cast<std::ptrdiff_t>(t * kWidth));
  }
  for (size_t b = 0; b + kExactBlocks <= query / kBlockTokens; ++b) {
    float* kb = k.data() + b * kBlockTokens * kWidth;
    float* vb = v.data() + b * kBlockTokens * kWidth;
    for (size_t d = 0; d < kWidth; ++d) {
      uint8_t coded[coded_bytes(kBlockTokens)];
      code(kb + d, kBlockTokens, kWidth, coded);
      decode(coded, kBlockTokens, kWidth, kb + d);
    }
    for (size_t t = 0; t < kBlockTokens; ++t) {
      uint8_t coded[coded_bytes(kWidth)];
      code(vb + t * kWidth, kWidth, 1, coded);
      decode(coded, kWidth, 1, vb + t * kWidth);
    }
  }
  const std::vector<float> q = row_of(query, 0, kHeads * kWidth);
  std::vector<double> out;
  for (size_t h = 0; h < kHeads; ++h) {
    double total = 0;
    std::vector<double> sum(kWidth, 0);
    for (size_t t = 0; t <= query; ++t) {
      double score = 0;
      for (size_t d = 0; d < kWidth; ++d)
        score += 0.3 * static_cast<double>(q[h * kWidth + d]) * static_cast<double>(k[t * kWidth + d]);
      total += std::exp(score);
      for (size_t d = 0; d < kWidth; ++d) sum[d] += std::exp(score) * static_cast<double>(v[t * kWidth + d]);
    }
    for (const double s : sum) out.push_back(s / total);
  }
  return out;
}

TEST(Sealing, WhatAQueryReadsFollowsFromItsDistance) {
  constexpr size_t kTokens = 700;
  const auto whole = make(kTokens, 1);
  const std::vector<float> out = append(*whole, 0, kTokens);
  for (const size_t query :
       {size_t{0}, size_t{63}, size_t{64}, size_t{127}, size_t{128}, size_t{191}, size_t{192}, size_t{500}, kTokens - 1}) {
    const std::vector<double> right = expected(query);
    for (size_t i = 0; i < right.size(); ++i) EXPECT_NEAR(out[query * right.size() + i], right[i], 1e-5) << query << " " << i;
  }
  for (const auto& [step, n_threads] : {std::pair(1, 1), std::pair(7, 3), std::pair(64, 1), std::pair(130, 3)}) {
    const auto cache = make(kTokens, n_threads);
    std::vector<float> pieces;
    while (cache->length(0) < kTokens) {
      const std::vector<float> some =
          append(*cache, 0, std::min<size_t>(static_cast<size_t>(step), kTokens - cache->length(0)));
      pieces.insert(pieces.end(), some.begin(), some.end());
    }
    EXPECT_EQ(pieces, out) << step;
    EXPECT_EQ(cache->save(0, "model"), whole->save(0, "model")) << step;
  }
}

// Open blocks of the past are given back: layer 0 has 4 of them at most, beside 10 sealed ones, layer 1 has 11.
TEST(Sealing, OpenBlocksAreGivenBack) {
  const auto cache = make(1024, 1);
  for (size_t i = 0; i < 100; ++i) append(*cache, 0, 7);
  const size_t open = 2 * kWidth * kBlockTokens * 4;
  const size_t sealed = kWidth * coded_bytes(kBlockTokens) + kBlockTokens * coded_bytes(kWidth);
  EXPECT_EQ(cache->bytes(), (4 + 11) * open + 10 * sealed);
  EXPECT_EQ(cache->bytes_for(700), cache->bytes());
}

TEST(Sealing, WhatCanBeCutExactlyIsSaidBefore) {
  constexpr size_t kTokens = 300;  // block 4 is begun, 2 and 3 are open too
  const auto cache = make(4096, 1);
  append(*cache, 0, kTokens);
  for (const auto& [n, reusable] :
       {std::pair(350, 350), std::pair(300, 300), std::pair(299, 299), std::pair(257, 257), std::pair(192, 192),
        std::pair(191, 0), std::pair(150, 0), std::pair(100, 0), std::pair(64, 0)}) {
    const auto length = static_cast<size_t>(n);
    EXPECT_EQ(cache->reusable(0, length), static_cast<size_t>(reusable)) << n;
    const Cut cut = cache->fork(0, 1, std::min(length, kTokens));
    EXPECT_EQ(cut.length, std::min(length, kTokens)) << n;
    EXPECT_EQ(cut.exact, reusable != 0) << n;
    EXPECT_EQ(cache->reusable(1, 400), cut.exact ? 400u : 0u) << n;
    // It goes on as one that never held more, or from what was coded: close to it.
    const std::vector<float> next = append(*cache, 1, 30);
    const auto fresh = make(4096, 1);
    append(*fresh, 0, cut.length);
    const std::vector<float> right = append(*fresh, 0, 30);
    if (cut.exact) {
      EXPECT_EQ(next, right) << n;
    } else {
      EXPECT_NE(next, right) << n;
      for (size_t i = 0; i < right.size(); ++i) EXPECT_NEAR(next[i], right[i], 0.02) << n << " " << i;
    }
  }
  append(*cache, 0, 1);
  EXPECT_EQ(cache->length(0), kTokens + 1);
}

// Where no open block is left for a tail that was sealed, the cut is at its beginning.
TEST(Sealing, ACutWithoutRoomIsAtABlock) {
  const auto cache = make(64 * 6, 1);
  append(*cache, 0, 300);  // 2, 3 and 4 are open: three are left, one for each of the first copies
  for (SequenceId id = 1; id < 5; ++id) {
    const Cut cut = cache->fork(0, id, 100);
    EXPECT_EQ(cut.length, id < 4 ? 100u : 64u);
    EXPECT_FALSE(cut.exact);
    EXPECT_EQ(cache->length(id), cut.length);
  }
  EXPECT_EQ(cache->length(0), 300u);
}

TEST(Sealing, SavedSequencesComeBack) {
  for (const size_t length : {size_t{30}, size_t{64}, size_t{300}}) {
    const auto a = make(1024, 1), b = make(1024, 1);
    append(*a, 0, length);
    a->fork(0, 1, length > 100 ? 100 : length);
    for (const SequenceId id : {0u, 1u}) {
      const std::vector<uint8_t> bytes = a->save(id, "model");
      b->load(7, bytes, "model", "file");
      EXPECT_EQ(b->save(7, "model"), bytes);
      EXPECT_EQ(b->reusable(7, 9999), a->reusable(id, 9999));
      EXPECT_EQ(append(*b, 7, 100), append(*a, id, 100));
      EXPECT_KPD_ERROR(kMismatch, "the method of layer 0 coded:bits=8, expected coded:bits=4",
                       make(1024, 1, "coded:bits=4")->load(0, bytes, "model", "file"));
      for (size_t at = 0; at < bytes.size(); at += 101) {
        std::vector<uint8_t> damaged = bytes;
        damaged[at] ^= 4;
        EXPECT_THROW(b->load(7, damaged, "model", "file"), Error) << at;  // the byte says which
      }
    }
  }
}

TEST(Sealing, TokensCannotBeTakenOut) {
  const auto cache = make(1024, 1);
  append(*cache, 0, 100);
  EXPECT_KPD_ERROR(kUnsupported, "a cache of coded:bits=8 cannot take tokens out", cache->evict(0, 3, 10, nullptr));
  cache->evict(0, 90, 10, nullptr);  // the end can be cut off
  EXPECT_EQ(cache->length(0), 90u);
  EXPECT_KPD_ERROR(kInvalidArgument, "unknown key 'bit'; did you mean 'bits'", make(64, 1, "coded:bit=8"));
}

}  // namespace
}  // namespace kpd::cache
