// The plain caches against attention written down directly, and what sequences may do: fork, crop, evict, save, load.
#include "kpd/cache/kv_cache.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "base/expect_error.h"
#include "kpd/base/bytes.h"
#include "kpd/base/crc32.h"
#include "kpd/base/rng.h"

namespace kpd::cache {
namespace {

constexpr size_t kHeads = 4, kKvHeads = 2, kDim = 16;
constexpr Layer kLayer{kKvHeads, kDim, kDim, 0};

std::vector<float> random_rows(size_t n, uint64_t seed) {
  CounterRng rng(seed);
  std::vector<float> x(n);
  for (float& v : x) v = static_cast<float>(rng.next_normal());
  return x;
}

// The rows that token `id` brings: the same wherever it stands.
std::vector<float> key(size_t id) { return random_rows(kKvHeads * kDim, 2 * id); }
std::vector<float> value(size_t id) { return random_rows(kKvHeads * kDim, 2 * id + 1); }

// Attention of one query over tokens `ids` at `positions`, in double.
std::vector<double> plain(std::span<const float> q, std::span<const size_t> ids, std::span<const int32_t> positions,
                          const AttendOptions& o) {
  std::vector<double> out(kHeads * kDim, 0);
  for (size_t h = 0; h < kHeads; ++h) {
    const size_t kv = h / (kHeads / kKvHeads);
    double total = 0;
    std::vector<double> sum(kDim, 0);
    for (size_t t = 0; t < ids.size(); ++t) {
      if (o.window > 0 && positions.back() - positions[t] >= static_cast<int32_t>(o.window)) continue;
      const auto k = key(ids[t]), v = value(ids[t]);
      double s = 0;
      for (size_t d = 0; d < kDim; ++d) s += static_cast<double>(q[h * kDim + d]) * static_cast<double>(k[kv * kDim + d]);
      s *= static_cast<double>(o.scale);
      if (o.softcap > 0) s = static_cast<double>(o.softcap) * std::tanh(s / static_cast<double>(o.softcap));
      const double w = std::exp(s);
      total += w;
      for (size_t d = 0; d < kDim; ++d) sum[d] += w * static_cast<double>(v[kv * kDim + d]);
    }
    for (size_t d = 0; d < kDim; ++d) out[h * kDim + d] = sum[d] / total;
  }
  return out;
}

// Appends tokens to a sequence and returns the last one's attention.
std::vector<float> append(KvCache& cache, SequenceId id, std::span<const size_t> tokens, const AttendOptions& o,
                          uint64_t query_seed) {
  std::vector<int32_t> positions;
  for (size_t i = 0; i < tokens.size(); ++i) positions.push_back(cache.next_position(id) + static_cast<int32_t>(i));
  std::vector<float> k, v;
  for (const size_t t : tokens) {
    const auto a = key(t), b = value(t);
    k.insert(k.end(), a.begin(), a.end());
    v.insert(v.end(), b.begin(), b.end());
  }
  const auto q = random_rows(tokens.size() * kHeads * kDim, 0);
  std::vector<float> queries = q;
  const auto last = random_rows(kHeads * kDim, query_seed);
  std::copy(last.begin(), last.end(), queries.end() - static_cast<std::ptrdiff_t>(last.size()));
  std::vector<float> out(queries.size());
  cache.begin({{{id, positions}}});
  cache.attend(0, queries.data(), k.data(), v.data(), out.data(), o);
  cache.commit();
  return {out.end() - static_cast<std::ptrdiff_t>(kHeads * kDim), out.end()};
}

std::vector<size_t> count(size_t first, size_t n) {
  std::vector<size_t> ids(n);
  for (size_t i = 0; i < n; ++i) ids[i] = first + i;
  return ids;
}

void expect_attention(std::span<const float> got, std::span<const size_t> ids, const AttendOptions& o, uint64_t query_seed,
                      double tolerance = 1e-5) {
  std::vector<int32_t> positions;
  for (size_t i = 0; i < ids.size(); ++i) positions.push_back(static_cast<int32_t>(i));
  const auto expected = plain(random_rows(kHeads * kDim, query_seed), ids, positions, o);
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], tolerance) << i;
}

