// tests: the VNNI variant of the integer products, with an emulated instruction, against the scalar reference bit for bit on
// every instruction set.
#define KPD_EMULATE_QUADS

#include "base/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/int_product_quads_test.cc"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "kernels/int_product-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kpd::kernels {
namespace HWY_NAMESPACE {

void QuadsProduct(const IntMatrix& w, const Int8Rows& x, float* out) {
#if KPD_TARGET_IS_SCALAR
  scalar::int_product(w, x, 0, w.n_tiles(), out, w.n_out);
#else
  emulated_quads::any_product<true>(w, x, 0, w.n_tiles(), out, w.n_out);
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace kpd::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "kernels/isa_fixture.h"
#include "kernels/weight_blocks.h"

namespace kpd::kernels {
HWY_EXPORT(QuadsProduct);
namespace {

using kpd::testing::WeightFill;

class IntProductQuads : public kpd::testing::IsaTest {};
KPD_ON_EVERY_ISA(IntProductQuads);

TEST_P(IntProductQuads, EqualTheReference) {
  if (GetParam() == "scalar") GTEST_SKIP();
  for (const BlockType type : kpd::testing::kIntTypes) {
    for (const WeightFill fill : {WeightFill::kRandom, WeightFill::kAllZeros, WeightFill::kAllOnes, WeightFill::kLowest}) {
      const size_t n_out = 35, n_in = 512;
      const std::vector<uint8_t> blocks = kpd::testing::random_blocks(type, n_out * n_in, fill, 3);
      IntMatrix w = {*int_layout(type), nullptr, n_out, n_in};
      std::vector<uint8_t> packed(packed_bytes(w.layout, n_out, n_in));
      pack_tiles(type, blocks, n_out, n_in, 0, w.n_tiles(), packed);
      w.bytes = packed.data();
      for (const size_t n_rows : {1u, 2u, 3u, 5u}) {
        std::vector<float> x = kpd::testing::random_floats(n_rows * n_in, n_rows);
        for (size_t i = 0; i < 64; ++i) x[i] = i < 32 ? 1.0f : -1.0f;
        Int8Buffer rows;
        rows.resize(n_rows, n_in);
        quantize_rows(x.data(), n_in, 0, n_rows, rows);
        std::vector<float> got(n_rows * n_out), want(n_rows * n_out);
        HWY_DYNAMIC_DISPATCH(QuadsProduct)(w, rows.rows(), got.data());
        scalar::int_product(w, rows.rows(), 0, w.n_tiles(), want.data(), n_out);
        ASSERT_EQ(got, want) << block_type_info(type).name << " " << n_rows;
      }
    }
  }
}

}  // namespace
}  // namespace kpd::kernels
#endif
