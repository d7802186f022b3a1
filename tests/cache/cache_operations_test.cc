// The caches under thousands of random operations, beside the slow model of one (cache_model.h): what is stored byte for byte,
// attention against double, and other threads, batches and cuts bit for bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/expect_error.h"
#include "cache/cache_model.h"
#include "kpd/base/rng.h"
#include "kpd/cache/kv_cache.h"

namespace kpd::cache {
namespace {

using testing::CacheModel;
using testing::ModelLayer;
using testing::NewTokens;

constexpr size_t kSequences = 6;

// Layers of one kind share blocks; here are three kinds, and one of them twice.
std::vector<ModelLayer> layers_of(const std::string& spec, const std::string& another) {
  // Blocks of 32: a width that is turned whole, one that is turned in parts, and one that is not turned.
  if (spec.size() > 4 || spec[0] == 'q') {
    return {{.spec = spec, .n_heads = 4, .n_kv_heads = 2, .key_width = 64, .value_width = 64, .scale = 0.125f},
            {.spec = spec,
             .n_heads = 3,
             .n_kv_heads = 1,
             .key_width = 128,
             .value_width = 192,
             .scale = 0.08f,
             .softcap = 5,
             .window = 25},
            {.spec = another, .n_heads = 2, .n_kv_heads = 1, .key_width = 16, .value_width = 16, .scale = 0.25f},
            {.spec = spec.rfind("ggml", 0) == 0 ? "q8_0" : spec,
             .n_heads = 2,
             .n_kv_heads = 1,
             .key_width = 96,
             .value_width = 32,
             .scale = 0.1f,
             .softcap = 0,
             .window = 0}};
  }
  return {{.spec = spec, .n_heads = 4, .n_kv_heads = 2, .key_width = 16, .value_width = 16, .scale = 0.25f},
          {.spec = spec,
           .n_heads = 3,
           .n_kv_heads = 1,
           .key_width = 20,
           .value_width = 12,
           .scale = 0.3f,
           .softcap = 5,
           .window = 25},
          {.spec = another, .n_heads = 4, .n_kv_heads = 2, .key_width = 16, .value_width = 16, .scale = 0.25f},
          {.spec = spec,
           .n_heads = 2,
           .n_kv_heads = 2,
           .key_width = 16,
           .value_width = 16,
           .scale = 0.2f,
           .softcap = 0,
           .window = 0}};
}

// Moves one key by `by` positions: any function will do that is the same in both.
void turn_key(std::span<float> key, size_t layer, int32_t by) {
  std::reverse(key.begin(), key.end());
  for (float& v : key) v = v * 0.5f + static_cast<float>(by) / static_cast<float>(64 << layer);
}

struct TurnKeys : KeyRotation {
  void turn(size_t layer, float* keys, size_t n, int32_t by) const override {
    for (size_t i = 0; i < n; ++i) turn_key({keys + i * widths[layer], widths[layer]}, layer, by);
  }
  std::vector<size_t> widths;  // of each layer
};

// Part of the tokens that a step brings.
struct Piece {
  const NewTokens* tokens;
  size_t first, n;
};

using Outputs = std::map<std::pair<uint32_t, size_t>, std::vector<float>>;  // by sequence and layer: [n, n_heads, value_width]

class Operations {
 public:
  Operations(const std::vector<ModelLayer>& layers, size_t capacity, size_t longest_chunk, uint64_t seed)
      : layers_(layers), model_(layers, capacity), longest_chunk_(longest_chunk), rng_(seed) {
    std::vector<Layer> shapes;
    std::vector<std::string> specs;
    for (const ModelLayer& l : layers) {
      shapes.push_back({l.n_kv_heads, l.key_width, l.value_width, l.window});
      specs.push_back(l.spec);
      turn_keys_.widths.push_back(l.key_width);
    }
    for (const int n_threads : {1, 3, 1}) caches_.push_back(make_cache(specs, shapes, capacity, n_threads));
  }

