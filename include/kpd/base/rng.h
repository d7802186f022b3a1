// base: counter-based random numbers. Philox4x32-10 (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as
// 1, 2, 3", SC'11). No state is hidden and no std:: distribution is used, so a seed gives the same numbers everywhere.
#pragma once

#include <array>
#include <cstdint>

namespace kpd {

using PhiloxCounter = std::array<uint32_t, 4>;
using PhiloxKey = std::array<uint32_t, 2>;

// Ten rounds; the published test vectors are in tests/base/rng_test.cc.
PhiloxCounter philox4x32(PhiloxCounter counter, PhiloxKey key);

// A sequence of numbers named by (seed, stream): word i is word i % 4 of philox({i/4 lo, i/4 hi, stream lo, stream hi}, seed).
// Thread-compatible.
class CounterRng {
 public:
  explicit CounterRng(uint64_t seed, uint64_t stream = 0) : seed_(seed), stream_(stream) {}
  uint32_t next_u32();
  uint64_t next_u64();
  double next_double();                 // uniform in [0, 1), 53 bits
  uint64_t next_below(uint64_t bound);  // uniform in [0, bound), bound > 0, without modulo bias
  double next_normal();                 // N(0,1); uses libm (Box-Muller): for synthetic data, never for stream bytes
  double next_gamma(double shape);      // Gamma(shape, 1), Marsaglia-Tsang; for Dirichlet splits
 private:
  uint64_t seed_, stream_, index_ = 0;
  PhiloxCounter buffer_{};
  double spare_ = 0;
  bool has_spare_ = false;
};

// 64 bits from the operating system's entropy source.
uint64_t os_entropy();

}  // namespace kpd
