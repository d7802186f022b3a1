// gradient: EDEN (Vargaftik et al., "EDEN: Communication-Efficient and Robust Distributed Mean Estimation for Federated
// Learning", ICML 2022). Private: what the fixed-rate code, the entropy code and the packets share.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "gradient/scale_word.h"
#include "gradient/segment_codec.h"
#include "kernels/quantize.h"
#include "kernels/sums.h"

namespace kpd::gradient {

inline constexpr uint8_t kEdenId = 2;  // beside those of MethodId

MethodEntry eden_entry();
std::unique_ptr<SegmentCodec> make_eden_fixed(const WireParams& params);
[[noreturn]] void throw_nonfinite(std::span<const float> x, uint64_t offset);
std::unique_ptr<SegmentCodec> make_eden_entropy(const WireParams& params);
// Expected relative error of a tensor of n elements; n = 0: the limit of large dimension. eden_limit.cc.
double eden_limit(const WireParams& params, uint64_t n = 0);
// True for an entropy code below half a bit: ||x|| / (sqrt(n) E[Z Q(Z)]) is its unbiased scale, since <y,q> may be 0 there.
bool has_constant_scale(const WireParams& params);
// True for an entropy code whose codes of `count` elements are expected to be shorter than the head of their flush, 36 bytes:
// the fixed code of the same rate takes its place. Not with dither, whose rotation is common to all clients.
bool takes_fixed_code(const WireParams& params, uint64_t count);

inline constexpr uint32_t kMinRate = 3277;  // .05 bit
inline constexpr uint32_t kMaxRate = kMaxBits * kOneBit;
inline constexpr int kAllocationRates = 160;  // of kFlagAllocate: i + 1 units of kRateUnit bits

uint32_t rate_of_units(uint8_t units);  // kFlagAllocate's rate i * kRateUnit as a WireParams::rate

// How the codes of one fixed-rate block lie: `kept` of the `length` rotated coordinates are coded, starting at a seeded window,
// in one or two parts: first `parts[0].n` coordinates with parts[0].bits, then the others with one bit less.
struct EdenPlan {
  struct Part {
    uint32_t n = 0;
    int bits = 0;
  };
  uint32_t length = 0, kept = 0;
  Part parts[2];
  int n_parts = 0;
  uint64_t bytes = 0;
};
EdenPlan eden_plan(uint32_t length, uint32_t rate);
// Starts loading a block of a segment (if there is such a block) while the one before it is computed; rotations leave the
// memory idle.
void prefetch_block(const float* segment, const SegmentShape& shape, uint32_t block);
// Signs of exact zeros become random: y_i = 0 is +0 or -0 by bit i of the tie words.
void randomize_zeros(std::span<float> y, const BlockKey& own);

// Sums over the coded coordinates of one rotated block, in the units of the true rotated vector.
struct BlockSums {
  double x2 = 0;             // |x|^2
  double kept2 = 0;          // |y_K|^2
  double dot = 0;            // <y_K, q>
  double q2 = 0;             // |q|^2
  double inverse_share = 1;  // n / k
};
// The scale S that the kind asks for (EDEN section 1.1; below 1 bit (|y_K|^2/<y_K,q>) n/k); 0 where it does not exist.
double block_scale(ScaleKind kind, const BlockSums& sums);
// S^2 |q|^2 - 2 S <y,q> + |y|^2, never below 0.
double block_error(double scale, const BlockSums& sums);

// Whether a block whose size asks for two rounds takes three: its largest element holds a sixteenth of its energy or more. Two
// rounds do not make few entries uniform. The choice reads x alone, so it cannot bias.
bool block_takes_three_rounds(const WireParams& params, const kernels::Magnitude& magnitude);
// Rounds of a block by its scale word. Throws Error(kCorruptData) "byte OFFSET: ..." for a word without an exponent, or one
// that asks for three rounds where the record does not leave them to the size and to x.
int rounds_of_word(const WireParams& params, uint32_t word, uint64_t offset);

// What encoding one block came to.
struct BlockResult {
  uint32_t word = 0;
  double x2 = 0, error2 = 0;
};

// x[n] -> y: scaled by a power of two so that nothing overflows, rotated. Returns the factor u with y = u R x. `max_abs_bits`
// as from kernels::magnitude; `scratch` gives room for signs.
double rotate_block(std::span<const float> x, uint32_t max_abs_bits, int rounds, const BlockKey& key, Scratch& scratch,
                    float* y);

// dst = (or += weight *) scale / gain * R^-1 y, where y (overwritten) holds reconstruction values of at most `max_level`.
// Values beyond the float range saturate; returns how many did.
uint64_t unrotate_block(std::span<float> y, int rounds, const BlockKey& key, double scale, double max_level, float weight,
                        bool accumulate, float* dst, Scratch& scratch);

}  // namespace kpd::gradient
