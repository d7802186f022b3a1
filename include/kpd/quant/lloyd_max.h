// quant: Lloyd-Max quantizers of N(0,1) with 2^b levels, b = 1..8 (Max 1960, Lloyd 1982; EDEN, Vargaftik et al., ICML 2022,
// section 3), and the error limits that follow from a codebook.
//
// The codebooks are computed, not stored: Newton's method on the stationarity conditions, with base/exact_math.h only, so that
// the float tables are the same bits on every machine (their SHA-256 are part of the stream format, docs/format/gradient.md).
#pragma once

#include <span>
#include <vector>

namespace kpd::quant {

inline constexpr int kMaxLloydBits = 8;

// The positive half of a symmetric codebook; a value z is coded by its sign and the cell of |z|.
struct LloydMax {
  int bits = 0;
  std::vector<double> levels;       // 2^(b-1), ascending, each the centroid of its cell
  std::vector<double> thresholds;   // 2^(b-1) - 1, ascending: midpoints of neighbouring levels (0 and infinity are not listed)
  std::vector<float> float_levels;  // the same, rounded to nearest; normative
  std::vector<float> float_thresholds;
  double distortion = 0;  // D_b = E[(Z - Q(Z))^2] = 1 - E[Q(Z)^2]
  double residual = 0;    // largest |level - centroid of its cell| that is left
};

// bits in 1..8, otherwise Error(kInvalidArgument). Computed on first use (all eight in a few milliseconds), then shared;
// thread-safe.
const LloydMax& lloyd_max(int bits);

// E[Q(Z)^2] = E[Z Q(Z)] of a fixed-rate code at any rate in (0, 8]: between k and k+1 bits a share f = bits - k of the
// coordinates takes the finer codebook; below 1 bit a share `bits` of the coordinates is coded with 1 bit and the others are 0.
// Otherwise Error(kInvalidArgument).
double fixed_rate_expected_q2(double bits);

// Limits of |x^ - x|^2 / |x|^2 for large dimension, as functions of cos2 = E[Z Q(Z)]^2 / E[Q(Z)^2] (= E[Q^2] where levels are
// centroids), the squared cosine of the angle between a vector and its quantized image. 0 < cos2 <= 1.
double unbiased_vnmse(double cos2);  // 1/cos2 - 1
double biased_vnmse(double cos2);    // 1 - cos2
double norm_vnmse(double cos2);      // 2 - 2 sqrt(cos2)

}  // namespace kpd::quant
