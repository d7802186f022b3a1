// base: elementary and normal-distribution functions whose results are the same bits on every machine.
//
// Everything that decides stream bytes (codebooks, frequencies, reconstruction points) is computed from these. They use IEEE
// double
// + - * / sqrt in a fixed order and exponent manipulation through std::bit_cast; no libm, no fused multiply-add (the build
// sets -ffp-contract=off). Changing one rounding here changes the stream format. Pure functions, thread-safe, no errors:
// arguments outside the stated domain give a stated value.
#pragma once

namespace kpd {

// e^x, error below 1 ulp. Below -708: 0; above 709: +infinity.
double exact_exp(double x);

// log2(x), about 1e-15 relative for x away from 1 (2e-16 absolute near it). x finite and > 0 (denormals too); otherwise
// -infinity.
double exact_log2(double x);

// The density of N(0,1), about 1e-15 relative for |x| <= 37, then 0.
double normal_pdf(double x);

// P(Z <= x), relative accuracy about 1e-15 in the lower tail too (for |x| <= 37, then 0 or 1).
double normal_cdf(double x);

// P(Z > x), relative accuracy about 1e-15 in the upper tail (for |x| <= 37, then 0 or 1).
double normal_upper_tail(double x);

// P(a < Z < b) without cancellation, for a <= b; either may be infinite. 0 if a >= b.
double normal_interval(double a, double b);

// Mass and conditional mean of N(0,1) over a cell.
struct NormalCell {
  double mass = 0;
  double mean = 0;  // E[Z | a < Z < b]; the cell's edge that is nearer to 0 if the mass underflows
};
// For a < b, either may be infinite. Relative accuracy about 1e-15 (of the mean: about 1e-15 absolute for cells around 0). No
// cancellation for narrow cells.
NormalCell normal_cell(double a, double b);

}  // namespace kpd
