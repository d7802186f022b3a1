// tests: a block's signs come from its key, as the format says: every part of the key and every purpose has words of its own.
#include "gradient/block_rotation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "kernels/isa_fixture.h"
#include "kpd/base/rng.h"

namespace kpd::gradient {
namespace {

using kpd::testing::random_floats;
using transform::kMaxRounds;

// Words of different purposes are different words: rounds 1 to 6 and both transforms of each.
TEST(RandomWords, PurposesDoNotMeet) {
  std::vector<std::vector<uint32_t>> all;
  const auto add = [&](Purpose purpose, uint32_t round) {
    all.emplace_back(4);
    random_words({1, 2}, purpose, round, 0, all.back());
  };
  for (uint32_t r = 0; r < kMaxRounds; ++r) {
    add(Purpose::kSigns, r);
    add(Purpose::kSecondSigns, r);
  }
  for (const Purpose p : {Purpose::kTies, Purpose::kWindow, Purpose::kStochastic, Purpose::kDither, Purpose::kPackets})
    add(p, 0);
  std::sort(all.begin(), all.end());
  EXPECT_EQ(std::unique(all.begin(), all.end()), all.end());
}

TEST(BlockRotation, EveryPartOfTheKeyMatters) {
  const std::vector<float> x = random_floats(256, 1);
  const auto rotated = [&](const BlockKey& key) {
    std::vector<float> y = x;
    AlignedBuffer<uint32_t> words;
    BlockRotation(y.size(), 1, key, words).forward(y);
    return y;
  };
  const std::vector<float> base = rotated({1, 2});
  EXPECT_EQ(base, rotated({1, 2}));
  EXPECT_NE(base, rotated({2, 2}));
  EXPECT_NE(base, rotated({1ull << 40 | 1, 2}));
  EXPECT_NE(base, rotated({1, 3}));
  EXPECT_NE(base, rotated({1, 1ull << 33 | 2}));
}

// The signs of round r are the Philox words of purpose r, those of a second transform of purpose 8 + r.
TEST(BlockRotation, SignsAreThoseOfTheFormat) {
  for (const size_t n : {128, 200, 1000}) {
    const BlockKey key{0x1122334455667788u, 9};
    AlignedBuffer<uint32_t> words;
    const BlockRotation rotation(n, 3, key, words);
    const transform::Rotation plan(n, 3);
    std::vector<float> got = random_floats(n, n), want = got;
    std::vector<uint32_t> signs(plan.n_sign_words());
    for (size_t i = 0; i < signs.size(); ++i) {
      const size_t set = i / plan.words_per_set(), word = i % plan.words_per_set();
      const uint32_t purpose = static_cast<uint32_t>(set / plan.sets_per_round() + 8 * (set % plan.sets_per_round()));
      signs[i] = philox4x32({static_cast<uint32_t>(word / 4), purpose, 9, 0}, {0x55667788u, 0x11223344u})[word % 4];
    }
    rotation.forward(got);
    plan.forward(want.data(), 1, n, signs);
    EXPECT_EQ(std::memcmp(got.data(), want.data(), 4 * n), 0) << n;
  }
}

// A longer block before it must not show.
TEST(BlockRotation, WordsOfAnEarlierBlockDoNotMatter) {
  AlignedBuffer<uint32_t> used, fresh;
  BlockRotation(5000, 6, {3, 4}, used);
  const size_t size = used.size();
  std::vector<float> a = random_floats(100, 1), b = a;
  BlockRotation(100, 2, {1, 2}, used).forward(a);
  BlockRotation(100, 2, {1, 2}, fresh).forward(b);
  EXPECT_EQ(a, b);
  EXPECT_EQ(used.size(), size);
}

}  // namespace
}  // namespace kpd::gradient
