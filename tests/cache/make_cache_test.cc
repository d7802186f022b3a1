// How a cache is made of specs, what its hook sees, and where its memory lies.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "base/expect_error.h"
#include "cache/block_store.h"
#include "cache/float_formats.h"
#include "cache/registry.h"
#include "kpd/base/error.h"

namespace kpd::cache {
namespace {

using Texts = std::vector<std::string>;

TEST(LayerSpecs, NumbersAndRanges) {
  EXPECT_EQ(layer_specs("f16", {}, 3), (Texts{"f16", "f16", "f16"}));
  EXPECT_EQ(layer_specs("f16", Texts{"0,3=f32", "1-2=bf16"}, 5), (Texts{"f32", "bf16", "bf16", "f32", "f16"}));
  EXPECT_EQ(layer_specs("f32", Texts{"4-4=f16"}, 5), (Texts{"f32", "f32", "f32", "f32", "f16"}));
  EXPECT_EQ(layer_specs("bf16", {}, 0), Texts{});
}

TEST(LayerSpecs, WhatMakesNoSenseIsRefused) {
  const auto refused = [](const std::string& other, const std::string& why) {
    EXPECT_KPD_ERROR(kInvalidArgument, why, layer_specs("f16", Texts{other}, 4));
  };
  refused("f32", "'f32', expected LAYERS=SPEC, for example 0,4-7=f32");
  refused("=f32", "expected LAYERS=SPEC");
  refused("0=", "expected a method");
  refused("0=f8", "the cache method 'f8' is unknown; there are f32, f16, bf16");
  refused("0=f32:bits=2", "unknown key 'bits'");
  refused("4=f32", "'4=f32': layer 4, there are 4, from 0 on");
  refused("2-4=f32", "layer 4, there are 4");
  refused("3-2=f32", "'3-2', expected the number of a layer or a range like 4-7");
  for (const char* layers : {"x", "-1", "1-", "1-2-3", "0,,1", "0,", ",0", "+1", " 1", "99999999999999999999999"})
    refused(std::string(layers) + "=f32", "expected the number of a layer");
  refused("1,0-1=f32", "layer 1 is named twice");
  EXPECT_KPD_ERROR(kInvalidArgument, "layer 2 is named twice", layer_specs("f16", Texts{"2=f32", "2=bf16"}, 4));
  EXPECT_KPD_ERROR(kInvalidArgument, "'f8' is unknown", layer_specs("f8", {}, 4));
}

TEST(MakeCache, EachLayerHasItsSpec) {
  const Layer layers[] = {{2, 16, 16, 0}, {2, 16, 16, 0}, {1, 24, 8, 0}};
  const auto cache = make_cache(Texts{"f32", "f16", "bf16"}, layers, 100, 1);
  EXPECT_EQ(cache->spec(0) + cache->spec(1) + cache->spec(2), "f32f16bf16");
  EXPECT_EQ(cache->bytes_for(100), 128u * (2 * 32 * 4 + 2 * 32 * 2 + 32 * 2));
  EXPECT_EQ(cache->capacity_bytes(), cache->bytes_for(100));
  EXPECT_KPD_ERROR(kInvalidArgument, "2 specs for 3 layers", make_cache(Texts{"f32", "f16"}, layers, 100, 1));
  EXPECT_KPD_ERROR(kInvalidArgument, "expected a method", make_cache("", layers, 100, 1));
  EXPECT_KPD_ERROR(kInvalidArgument, "'q4' is unknown", make_cache("q4", {}, 100, 1));
  EXPECT_EQ(method_names().size(), method_rows().size());
}

TEST(MakeCache, GgmlTypesAndTheirWidths) {
  const auto bytes = [](const std::string& spec, size_t key_width, size_t value_width) {
    return make_cache(spec, std::vector<Layer>{{1, key_width, value_width, 0}}, 64, 1)->bytes_for(64) / 64;
  };
  // A block of 32 numbers: q8_0 34 bytes, q4_0 and iq4_nl 18, q4_1 20, q5_0 22, q5_1 24.
  EXPECT_EQ(bytes("q8_0", 64, 96), 5u * 34);
  EXPECT_EQ(bytes("q4_0", 64, 64), 4u * 18);
  EXPECT_EQ(bytes("iq4_nl", 64, 64), 4u * 18);
  EXPECT_EQ(bytes("q4_1", 32, 32), 2u * 20);
  EXPECT_EQ(bytes("q5_0", 128, 64), 6u * 22);
  EXPECT_EQ(bytes("q5_1", 64, 64), 4u * 24);
  EXPECT_EQ(bytes("ggml:k=q8_0,v=f16", 64, 20), 2u * 34 + 40);
  EXPECT_EQ(bytes("ggml", 20, 12), 2u * 32);
  EXPECT_KPD_ERROR(kUnsupported, "keys of 80 numbers a head cannot be stored as Q8_0, in blocks of 32", bytes("q8_0", 80, 64));
  EXPECT_KPD_ERROR(kUnsupported, "values of 20 numbers", bytes("ggml:v=q4_0", 80, 20));
  EXPECT_KPD_ERROR(kUnsupported, "rotate=hadamard: heads of 96 numbers, expected a multiple of 64",
                   bytes("ggml:k=q8_0,rotate=hadamard", 96, 64));
  EXPECT_KPD_ERROR(kInvalidArgument, "k=q6_k", bytes("ggml:k=q6_k", 64, 64));
  EXPECT_KPD_ERROR(kInvalidArgument, "unknown key 'k'", bytes("q8_0:k=f16", 64, 64));
}

// Of a token with a NaN or infinity only its own block is lost, and no number comes out that looks right.
TEST(MakeCache, GgmlBlocksKeepWhatIsNotFinite) {
  for (const char* spec : {"q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1"}) {
    for (const float odd : {HUGE_VALF, -HUGE_VALF, NAN}) {
      const auto cache = make_cache(str("ggml:k=f32,v=", spec, ",rotate=none"), std::vector<Layer>{{1, 1, 64, 0}}, 64, 1);
      const std::vector<int32_t> positions = {0};
      std::vector<float> v(64, 0.5f), out(64);
      v[40] = odd;
      const float q = 1, k = 1;
      cache->begin({{{0, positions}}});
      cache->attend(0, &q, &k, v.data(), out.data(), {1, 1, 0, 0});
      cache->commit();
      for (size_t i = 0; i < 64; ++i) EXPECT_EQ(std::isnan(out[i]), i >= 32) << spec << " " << odd << " " << i;
    }
  }
}

// A method that fits no blocks.
class OwnCache final : public KvCache {
 public:
  void begin(const Batch& batch) override { n_rows_ = batch.n_rows(); }
  void commit() override {}
  size_t length(SequenceId /*s*/) const override { return 0; }
  int32_t next_position(SequenceId /*s*/) const override { return 0; }
  Cut crop(SequenceId /*s*/, size_t /*length*/) override { return {}; }
  Cut fork(SequenceId /*from*/, SequenceId /*to*/, size_t /*length*/) override { return {}; }
  size_t reusable(SequenceId /*s*/, size_t /*n*/) const override { return 0; }
  void evict(SequenceId /*s*/, size_t /*first*/, size_t /*n*/, const KeyRotation* /*rotation*/) override {}
  Plan plan(SequenceId /*s*/) const override { return {}; }
  void set_plan(SequenceId /*s*/, const Plan& /*plan*/) override {}
  std::vector<uint8_t> save(SequenceId /*s*/, std::string_view /*fingerprint*/) const override { return {}; }
  void load(SequenceId /*s*/, std::span<const uint8_t> /*b*/, std::string_view /*f*/, std::string_view /*n*/) override {}
  std::span<const Layer> layers() const override { return layers_; }
  std::string spec(size_t /*layer*/) const override { return "own"; }
  uint64_t bytes() const override { return 0; }
  uint64_t capacity_bytes() const override { return 0; }
  uint64_t bytes_for(size_t /*tokens*/) const override { return 0; }
  size_t capacity() const override { return 0; }

