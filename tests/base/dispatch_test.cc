// tests: which form of a kernel runs for which instruction set, with a kernel that has every variant and one that has some.
#include "base/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "base/dispatch_test.cc"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "base/dispatch.h"

#define KPD_VARIANT_INCLUDE "base/dispatch_variants-inl.h"
#define KPD_VARIANTS (KPD_VARIANT_VNNI | KPD_VARIANT_VNNI_VBMI_GFNI)
#include "base/foreach_variant-inl.h"

#if HWY_ONCE
#include <gtest/gtest.h>

#include <map>

#include "kernels/isa_fixture.h"

namespace kpd::testing {

KPD_KERNEL(form_at_work, uint32_t());
KPD_KERNEL(permuted_dot, int32_t(const uint8_t* table, const uint8_t* index, const int8_t* x));

namespace scalar {
uint32_t form_at_work() { return 0; }
int32_t permuted_dot(const uint8_t* table, const uint8_t* index, const int8_t* x) {
  int32_t sum = 0;
  for (size_t i = 0; i < 64; ++i) {
    uint8_t reversed = 0;
    for (int bit = 0; bit < 8; ++bit) reversed = static_cast<uint8_t>(reversed << 1 | ((table[index[i]] >> bit) & 1));
    sum += reversed * x[i];
  }
  return sum;
}
}  // namespace scalar

KPD_DISPATCH_VARIANTS(form_at_work, KPD_FORMS_VNNI_VBMI_GFNI(form_at_work) KPD_FORMS_VNNI(form_at_work));
KPD_DISPATCH_VARIANTS(permuted_dot, KPD_FORMS_VNNI_VBMI_GFNI(permuted_dot) KPD_FORMS_VNNI(permuted_dot));

namespace {

class Dispatch : public IsaTest {};
KPD_ON_EVERY_ISA(Dispatch);

TEST_P(Dispatch, AKernelWithEveryVariantRunsTheOneThatIsNamed) {
  const std::map<std::string, uint32_t> expected = {{"avx3+vnni+vbmi+gfni", 64 << 8 | kVnni | kVbmi | kGfni},
                                                    {"avx3+vnni", 64 << 8 | kVnni},
                                                    {"avx3", 64 << 8},
                                                    {"avx2+vnni", 32 << 8 | kVnni},
                                                    {"avx2", 32 << 8},
                                                    {"sse4", 16 << 8},
                                                    {"neon", 16 << 8},
                                                    {"scalar", 0}};
  EXPECT_EQ(form_at_work(), expected.at(GetParam()));
}

TEST_P(Dispatch, VariantsGiveTheSame) {
  CounterRng rng(1);
  uint8_t table[64], index[64];
  int8_t x[64];
  for (int round = 0; round < 100; ++round) {
    for (size_t i = 0; i < 64; ++i) {
      table[i] = static_cast<uint8_t>(rng.next_u32());
      index[i] = static_cast<uint8_t>(rng.next_u32() % 64);
      x[i] = static_cast<int8_t>(rng.next_u32());
    }
    ASSERT_EQ(permuted_dot(table, index, x), scalar::permuted_dot(table, index, x)) << round;
  }
}

template <int kResult>
int answer() {
  return kResult;
}

// A kernel without the variant that an instruction set allows runs the next best of the same target, never one that needs more.
TEST_P(Dispatch, AKernelRunsTheBestThatItHasAndThatIsAllowed) {
  constexpr Kernel<int()> with_vnni_on_avx3(
      &answer<0>,
      {{IsaTarget::kAvx3, kVnni, &answer<1>}, {IsaTarget::kAvx3, 0, &answer<2>}, {IsaTarget::kAvx2, 0, &answer<3>}});
  const std::map<std::string, int> expected = {{"avx3+vnni+vbmi+gfni", 1},
                                               {"avx3+vnni", 1},
                                               {"avx3", 2},
                                               {"avx2+vnni", 3},
                                               {"avx2", 3},
                                               {"sse4", 0},
                                               {"neon", 0},
                                               {"scalar", 0}};
  EXPECT_EQ(with_vnni_on_avx3(), expected.at(GetParam()));
  constexpr Kernel<int()> best_first(&answer<0>,
                                     {{IsaTarget::kAvx3, kGfni, &answer<1>}, {IsaTarget::kAvx3, kVnni, &answer<2>}});
  EXPECT_EQ(best_first(), GetParam() == "avx3+vnni+vbmi+gfni" ? 1 : GetParam() == "avx3+vnni" ? 2 : 0);
}

}  // namespace
}  // namespace kpd::testing
#endif
