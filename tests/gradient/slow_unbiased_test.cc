// tests: unbiasedness at n = 64 to 4096, .05 to 8 bits, for every codec that claims it, over 4,000 equal clients.
#include "gradient/unbiased.h"

namespace kpd::gradient {
namespace {

using namespace unbiased;

TEST(UnbiasedSlow, EveryCodecAtEverySizeAndRate) {
  for (const size_t n : {64, 80, 96, 128, 200, 256, 400, 511, 1000, 1024, 3000, 4096}) {
    for (const std::string& spec : specs_at({.05, .1, .25, .45, .5, .75, 1, 1.5, 2, 3, 4, 6, 8})) {
      expect_unbiased(spec, lognormal_input(n), "lognormal");
      if (n <= 1024) expect_unbiased(spec, normal_input(n), "normal");
    }
  }
}

}  // namespace
}  // namespace kpd::gradient