  void run(size_t n) {
    for (size_t i = 0; i < n && !::testing::Test::HasFailure(); ++i) {
      const size_t what = below(100);
      if (what < 62) {
        step();
      } else if (what < 72) {
        fork();
      } else if (what < 80) {
        crop();
      } else if (what < 83) {
        set_plan();
      } else if (what < 88) {
        evict();
      } else if (what < 92) {
        save();
      } else if (what < 96) {
        load();
      } else {
        refuse();
      }
      compare_lengths();
    }
    for (uint32_t id = 0; id < kSequences; ++id) compare_saved(id);
  }

  std::map<std::string, size_t> seen;  // what has occurred, and how often

 private:
  size_t below(size_t n) { return static_cast<size_t>(rng_.next_u64() % n); }
  // One that holds tokens, if there is any.
  uint32_t any_with_tokens() {
    const uint32_t id = any_sequence();
    for (uint32_t i = 0; i < kSequences; ++i) {
      if (model_.length((id + i) % kSequences) > 0) return (id + i) % kSequences;
    }
    return id;
  }
  uint32_t any_sequence() { return static_cast<uint32_t>(below(kSequences)); }

  std::vector<float> random_rows(size_t n) {
    std::vector<float> x(n);
    for (float& v : x) v = static_cast<float>(row_rng_.next_u64() >> 40) * 0x1.8p-23f - 1.5f;
    return x;
  }

  NewTokens new_tokens(uint32_t id) {
    const size_t kind = below(10);
    const size_t n = kind == 0 ? 0 : kind < 5 ? 1 : kind < 8 ? 1 + below(8) : 1 + below(longest_chunk_);
    NewTokens t{id, {}, {}, {}, {}};
    int32_t position = model_.next_position(id);
    if (below(4) == 0) position += static_cast<int32_t>(below(30));
    for (size_t i = 0; i < n; ++i) {
      t.positions.push_back(position);
      position += below(20) == 0 ? 5 : 1;
    }
    for (const ModelLayer& l : layers_) {
      t.q.push_back(random_rows(n * l.n_heads * l.key_width));
      t.k.push_back(random_rows(n * l.n_kv_heads * l.key_width));
      t.v.push_back(random_rows(n * l.n_kv_heads * l.value_width));
    }
    return t;
  }

  static Batch batch_of(std::span<const Piece> pieces) {
    Batch batch;
    for (const Piece& p : pieces)
      batch.parts.push_back({p.tokens->sequence, std::span(p.tokens->positions).subspan(p.first, p.n)});
    return batch;
  }

  // One step of a cache; attention is appended to `outputs`.
  void forward(KvCache& cache, std::span<const Piece> pieces, Outputs& outputs) const {
    cache.begin(batch_of(pieces));
    for (size_t layer = 0; layer < layers_.size(); ++layer) {
      const ModelLayer& l = layers_[layer];
      const size_t n_out = l.n_heads * l.value_width;
      std::vector<float> q, k, v;
      for (const Piece& p : pieces) {
        const auto add = [&](std::vector<float>& to, const std::vector<float>& from, size_t width) {
          to.insert(to.end(), from.begin() + static_cast<std::ptrdiff_t>(p.first * width),
                    from.begin() + static_cast<std::ptrdiff_t>((p.first + p.n) * width));
        };
        add(q, p.tokens->q[layer], l.n_heads * l.key_width);
        add(k, p.tokens->k[layer], l.n_kv_heads * l.key_width);
        add(v, p.tokens->v[layer], l.n_kv_heads * l.value_width);
      }
      std::vector<float> out(batch_of(pieces).n_rows() * n_out, -1);
      cache.attend(layer, q.data(), k.data(), v.data(), out.data(), {l.n_heads, l.scale, l.softcap, l.window});
      auto at = out.begin();
      for (const Piece& p : pieces) {
        std::vector<float>& to = outputs[{p.tokens->sequence, layer}];
        to.insert(to.end(), at, at + static_cast<std::ptrdiff_t>(p.n * n_out));
        at += static_cast<std::ptrdiff_t>(p.n * n_out);
      }
    }
    cache.commit();
  }

