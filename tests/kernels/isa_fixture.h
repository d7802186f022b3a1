// tests: runs a check once for every instruction set of this machine.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "kpd/base/cpu.h"
#include "kpd/base/rng.h"

namespace kpd::testing {

class IsaTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    before_ = active_isa();
    set_isa(GetParam());
  }
  void TearDown() override { set_isa(before_); }

 private:
  std::string before_;
};

#define KPD_ON_EVERY_ISA(Fixture) \
  INSTANTIATE_TEST_SUITE_P(, Fixture, ::testing::ValuesIn(kpd::available_isas()), [](const auto& i) { return i.param; })

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
