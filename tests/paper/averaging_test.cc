// tests: a seeded sample of lengths 65 to 8191, energies and codecs at 400 clients: the errors average and reach their limit
// (gradient/averaging.h). Slow; label paper. bench/rotation_bias.cc prints as much of the product as is asked for.
#include "gradient/averaging.h"

#include <gtest/gtest.h>

namespace kpd::gradient {
namespace {

using namespace testing;

TEST(AveragingOfLengths, RatioIsOneAndTheErrorIsTheLimit) {
  const char* const specs[] = {
      "eden:bits=1", "eden:bits=2", "eden:bits=4",        "eden:code=entropy,bits=1", "eden:code=entropy,bits=4",
      "drive",       "drive+",      "hadamard-sq:bits=1", "hadamard-sq:bits=4"};
  const size_t lengths[] = {65,   96,   127,  129,  255,  257,  384,  511,  513,  768,  973,  1000, 1025,
                            1536, 2047, 3072, 3890, 4095, 4097, 5000, 6144, 7000, 7782, 7936, 8191};
  CounterRng rng(14, 1);
  for (const char* spec : specs) {
    for (int k = 0; k < 12; ++k) {
      const size_t n = lengths[rng.next_u32() % std::size(lengths)];
      const auto [shape, name] = kShapes[rng.next_u32() % std::size(kShapes)];
      const Averaging a = measure_averaging(spec, shape, n);
      // Five standard errors; the vector's own draw moves the error of a short block by more.
      EXPECT_NEAR(a.ratio, 1.0, .05) << spec << " n=" << n << " " << name;
      EXPECT_LE(a.vnmse, 1.03 * Codec::parse(spec).limit_vnmse()) << spec << " n=" << n << " " << name;
    }
  }
}

}  // namespace
}  // namespace kpd::gradient