constexpr AttendOptions kPlain{kHeads, 0.25f, 0, 0};

TEST(KvCache, AttentionIsThatOfThePaper) {
  for (const char* spec : {"f32", "f16", "bf16"}) {
    for (const AttendOptions& o : {kPlain, AttendOptions{kHeads, 0.25f, 2.0f, 0}, AttendOptions{kHeads, 0.25f, 0, 70}}) {
      const auto cache = make_cache(spec, std::span(&kLayer, 1), 1400, 2);
      const auto ids = count(100, 1300);
      const double tolerance = std::string(spec) == "f32" ? 1e-5 : std::string(spec) == "f16" ? 2e-3 : 2e-2;
      append(*cache, 7, std::span(ids).first(700), o, 1);
      expect_attention(append(*cache, 7, std::span(ids).subspan(700, 599), o, 5), std::span(ids).first(1299), o, 5, tolerance);
      expect_attention(append(*cache, 7, std::span(ids).subspan(1299, 1), o, 9), ids, o, 9, tolerance);
    }
  }
}

TEST(KvCache, ForksShareUntilOneWrites) {
  const auto cache = make_cache("f32", std::span(&kLayer, 1), 64 * 8, 1);
  const auto ids = count(0, 100);
  append(*cache, 0, ids, kPlain, 1);
  const uint64_t before = cache->bytes();
  cache->fork(0, 1, 90);
  EXPECT_EQ(cache->bytes(), before);
  EXPECT_EQ(cache->length(1), 90u);
  auto one = count(0, 90), zero = ids;
  one.push_back(500);
  expect_attention(append(*cache, 1, std::span(one).last(1), kPlain, 3), one, kPlain, 3);
  zero.push_back(600);
  expect_attention(append(*cache, 0, std::span(zero).last(1), kPlain, 4), zero, kPlain, 4);
  EXPECT_KPD_ERROR(kInvalidArgument, "102 were asked for", cache->fork(0, 2, 102));
}

// A cache that is exactly large enough for what its sequences hold apart: four begin alike and part in one step.
TEST(KvCache, AFullCacheLetsSharersPart) {
  const auto cache = make_cache("f32", std::span(&kLayer, 1), 64 * 4, 1);
  const auto ids = count(0, 10);
  append(*cache, 0, ids, kPlain, 1);
  for (SequenceId id = 1; id < 4; ++id) cache->fork(0, id, 10);
  const std::vector<int32_t> next = {10}, first = {0};
  Batch batch;
  std::vector<float> k, v;
  std::vector<float> q, out(4 * kHeads * kDim);
  for (SequenceId id = 0; id < 4; ++id) {
    batch.parts.push_back({id, next});
    const auto a = key(100 + id), b = value(100 + id), c = random_rows(kHeads * kDim, 7);
    k.insert(k.end(), a.begin(), a.end());
    v.insert(v.end(), b.begin(), b.end());
    q.insert(q.end(), c.begin(), c.end());
  }
  cache->begin(batch);
  cache->attend(0, q.data(), k.data(), v.data(), out.data(), kPlain);
  cache->commit();
  for (SequenceId id = 0; id < 4; ++id) {
    auto own = ids;
    own.push_back(100 + id);
    expect_attention(std::span(out).subspan(id * kHeads * kDim, kHeads * kDim), own, kPlain, 7);
  }
  cache->crop(3, 0);
  cache->fork(0, 3, 10);
  // Three blocks are held, one of them twice, and one is left: one writer may copy, another sequence may not begin beside it.
  EXPECT_KPD_ERROR(kLimitExceeded, "are left", cache->begin({{{3, next}, {4, first}}}));
  cache->begin({{{3, next}}});
}

TEST(KvCache, CropForgetsTheEnd) {
  const auto cache = make_cache("f32", std::span(&kLayer, 1), 256, 1);
  const auto ids = count(0, 150);
  append(*cache, 0, ids, kPlain, 1);
  cache->crop(0, 70);
  EXPECT_EQ(cache->length(0), 70u);
  EXPECT_EQ(cache->next_position(0), 70);
  auto rest = count(0, 70);
  rest.push_back(999);
  expect_attention(append(*cache, 0, std::span(rest).last(1), kPlain, 3), rest, kPlain, 3);
  cache->crop(0, 0);
  EXPECT_EQ(cache->length(0), 0u);
}

