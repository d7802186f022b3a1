// kernels: what drawing a token needs of a row of logits: its maximum, the mass of exp, the values above a threshold. Private.
//
// Results are the same bits on every instruction set: exp2 is a polynomial of IEEE multiplications and additions without fused
// multiply-add, and masses are summed in double by element index, 16 sums a block, whatever a vector's width.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dispatch.h"

namespace kpd::kernels {

inline constexpr size_t kSampleLanes = 16;
inline constexpr size_t kSampleBlock = 1024;  // elements of a block; a multiple of kSampleLanes

constexpr size_t sample_blocks(size_t n) { return (n + kSampleBlock - 1) / kSampleBlock; }

// maxima[j * 16 + l] = the largest of block j's elements whose index is l modulo 16, -infinity for none; it has
// 16 sample_blocks(n) places. Returns the largest of all, NaN if one of them is NaN (maxima are meaningless then).
KPD_KERNEL(lane_maxima, float(const float* x, size_t n, float* maxima));

// w(x) = 2^((x - shift) scale), x <= shift. With y the float (x - shift) * scale the relative error is below 2e-7 (against
// 2^y); y itself is off by at most 1.2e-7 |y|. Exactly 1 for x = shift; 0 for y < -125, which no draw of 53 bits can tell from
// what it is. sums[j] = sum of w over block j. weights [n] gets every w, or is null.
KPD_KERNEL(exp2_sums, void(const float* x, size_t n, float shift, float scale, double* sums, float* weights));

// values and ids get every x[i] >= least and its i, ascending; room for n + 16 each. Returns how many.
KPD_KERNEL(gather_from, size_t(const float* x, size_t n, float least, float* values, uint32_t* ids));

// 2^f on [-0.5, 0.5], minimax in relative error, the constant term 1.
inline constexpr float kExp2[] = {
    1.0f, 0.6931470036506653f, 0.24022242426872253f, 0.05550733581185341f, 0.009671512991189957f, 0.001326472731307149f};
inline constexpr float kExp2Low = -125.0f;        // below it a weight is 0
inline constexpr float kExp2Round = 12582912.0f;  // 1.5 2^23: y + it rounds y to an integer in the low bits
inline constexpr uint32_t kExp2RoundBits = 0x4B400000u;

}  // namespace kpd::kernels
