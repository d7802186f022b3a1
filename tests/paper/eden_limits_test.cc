// tests: the paper's error limits at d = 2^20 with the bits counted on the wire, and the averaging of 1,000 clients. Slow;
// label paper.
#include <gtest/gtest.h>

#include "gradient/round_trip.h"
#include "kpd/base/error.h"

namespace kpd::gradient {
namespace {

using namespace testing;

struct Measured {
  double vnmse = 0, bits = 0;
};

Measured measure(const std::string& spec, int trials) {
  Measured m;
  for (int t = 0; t < trials; ++t) {
    MessageIds ids;
    ids.round = static_cast<uint64_t>(t);
    const RoundTrip r = round_trip(normal_vector(1 << 20, static_cast<uint64_t>(t)), spec, ids, 2);
    m.vnmse += r.vnmse() / trials;
    m.bits += r.bits() / trials;
  }
  return m;
}

TEST(EdenLimits, FixedRates) {
  // Four trials of 256 blocks: a relative standard error of about .0004 at one bit and .001 at .1 bit.
  for (const double bits : {1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 1.25, 1.5, 2.5, 3.5, .75, .5, .25, .1}) {
    const std::string spec = str("eden:bits=", bits);
    const Measured m = measure(spec, 4);
    EXPECT_LE(m.vnmse, 1.01 * Codec::parse(spec).limit_vnmse()) << spec;
    EXPECT_LE(m.bits, bits + (bits < 1 ? .013 : .02)) << spec;
  }
}

TEST(EdenLimits, EntropyCodes) {
  // A code's length varies by about a bit from number to number: of 2^20 numbers by .001, of four trials by half of that.
  constexpr double kBitsError = .0005;
  // Research: the ideal entropy-coded uniform quantizer.
  const std::pair<double, double> ideal[] = {{.1, 9.931},  {.25, 3.749}, {.5, 1.6133},  {1, .53454},   {1.5, .21611},
                                             {2, .097624}, {3, .022745}, {4, .0055908}, {8, 2.1718e-5}};
  for (const auto& [bits, error] : ideal) {
    const Measured m = measure(str("eden:code=entropy,bits=", bits), 4);
    EXPECT_LE(m.vnmse, 1.02 * error) << bits;
    EXPECT_LE(m.bits, bits + .01 + 3 * kBitsError) << bits;
  }
}

TEST(EdenLimits, AThousandEqualClients) {
  const int clients = 1000;
  std::vector<float> sparse(4096);
  sparse[0] = 1;
  sparse[1] = .999f;
  for (const std::vector<float>& x : {lognormal_vector(1 << 15, 1), sparse}) {
    std::vector<double> mean(x.size());
    double vnmse = 0, nmse = 0, norm2 = 0;
    for (int c = 0; c < clients; ++c) {
      MessageIds ids;
      ids.client = static_cast<uint64_t>(c);
      const RoundTrip r = round_trip(x, "eden:bits=1", ids);
      vnmse += r.vnmse() / clients;
      for (size_t i = 0; i < x.size(); ++i) mean[i] += static_cast<double>(r.decoded[i]) / clients;
    }
    for (size_t i = 0; i < x.size(); ++i) {
      nmse += (mean[i] - static_cast<double>(x[i])) * (mean[i] - static_cast<double>(x[i]));
      norm2 += static_cast<double>(x[i]) * static_cast<double>(x[i]);
    }
    // The spread over 4,096 coordinates is sqrt(2 / 4096) = .022.
    EXPECT_NEAR(nmse / norm2 * clients / vnmse, 1.0, .05 + (x.size() == 4096 ? .02 : 0)) << x.size();
  }
}

}  // namespace
}  // namespace kpd::gradient