TEST(KvCache, EvictionClosesTheGap) {
  const auto cache = make_cache("f32", std::span(&kLayer, 1), 256, 1);
  append(*cache, 0, count(0, 150), kPlain, 1);
  struct Record : KeyRotation {
    mutable std::vector<std::pair<size_t, int32_t>> calls;
    void turn(size_t, float*, size_t n, int32_t by) const override { calls.emplace_back(n, by); }
  };
  const Record record;
  cache->evict(0, 4, 80, &record);
  EXPECT_EQ(record.calls, (std::vector<std::pair<size_t, int32_t>>{{66, -80}, {66, -80}}));
  EXPECT_EQ(cache->length(0), 70u);
  EXPECT_EQ(cache->next_position(0), 70);
  auto rest = count(0, 4);
  for (size_t i = 84; i < 150; ++i) rest.push_back(i);
  rest.push_back(7777);
  expect_attention(append(*cache, 0, std::span(rest).last(1), kPlain, 3), rest, kPlain, 3);
  EXPECT_KPD_ERROR(kInvalidArgument, "sequence 0 holds", cache->evict(0, 60, 12, nullptr));
}

TEST(KvCache, RefusalsLeaveItAsItWas) {
  const auto cache = make_cache("f32", std::span(&kLayer, 1), 128, 1);
  append(*cache, 0, count(0, 60), kPlain, 1);
  const std::vector<int32_t> back = {59}, fine = {60};
  std::vector<int32_t> many(100);
  for (size_t i = 0; i < many.size(); ++i) many[i] = 60 + static_cast<int32_t>(i);
  EXPECT_KPD_ERROR(kInvalidArgument, "position 59 does not follow 59", cache->begin({{{0, back}}}));
  EXPECT_KPD_ERROR(kLimitExceeded, "are left", cache->begin({{{0, many}}}));
  EXPECT_KPD_ERROR(kInvalidArgument, "is in the batch twice", cache->begin({{{0, fine}, {0, fine}}}));
  cache->begin({{{0, fine}}});  // never committed
  EXPECT_EQ(cache->length(0), 60u);
  auto ids = count(0, 60);
  ids.push_back(61);
  expect_attention(append(*cache, 0, std::span(ids).last(1), kPlain, 3), ids, kPlain, 3);
}

// Memory is taken as it is needed: a large capacity costs nothing, one that cannot be counted is refused.
TEST(KvCache, TheCapacityIsWhatWasAskedFor) {
  for (const size_t capacity : {size_t{0}, size_t{1}, size_t{64}, size_t{65}, size_t{kMaxCacheTokens}}) {
    const auto cache = make_cache("f16", std::span(&kLayer, 1), capacity, 1);
    EXPECT_EQ(cache->capacity(), (capacity + 63) / 64 * 64);
    EXPECT_EQ(cache->bytes(), 0u);
    ASSERT_EQ(cache->layers().size(), 1u);
    EXPECT_EQ(cache->layers()[0].n_kv_heads, kKvHeads);
    EXPECT_EQ(cache->layers()[0].key_width, kDim);
  }
  for (const size_t capacity : {size_t{kMaxCacheTokens} + 1, std::numeric_limits<size_t>::max()})
    EXPECT_KPD_ERROR(kInvalidArgument, "expected at most 274877906944", make_cache("f16", std::span(&kLayer, 1), capacity, 1));
}