  // The same tokens in three ways: as one batch, as one batch in another order by three threads, and sequence by sequence in
  // random pieces.
  void forward_all(const std::vector<NewTokens>& batch) {
    std::vector<Piece> whole;
    for (const NewTokens& t : batch) whole.push_back({&t, 0, t.positions.size()});
    Outputs expected, reversed, pieces;
    forward(*caches_[0], whole, expected);
    std::reverse(whole.begin(), whole.end());
    forward(*caches_[1], whole, reversed);
    for (const NewTokens& t : batch) {
      for (size_t at = 0; at < t.positions.size();) {
        const Piece cut{&t, at, 1 + below(t.positions.size() - at)};
        forward(*caches_[2], {&cut, 1}, pieces);
        at += cut.n;
      }
    }
    for (const NewTokens& t : batch) {
      if (t.positions.empty()) continue;
      for (size_t layer = 0; layer < layers_.size(); ++layer) {
        const std::vector<float>& out = expected[{t.sequence, layer}];
        ASSERT_EQ((reversed[{t.sequence, layer}]), out) << "threads, order of the batch";
        ASSERT_EQ((pieces[{t.sequence, layer}]), out) << "cuts";
      }
      const size_t layer = below(layers_.size());
      compare_attention(t, layer, expected[{t.sequence, layer}]);
    }
  }

  // The last row and one more.
  void compare_attention(const NewTokens& t, size_t layer, std::span<const float> out) {
    const ModelLayer& l = layers_[layer];
    const size_t n = t.positions.size(), held = model_.length(t.sequence);
    const size_t n_q = l.n_heads * l.key_width, n_out = l.n_heads * l.value_width;
    for (const size_t row : {n - 1, below(n)}) {
      const std::vector<double> expected =
          model_.attend(t.sequence, layer, held - n + row, std::span(t.q[layer]).subspan(row * n_q, n_q));
      for (size_t i = 0; i < n_out; ++i)
        ASSERT_NEAR(out[row * n_out + i], expected[i], 1e-5) << layer << " " << row << " " << i;
    }
    if (held > 512) ++seen["several chunks"];
    if (model_.window_hides(t.sequence)) ++seen["window"];
  }

  void step() {
    std::vector<NewTokens> batch;
    std::vector<uint32_t> ids(kSequences);
    for (uint32_t i = 0; i < kSequences; ++i) ids[i] = i;
    for (size_t i = 0, n = 1 + below(4); i < n; ++i) {
      std::swap(ids[i], ids[i + below(kSequences - i)]);
      batch.push_back(new_tokens(ids[i]));
    }
    const bool forgotten = below(12) == 0;
    const size_t copied = model_.n_copied();
    const bool shared = std::any_of(batch.begin(), batch.end(), [&](const NewTokens& t) {
      return !t.positions.empty() && model_.tail_is_shared(t.sequence);
    });
    std::vector<Piece> whole;
    for (const NewTokens& t : batch) whole.push_back({&t, 0, t.positions.size()});
    if (!model_.append(batch, forgotten)) {
      ++seen["full pool"];
      for (const auto& cache : caches_) EXPECT_KPD_ERROR(kLimitExceeded, "are left", cache->begin(batch_of(whole)));
      return;
    }
    if (shared) ++seen["shared tail"];
    if (model_.n_copied() > copied) ++seen["copy on write"];
    if (forgotten) {
      ++seen["forgotten step"];
      for (const auto& cache : caches_) cache->begin(batch_of(whole));
      return;
    }
    ++seen["step"];
    if (batch.size() > 1 && batch[0].positions.size() != batch[1].positions.size()) ++seen["ragged batch"];
    forward_all(batch);
  }

  void fork() {
    const uint32_t from = any_sequence(), to = any_sequence();
    const size_t held = model_.length(from), n = below(3) == 0 ? held : below(8) == 0 ? held + 1 : below(held + 1);
    if (n > held && from != to) {
      ++seen["refused fork"];
      for (const auto& cache : caches_) EXPECT_KPD_ERROR(kInvalidArgument, "were asked for", cache->fork(from, to, n));
      return;
    }
    ++seen["fork"];
    if (n > 0 && from != to && model_.plan(from) != CacheModel::Plan{}) ++seen["fork with a plan"];
    model_.fork(from, to, n);
    const size_t left = from == to ? held : n;
    for (const auto& cache : caches_) expect_exact(cache->fork(from, to, n), left);
  }

