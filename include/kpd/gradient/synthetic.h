// gradient: synthetic client vectors for experiments on mean estimation (`kpd mean --synthetic`, the benchmarks).
//
// Marginals of the EDEN and DRIVE papers (lognormal, normal, exponential), the sparse vectors on which one rotation is not
// enough, normal vectors whose parts differ in energy, and clients that resemble each other: client c holds g(sqrt(R) u +
// sqrt(1 - R) w_c), u and w_c independent standard normal vectors and g the marginal, so R = 1 gives identical clients and R =
// 0 independent ones. Every number is a function of (seed, trial, client, index). It must not decide stream bytes: g uses libm.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kpd::gradient {

enum class Marginal : uint8_t {
  kNormal,       // N(0, 1)
  kLogNormal,    // exp(N(0, 1))
  kExponential,  // Exp(1) = -ln(1 - Phi(N(0, 1)))
  kSparse,       // x_i = 1 - .01 i for i < k, else 0; the same for every client, trial and seed
  kHalves,       // N(0, 1), elements from ceil(n/2) on times R
  kBlocks,       // N(0, 1) in K equal parts, element i times R_j with j = floor(i K / n)
};

struct SyntheticSpec {
  Marginal marginal = Marginal::kLogNormal;
  uint64_t sparse_k = 0;        // of kSparse, at least 1
  std::vector<double> factors;  // of kBlocks R_1 .. R_K, of kHalves 1 and R; finite
  double correlation = 0;       // R in [0, 1]; kSparse ignores it
  uint64_t seed = 0;

  // "lognormal", "normal", "exponential", "sparse:K", "halves:R" or "blocks:R1,R2,..." (at most 4096 of them); sets marginal,
  // sparse_k and factors. Throws Error(kInvalidArgument) naming the nearest one.
  static SyntheticSpec parse(std::string_view text);
};

// z with Phi(z) = p for 0 < p < 1, relative error below 2e-9 (P. J. Acklam's rational approximation, 2003).
double normal_quantile(double p);

// Vectors of one dimension. Thread-compatible: start_trial() changes it, client() does not.
class SyntheticClients {
 public:
  // Throws Error(kInvalidArgument) on a correlation outside [0, 1].
  SyntheticClients(const SyntheticSpec& spec, uint64_t dim);

  uint64_t dim() const { return dim_; }
  // Chooses the trial of the client() calls that follow and makes its shared u (dim floats, only for 0 < R < 1).
  void start_trial(uint64_t trial, int threads = 1);
  // Writes client `client`'s vector (below 2^32 - 1) into dst[dim]. The same for any number of threads.
  void client(uint64_t client, std::span<float> dst, int threads = 1) const;

 private:
  SyntheticSpec spec_;
  uint64_t dim_ = 0;
  uint64_t trial_ = 0;
  std::vector<float> shared_;
};

}  // namespace kpd::gradient