 protected:
  void attend_rows(size_t /*layer*/, const float* q, const float* /*k*/, const float* /*v*/, float* out,
                   const AttendOptions& /*options*/) override {
    out[0] = q[0];
  }
  size_t pending_rows() const override { return n_rows_; }

 private:
  std::vector<Layer> layers_ = {{1, 1, 1, 0}};
  size_t n_rows_ = 0;
};

LayerFormats plain(const Spec& /*spec*/, const Layer& layer) { return float_formats(DType::kFloat32, layer); }
std::unique_ptr<KvCache> own(const Spec& /*spec*/, std::span<const Layer> /*layers*/, size_t /*capacity*/, int /*threads*/) {
  return std::make_unique<OwnCache>();
}
constexpr MethodRow kRows[] = {{"plain", {}, plain, nullptr}, {"own", {}, nullptr, own}};

TEST(MakeCache, AMethodOfItsOwnSharesWithNoOther) {
  const Layer layers[] = {{1, 1, 1, 0}, {1, 1, 1, 0}};
  EXPECT_EQ(make_cache_of(kRows, Texts{"own", "own"}, layers, 64, 1)->spec(0), "own");
  EXPECT_KPD_ERROR(kInvalidArgument, "own and plain cannot share a cache",
                   make_cache_of(kRows, Texts{"own", "plain"}, layers, 64, 1));
  EXPECT_KPD_ERROR(kInvalidArgument, "own and plain cannot share a cache",
                   make_cache_of(kRows, Texts{"plain", "own"}, layers, 64, 1));
}

// Of every method: also of one that has blocks of its own.
TEST(Hook, SeesWhatIsStored) {
  for (const bool is_own : {false, true}) {
    const Layer layers[] = {{1, 1, 1, 0}};
    const auto cache = make_cache_of(kRows, Texts{is_own ? "own" : "plain"}, layers, 64, 1);
    const std::vector<int32_t> positions = {0, 1};
    const float q[] = {1, 2, 3, 4}, k[] = {5, 6}, v[] = {7, 8};
    float out[4];
    std::vector<float> seen;
    cache->set_hook([&](const AttendInput& in, const AttendOptions& options) {
      EXPECT_EQ(in.layer, 0u);
      seen.insert(seen.end(), in.q, in.q + in.n_rows * options.n_heads);
      seen.insert(seen.end(), in.k, in.k + in.n_rows);
      seen.insert(seen.end(), in.v, in.v + in.n_rows);
    });
    cache->begin({{{0, positions}}});
    cache->attend(0, q, k, v, out, {2, 1, 0, 0});
    cache->commit();
    EXPECT_EQ(seen, (std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8}));
    EXPECT_KPD_ERROR(kInvalidArgument, "layer 1, the cache has 1", cache->attend(1, q, k, v, out, {2, 1, 0, 0}));
    EXPECT_KPD_ERROR(kInvalidArgument, "0 heads cannot share", cache->attend(0, q, k, v, out, {0, 1, 0, 0}));
    cache->set_hook({});
    cache->begin({});
    EXPECT_EQ(seen.size(), 8u);
  }
}

TEST(BlockStore, PartsLieAtMultiplesOf64Bytes) {
  const Layer shape{3, 5, 7, 0};
  std::vector<StoreGroup> groups;
  groups.push_back({shape, "f16", float_formats(DType::kFloat16, shape)});
  BlockStore store(std::move(groups), {0, 0}, 8);
  std::vector<int32_t> positions(130);
  std::iota(positions.begin(), positions.end(), 0);
  store.sequences.begin({{{1, positions}}});
  store.sequences.commit();
  std::vector<const uint8_t*> parts;
  for (size_t layer = 0; layer < 2; ++layer) {
    for (size_t head = 0; head < 3; ++head) {
      for (size_t b = 0; b < 3; ++b) {
        parts.push_back(store.keys(*store.sequences.find(1), layer, head, b, PartState::kOpen).data);
        parts.push_back(store.values(*store.sequences.find(1), layer, head, b, PartState::kOpen).data);
      }
    }
  }
  for (const uint8_t* part : parts) EXPECT_EQ(reinterpret_cast<uintptr_t>(part) % kCacheLineBytes, 0u);
  std::sort(parts.begin(), parts.end());
  for (size_t i = 1; i < parts.size(); ++i) EXPECT_GE(parts[i] - parts[i - 1], 5 * 64 * 2);
}

TEST(SavedCache, OtherVersionsAreRefusedByName) {
  const Layer layers[] = {{1, 4, 4, 0}};
  const auto cache = make_cache("f32", layers, 64, 1);
  std::vector<uint8_t> bytes = cache->save(0, "model");
  cache->load(1, bytes, "model", "file");
  const auto with_magic = [&](std::string_view magic) {
    std::copy(magic.begin(), magic.end(), bytes.begin());
    return bytes;
  };
  EXPECT_KPD_ERROR(kUnsupported, "file: a saved cache of version 001, this kpd reads 002 only",
                   cache->load(1, with_magic("KPDKV001"), "model", "file"));
  EXPECT_KPD_ERROR(kUnsupported, "version 017", cache->load(1, with_magic("KPDKV017"), "model", "file"));
  EXPECT_KPD_ERROR(kCorruptData, "file: byte 0: not a saved cache", cache->load(1, with_magic("KPDKV0x2"), "model", "file"));
  EXPECT_KPD_ERROR(kCorruptData, "not a saved cache", cache->load(1, with_magic("GGUFV002"), "model", "file"));
}

}  // namespace
}  // namespace kpd::cache
