// gradient: stochastic uniform quantization of one block between its smallest and its largest value, shared by sq, hadamard-sq
// and kashin-sq (Suresh, Yu, Kumar, McMahan, "Distributed Mean Estimation with Limited Communication", ICML 2017). Private.
//
// A value v in [lo, hi] with L steps becomes floor(u) or floor(u) + 1 for u = L (v - lo) / (hi - lo), the upper one with the
// probability of the fraction, so that its mean is v. Decisions compare 24 random bits with an integer: no float comparison is
// random.
#pragma once

#include "gradient/baseline_tools.h"

namespace kpd::gradient::baselines {

// Which of a block's n values travel and in how many bits: `coded` of them, the first `fine` in bits + 1, the others in bits.
struct RatePlan {
  uint32_t coded = 0, fine = 0;
  unsigned bits = 1;
  uint64_t total_bits() const { return uint64_t{coded} * bits + fine; }
};
// Spends round(rate * n / 2^16) bits, at least one, on `values` numbers: each gets the whole part and the first ones a bit
// more. With fewer bits than numbers, that many numbers travel in one bit each.
RatePlan rate_plan(uint32_t rate, uint32_t n, uint32_t values);

// Codes z (plan.coded values, to be multiplied by `unit`): lo and hi to `floats` (8 bytes), codes to `bits` ((total_bits + 7) /
// 8 bytes), decoded values back into z. Random words are those of `key` and Purpose::kStochastic, one a value.
void sq_write(std::span<float> z, const RatePlan& plan, double unit, const BlockKey& key, uint8_t* floats, uint8_t* bits,
              Scratch& scratch);
// Reads what sq_write wrote, with checks: the decoded values divided by the result, which is a power of two.
double sq_read(std::span<const uint8_t> src, uint64_t floats_offset, uint64_t bits_offset, const RatePlan& plan,
               std::span<float> z, Scratch& scratch);

// Expected vNMSE of quantizing and sampling blocks of n as `rate` says if k levels alone cost base / (k - 1)^2.
double sq_limit(uint32_t rate, uint32_t n, double base);

}  // namespace kpd::gradient::baselines
