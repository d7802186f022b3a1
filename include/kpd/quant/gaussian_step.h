// quant: the uniform quantizer of N(0,1) whose indices are entropy coded with static tables (EDEN, Vargaftik et al., ICML 2022,
// section 4.3), plain or with subtractive dither (Roberts 1962; Schuchman 1964).
//
// A coordinate z becomes the index i = round(z / step); i is split into a coarse symbol (entropy coded) and `raw_bits` low bits
// that travel as they are, because at fine steps they are as good as random. Everything here is computed with base/exact_math.h
// only: the frequencies and values are part of the stream format (docs/format/gradient.md). This file knows no entropy coder;
// it makes tables for one.
//
// Index to symbol, all integers:  u = i + index_bias.  0 <= u < n_indices: symbol = u >> raw_bits, raw = u & (2^raw_bits - 1).
// Any other u: symbol = escape_symbol, and the caller codes i itself (kEscapeBits are reckoned for it).
//
// Dither (shared by both sides, uniform in [-step/2, step/2)):  i = round((z + dither) / step), decoded i * step - dither. The
// error is then uniform in [-step/2, step/2] and independent of z. Given the dither, fewer bits are needed than without knowing
// it (0.21 bit fewer at 1 bit), so there is one table for each of n_classes equal parts of the dither's interval: class c
// covers dither/step in [c/n_classes - 1/2, (c+1)/n_classes - 1/2).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kpd/quant/sphere.h"

namespace kpd::quant {

inline constexpr int kFrequencyBits = 12;          // frequencies of a table sum to 2^12
inline constexpr int kEscapeBits = 32;             // reckoned for an index outside the table
inline constexpr uint32_t kMinStepQ20 = 1u << 12;  // 2^-8: about 10 bits per coordinate
inline constexpr uint32_t kMaxStepQ20 = 8u << 20;  // 8: less than 0.002 bit per coordinate

// Immutable after construction; read its members.
struct GaussianStep {
  // step_q20 in [kMinStepQ20, kMaxStepQ20], otherwise Error(kInvalidArgument). Prefer gaussian_step(), which caches.
  GaussianStep(uint32_t step_q20, bool dither);

  uint32_t step_q20 = 0;
  bool dither = false;
  double step = 0;          // step_q20 * 2^-20
  float float_step = 0;     // step, exact (step_q20 < 2^24)
  float float_inverse = 0;  // float(1 / step)

  int raw_bits = 0;  // smallest r >= 0 with step * 2^r >= 0.11
  int32_t index_bias = 0;
  uint32_t n_indices = 0;             // (2S + 1) * 2^raw_bits
  int n_symbols = 0;                  // 2S + 2 <= 128: coarse symbols -S..S as 0..2S, then the escape
  int escape_symbol = 0;              // 2S + 1
  int n_classes = 1;                  // 1 without dither
  std::vector<uint16_t> frequencies;  // [n_classes, n_symbols], each row sums to 4096, all >= 1

  // Decoded value of u = 0..n_indices-1: without dither the centroid of the index's cell, with dither i * step (the caller
  // subtracts the dither). Indices outside decode to midpoint(i).
  std::vector<float> values;
  float midpoint(int64_t index) const { return static_cast<float>(static_cast<double>(index) * step); }
  float value_of(int64_t index) const {
    const int64_t u = index + index_bias;
    return u >= 0 && u < static_cast<int64_t>(n_indices) ? values[static_cast<size_t>(u)] : midpoint(index);
  }

  // Under N(0,1): bits per coordinate as the tables spend them (symbol, raw bits, escapes), E[Z Q(Z)] and E[Q(Z)^2].
  double expected_bits = 0;
  double expected_zq = 0;
  double expected_q2 = 0;
  // E[Z Q(Z)] for Z a coordinate of a uniform point of the sphere of radius sqrt(n) in R^n, n >= 2 (kpd/quant/sphere.h),
  // without dither: what the rotated coordinates of a block of n are. Its bits are part of the stream format. Costs some
  // hundred nanoseconds where step > 3 and n < 8192; allocates nothing.
  double sphere_zq(uint32_t n) const;
  // Edges and values of z >= 0, those of escapes too, without dither.
  HalfQuantizer half() const;
  // expected_zq^2 / expected_q2: the limits of the error follow from it (kpd/quant/lloyd_max.h, unbiased_vnmse and its like).
  // With dither and no scale correction the limit is step^2 / 12.
  double cos2() const { return expected_zq * expected_zq / expected_q2; }
  double dither_vnmse() const { return step * step / 12.0; }

  std::span<const uint16_t> class_frequencies(int c) const {
    return std::span<const uint16_t>(frequencies).subspan(static_cast<size_t>(c) * n_symbols, n_symbols);
  }
};

// The tables of a step, from a small cache. Built in at most about a millisecond. Thread-safe. Errors as the constructor's.
std::shared_ptr<const GaussianStep> gaussian_step(uint32_t step_q20, bool dither = false);

// GaussianStep(step_q20, dither).expected_bits without the rest of the tables.
double gaussian_step_bits(uint32_t step_q20, bool dither = false);

// The step whose expected bits are at most `bits`, found by bisection, so that one unit finer would exceed them (or
// kMinStepQ20). Deterministic. Error(kInvalidArgument) if not even kMaxStepQ20 is within `bits`.
uint32_t step_for_bits(double bits, bool dither = false);

}  // namespace kpd::quant
