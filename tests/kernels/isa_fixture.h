// tests: runs a check once for every instruction set of this build, variants too; those that the machine lacks are skipped.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "kpd/base/cpu.h"
#include "kpd/base/rng.h"

namespace kpd::testing {

class IsaTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    before_ = active_isa();
    const std::vector<std::string> available = available_isas();
    if (std::find(available.begin(), available.end(), GetParam()) == available.end()) {
      GTEST_SKIP() << "this machine lacks " << GetParam();
    }
    set_isa(GetParam());
  }
  void TearDown() override { set_isa(before_); }

 private:
  std::string before_;
};

// Names of tests have no '+'.
inline std::string isa_as_word(const ::testing::TestParamInfo<std::string>& info) {
  std::string word = info.param;
  std::replace(word.begin(), word.end(), '+', '_');
  return word;
}

#define KPD_ON_EVERY_ISA(Fixture) \
  INSTANTIATE_TEST_SUITE_P(, Fixture, ::testing::ValuesIn(kpd::built_isas()), ::kpd::testing::isa_as_word)

inline std::vector<float> random_floats(size_t n, uint64_t seed) {
  CounterRng rng(seed);
  std::vector<float> x(n);
  for (float& v : x) v = static_cast<float>(rng.next_normal());
  return x;
}

inline std::vector<uint32_t> random_bits(size_t n_words, uint64_t seed) {
  CounterRng rng(seed);
  std::vector<uint32_t> w(n_words);
  for (uint32_t& v : w) v = rng.next_u32();
  return w;
}

}  // namespace kpd::testing