// What comes behind the largest position that is taken can still be said.
TEST(KvCache, PositionsHaveAnEnd) {
  const auto cache = make_cache("f32", std::span(&kLayer, 1), 128, 1);
  constexpr int32_t kLast = std::numeric_limits<int32_t>::max() - 1;
  const std::vector<int32_t> beyond = {kLast + 1}, last = {kLast};
  EXPECT_KPD_ERROR(kInvalidArgument, "no position 2147483647", cache->begin({{{0, beyond}}}));
  cache->begin({{{0, last}}});
  cache->commit();
  EXPECT_EQ(cache->next_position(0), kLast + 1);
  std::vector<uint8_t> bytes = cache->save(0, "model");
  cache->load(1, bytes, "model", "file");
  // Behind the one position stand the parts of one block, its keys and values, and the checksum.
  const size_t at = bytes.size() - 4 - 2 * kKvHeads * kDim * sizeof(float) - 1 - 4;
  ASSERT_EQ(load_u32(bytes.data() + at), static_cast<uint32_t>(kLast));
  store_u32(bytes.data() + at, static_cast<uint32_t>(kLast) + 1);
  store_u32(bytes.data() + bytes.size() - 4, crc32(std::span(bytes).first(bytes.size() - 4)));
  EXPECT_KPD_ERROR(kCorruptData, "position 2147483647", cache->load(1, bytes, "model", "file"));
  EXPECT_EQ(cache->length(1), 1u);
}

TEST(KvCache, APlanBelongsToItsSequence) {
  const auto cache = make_cache("f32", std::span(&kLayer, 1), 256, 1);
  const Plan none, some{{100, 7}}, other{{200, 0}};
  EXPECT_EQ(cache->plan(0), none);
  cache->set_plan(0, other);
  cache->set_plan(0, some);
  const std::vector<int32_t> first = {0}, bad = {3, 3};
  EXPECT_KPD_ERROR(kInvalidArgument, "does not follow", cache->begin({{{0, bad}}}));
  cache->begin({{{0, first}, {1, first}}});  // never committed
  cache->begin({{{0, first}}});
  EXPECT_EQ(cache->plan(0), some) << "it does not hang on a token";
  EXPECT_EQ(cache->plan(1), none);
  append(*cache, 0, count(0, 70), kPlain, 1);
  cache->set_plan(0, some);
  EXPECT_KPD_ERROR(kInvalidArgument, "sequence 0 holds 70 tokens of another plan", cache->set_plan(0, other));
  cache->set_plan(1, other);
  for (const size_t shared : {size_t{70}, size_t{64}, size_t{1}}) {
    cache->fork(0, 1, shared);
    EXPECT_EQ(cache->plan(1), some) << shared;
  }
  cache->crop(0, 3);
  cache->evict(0, 0, 2, nullptr);
  EXPECT_EQ(cache->plan(0), some);
  cache->crop(0, 0);
  EXPECT_EQ(cache->plan(0), none);
  EXPECT_EQ(cache->plan(1), some);
}

TEST(KvCache, SavedSequencesComeBack) {
  for (const char* spec : {"f32", "f16"}) {
    const auto a = make_cache(spec, std::span(&kLayer, 1), 256, 1), b = make_cache(spec, std::span(&kLayer, 1), 256, 1);
    auto ids = count(0, 130);
    append(*a, 0, ids, kPlain, 1);
    const auto bytes = a->save(0, "model");
    b->load(5, bytes, "model", "file");
    EXPECT_EQ(b->save(5, "model"), bytes);
    ids.push_back(131);
    EXPECT_EQ(append(*a, 0, std::span(ids).last(1), kPlain, 3), append(*b, 5, std::span(ids).last(1), kPlain, 3));
    EXPECT_KPD_ERROR(kMismatch, "expected other", b->load(5, bytes, "other", "file"));
    EXPECT_KPD_ERROR(kMismatch, "expected bf16",
                     make_cache("bf16", std::span(&kLayer, 1), 256, 1)->load(0, bytes, "model", "file"));
    for (size_t cut = 0; cut < bytes.size(); cut += 97)
      EXPECT_KPD_ERROR(kCorruptData, "file: ", b->load(5, std::span(bytes).first(cut), "model", "file"));
    for (size_t at = 0; at < bytes.size(); at += 211) {
      auto flipped = bytes;
      flipped[at] ^= 0x10;
      EXPECT_THROW(b->load(5, flipped, "model", "file"), Error) << at;  // version, fingerprint, checksum: the byte says which
    }
    EXPECT_EQ(b->length(5), 131u);
  }
}

}  // namespace
}  // namespace kpd::cache
