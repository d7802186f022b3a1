// tests: Philox in bulk on every instruction set, against the one-block form, which has the published vectors
// (base/rng_test.cc).
#include "kernels/philox.h"

#include <gtest/gtest.h>

#include <array>
#include <numeric>
#include <vector>

#include "kernels/isa_fixture.h"
#include "kpd/base/rng.h"

namespace kpd::kernels {
namespace {

class Philox : public kpd::testing::IsaTest {};
KPD_ON_EVERY_ISA(Philox);

TEST_P(Philox, EqualsTheOneBlockForm) {
  const uint64_t key = 0x123456789abcdef0u, block = 0xfedcba9876543210u;
  std::vector<size_t> lengths(200);
  std::iota(lengths.begin(), lengths.end(), 0);
  lengths.insert(lengths.end(), {4095, 4096, 4097});
  for (const uint32_t first : {0u, 7u, 0xfffffffcu}) {  // the last wraps round
    for (const size_t n : lengths) {
      std::vector<uint32_t> words(n + 1, 0xabababab);
      philox_fill(key, first, 99, block, words.data(), n);
      for (size_t i = 0; i < n; ++i) {
        const std::array<uint32_t, 4> want = philox4x32(
            {first + static_cast<uint32_t>(i / 4), 99, static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32)},
            {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)});
        ASSERT_EQ(words[i], want[i % 4]) << n << " " << i;
      }
      ASSERT_EQ(words[n], 0xabababab) << "written beyond the end, " << n;
    }
  }
}

}  // namespace
}  // namespace kpd::kernels