  static void expect_exact(const Cut& cut, size_t length) {
    EXPECT_EQ(cut.length, length);
    EXPECT_TRUE(cut.exact);
  }

  void crop() {
    const uint32_t id = any_sequence();
    const size_t n = below(6) == 0 ? 0 : below(model_.length(id) + 3);
    ++seen["crop"];
    if (n > 0 && n < model_.length(id)) ++seen["crop in the middle"];
    const size_t left = std::min(n, model_.length(id));
    model_.crop(id, n);
    for (const auto& cache : caches_) {
      EXPECT_EQ(cache->reusable(id, n), n);
      expect_exact(cache->crop(id, n), left);
    }
  }

  // A sequence of tokens keeps the plan that it began with.
  void set_plan() {
    const uint32_t id = any_sequence();
    if (below(2) == 0) {
      model_.crop(id, 0);
      for (const auto& cache : caches_) cache->crop(id, 0);
    }
    const CacheModel::Plan plan = {below(3), below(2)};
    const bool taken = model_.set_plan(id, plan);
    ++seen[taken ? "plan" : "refused plan"];
    for (const auto& cache : caches_) {
      if (taken) {
        cache->set_plan(id, {plan});
      } else {
        EXPECT_KPD_ERROR(kInvalidArgument, "of another plan", cache->set_plan(id, {plan}));
      }
    }
  }

  void evict() {
    const uint32_t id = any_with_tokens();
    const size_t held = model_.length(id), kind = below(8), first = below(held + 1);
    const size_t n = kind == 0 ? held - first : kind == 1 ? 0 : below(held - first + 1);
    const size_t copied = model_.n_copied();
    if (!model_.evict(id, first, n, [](size_t layer, std::span<float> key, int32_t by) { turn_key(key, layer, by); })) {
      ++seen["full pool in evict"];
      for (const auto& cache : caches_) EXPECT_KPD_ERROR(kLimitExceeded, "are left", cache->evict(id, first, n, &turn_keys_));
    } else {
      ++seen[n == 0 ? "evict of nothing" : first + n == held ? "evict of the end" : "evict"];
      if (model_.n_copied() > copied) ++seen["copy on evict"];
      for (const auto& cache : caches_) cache->evict(id, first, n, &turn_keys_);
    }
    compare_saved(id);
  }

  void save() {
    const uint32_t id = any_with_tokens();
    ++seen["save"];
    compare_saved(id);
    saved_.push_back(model_.saved(id, "model"));
    if (saved_.size() > 4) saved_.erase(saved_.begin());
  }

  void load() {
    if (saved_.empty()) return;
    const uint32_t id = any_sequence();
    const CacheModel::Saved& saved = saved_[below(saved_.size())];
    const std::vector<uint8_t>& bytes = saved.bytes;
    if (below(3) == 0) {
      ++seen["damaged file"];
      std::vector<uint8_t> damaged = bytes;
      damaged[below(damaged.size())] ^= static_cast<uint8_t>(1 + below(255));
      for (const auto& cache : caches_) EXPECT_THROW(cache->load(id, damaged, "model", "file"), Error);
    } else if (model_.load(id, saved)) {
      ++seen["load"];
      if (!saved.tokens.empty() && saved.plan != CacheModel::Plan{}) ++seen["load with a plan"];
      for (const auto& cache : caches_) cache->load(id, bytes, "model", "file");
    } else {
      ++seen["full pool in load"];
      for (const auto& cache : caches_) EXPECT_KPD_ERROR(kLimitExceeded, "are left", cache->load(id, bytes, "model", "file"));
    }
    compare_saved(id);
  }

