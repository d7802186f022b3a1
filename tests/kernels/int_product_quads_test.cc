// tests: the VNNI variant of the integer products, with an emulated instruction, against the scalar reference bit for bit on
// every instruction set.
#include "base/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/int_product_quads_test.cc"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>

#include "kernels/int_product.h"
#include "kernels/widen_f16-inl.h"

#undef KPD_BEFORE_VARIANT
#undef KPD_AFTER_VARIANT
#define KPD_BEFORE_VARIANT() HWY_BEFORE_NAMESPACE()
#define KPD_AFTER_VARIANT() HWY_AFTER_NAMESPACE()
#define KPD_VARIANT emulated_vnni
#define KPD_EMULATE_VNNI
#define KPD_HAS_VNNI 1
#if !KPD_TARGET_IS_SCALAR
#include "kernels/int_product-inl.h"
#endif

#if HWY_ONCE
#include "kernels/isa_fixture.h"
#include "kernels/weight_blocks.h"

namespace kpd::kernels {
namespace {

constexpr Kernel<decltype(scalar::int_product)> emulated(&scalar::int_product, {KPD_FORMS(emulated_vnni::int_product)});

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
        emulated(w, rows.rows(), 0, w.n_tiles(), got.data(), n_out);
        scalar::int_product(w, rows.rows(), 0, w.n_tiles(), want.data(), n_out);
        ASSERT_EQ(got, want) << block_type_info(type).name << " " << n_rows;
      }
    }
  }
}

}  // namespace
}  // namespace kpd::kernels
#endif
