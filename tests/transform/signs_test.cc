// tests: signs from a seed are the Philox words that the header names, and differ for every part of the name.
#include "kpd/transform/signs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <vector>

#include "kpd/base/error.h"
#include "kpd/base/rng.h"

namespace kpd::transform {
namespace {

std::vector<uint32_t> signs_of(const Rotation& rotation, const SignName& name) {
  std::vector<uint32_t> signs(rotation.n_sign_words(), 0xffffffffu);
  fill_signs(rotation, name, signs);
  return signs;
}

TEST(Signs, AreTheWordsThatTheHeaderNames) {
  const SignName name{0x123456789abcdef0u, 7, 0x80000009u};
  for (const Mixing mixing : {Mixing::kWhole, Mixing::kBlocks}) {
    const Rotation rotation(300, 3, mixing);
    const std::vector<uint32_t> signs = signs_of(rotation, name);
    const size_t n_sets = 3 * rotation.sets_per_round(), per_set = rotation.words_per_set();
    EXPECT_EQ(n_sets, mixing == Mixing::kWhole ? 6u : 3u);
    EXPECT_EQ(signs.size(), n_sets * per_set);
    for (size_t s = 0; s < n_sets; ++s) {
      const uint32_t round = static_cast<uint32_t>(s / rotation.sets_per_round());
      const uint32_t which = static_cast<uint32_t>(s % rotation.sets_per_round());
      const size_t read = which == 0 ? per_set : 8;  // the second transform has 256 elements
      for (size_t i = 0; i < per_set; ++i) {
        const PhiloxCounter block = philox4x32({static_cast<uint32_t>(i / 4), kSignWords + 2 * round + which, 7, 0x80000009u},
                                               {0x9abcdef0u, 0x12345678u});
        EXPECT_EQ(signs[s * per_set + i], i < read ? block[i % 4] : 0u) << s << " " << i;
      }
    }
  }
}

// The first words of a name, frozen: files will hold numbers that only these signs turn back.
TEST(Signs, StayAsTheyAre) {
  const std::vector<uint32_t> signs = signs_of(Rotation(64, 1), {1, 2, 3});
  EXPECT_EQ(signs, (std::vector<uint32_t>{0x7ad801f4u, 0x33339f59u, 0x06b61cdau, 0x94c4c3b0u}));
}

TEST(Signs, EveryPartOfTheNameMatters) {
  const Rotation rotation(256, 2);
  const SignName names[] = {{1, 2, 3}, {2, 2, 3}, {1ull << 40 | 1, 2, 3}, {1, 3, 3}, {1, 2, 4}, {1, 3, 2}};
  std::vector<std::vector<uint32_t>> all;
  for (const SignName& name : names) {
    const std::vector<uint32_t> signs = signs_of(rotation, name);
    EXPECT_EQ(signs, signs_of(rotation, name));
    all.emplace_back(signs.begin(), signs.begin() + 8);
    all.emplace_back(signs.begin() + 8, signs.end());  // the second round has signs of its own
  }
  std::sort(all.begin(), all.end());
  EXPECT_EQ(std::unique(all.begin(), all.end()), all.end());
}

TEST(Signs, HalfOfThemNegate) {
  const Rotation rotation(65536, 2);
  int64_t ones = 0;
  for (const uint32_t word : signs_of(rotation, {5, 0, 0})) ones += std::popcount(word);
  EXPECT_NEAR(static_cast<double>(ones) / (2 * 65536), .5, .006);  // four standard errors
}

TEST(Signs, RefuseAnotherNumberOfWords) {
  const Rotation rotation(100, 1);
  for (const size_t n : {rotation.n_sign_words() - 1, rotation.n_sign_words() + 1}) {
    std::vector<uint32_t> signs(n);
    try {
      fill_signs(rotation, {}, signs);
      ADD_FAILURE() << n;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument);
    }
  }
}

}  // namespace
}  // namespace kpd::transform