  // Batches that make no sense change nothing.
  void refuse() {
    ++seen["refused batch"];
    const uint32_t id = any_sequence(), other = (id + 1) % kSequences;
    const int32_t next = model_.next_position(id);
    const std::vector<int32_t> before = {next - 1}, twice = {next, next}, fine = {model_.next_position(other)};
    for (const auto& cache : caches_) {
      EXPECT_KPD_ERROR(kInvalidArgument, "does not follow", cache->begin({{{other, fine}, {id, before}}}));
      EXPECT_KPD_ERROR(kInvalidArgument, "does not follow", cache->begin({{{id, twice}}}));
      EXPECT_KPD_ERROR(kInvalidArgument, "twice", cache->begin({{{other, fine}, {other, fine}}}));
    }
  }

  void compare_saved(uint32_t id) {
    const std::vector<uint8_t> expected = model_.saved(id, "model").bytes;
    for (const auto& cache : caches_) ASSERT_TRUE(cache->save(id, "model") == expected) << "sequence " << id;
  }

  void compare_lengths() {
    for (const auto& cache : caches_) {
      for (uint32_t id = 0; id < kSequences; ++id) {
        ASSERT_EQ(cache->length(id), model_.length(id)) << id;
        ASSERT_EQ(cache->next_position(id), model_.next_position(id)) << id;
        ASSERT_EQ(cache->plan(id).words, model_.plan(id)) << id;
      }
      ASSERT_EQ(cache->bytes(), cache->bytes_for(64 * model_.most_blocks_used()));
    }
  }

  std::vector<ModelLayer> layers_;
  CacheModel model_;
  TurnKeys turn_keys_;
  size_t longest_chunk_;
  CounterRng rng_, row_rng_{1};  // two, so that widths do not decide what happens
  std::vector<std::unique_ptr<KvCache>> caches_;
  std::vector<CacheModel::Saved> saved_;
};

void expect_seen(const Operations& o, std::initializer_list<const char*> events) {
  for (const char* event : events) EXPECT_TRUE(o.seen.contains(event)) << "'" << event << "' did not occur";
}

class CacheOperations : public ::testing::TestWithParam<const char*> {
 protected:
  // One layer has another spec.
  std::vector<ModelLayer> layers() const {
    const std::string spec = GetParam();
    return layers_of(spec, spec == "f32" ? "bf16" : "f32");
  }
};

TEST_P(CacheOperations, AreThoseOfTheModel) {
  Operations o(layers(), 64 * 9, 100, 4);
  o.run(900);
  expect_seen(o, {"step",
                  "ragged batch",
                  "shared tail",
                  "copy on write",
                  "full pool",
                  "forgotten step",
                  "window",
                  "fork",
                  "refused fork",
                  "crop",
                  "crop in the middle",
                  "evict",
                  "evict of the end",
                  "evict of nothing",
                  "copy on evict",
                  "full pool in evict",
                  "save",
                  "load",
                  "full pool in load",
                  "damaged file",
                  "refused batch",
                  "fork with a plan",
                  "load with a plan",
                  "plan",
                  "refused plan"});
}

// Chunks of 512 tokens are merged, and shared among threads.
TEST(CacheOperationsAtDepth, AreThoseOfTheModel) {
  Operations o(layers_of("f16", "f32"), 64 * 48, 500, 2);
  o.run(100);
  expect_seen(o, {"step", "several chunks", "fork", "crop", "evict", "save", "load"});
}

INSTANTIATE_TEST_SUITE_P(, CacheOperations, ::testing::Values("f32", "f16", "bf16"),
                         [](const auto& i) { return std::string(i.param); });

// Each type, turned and not, on one side at least. The blocks are those of the plain caches, so fewer operations do.
TEST(CacheOperationsOfBlocks, AreThoseOfTheModel) {
  for (const char* spec :
       {"q8_0", "ggml:k=q4_0,v=q5_1", "ggml:k=iq4_nl,v=q4_1,rotate=none", "ggml:k=f16,v=q5_0,rotate=hadamard"}) {
    SCOPED_TRACE(spec);
    Operations o(layers_of(spec, "f32"), 64 * 9, 60, 3);
    o.run(180);
    expect_seen(o,
                {"step", "ragged batch", "copy on write", "full pool", "fork", "crop in the middle", "evict", "save", "load"});
  }
}

}  // namespace
}  // namespace kpd::cache
