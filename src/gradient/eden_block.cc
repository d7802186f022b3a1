// gradient: the parts of an EDEN block that all its codes share (eden.h).
#include <algorithm>
#include <bit>
#include <cmath>

#include "gradient/block_rotation.h"
#include "gradient/eden.h"
#include "kernels/sums.h"
#include "kpd/base/error.h"
#include "kpd/coding/rans.h"

namespace kpd::gradient {

void prefetch_block(const float* segment, const SegmentShape& shape, uint32_t block) {
  if (block >= shape.n_blocks) return;
  const char* const at = reinterpret_cast<const char*>(segment + shape.block_offset(block));
  for (size_t line = 0; line < shape.block_length(block) * sizeof(float); line += 64) __builtin_prefetch(at + line, 0, 2);
}

bool has_constant_scale(const WireParams& p) {
  return (p.flags & kFlagEntropy) != 0 && p.scale == ScaleKind::kUnbiased && p.rate < kOneBit / 2;
}

bool takes_fixed_code(const WireParams& p, uint64_t count) {
  constexpr uint64_t kHeadBits = 8 * (coding::kRansStateBytes + 4);  // the states and the length of the flush
  // The flag on another method and rate 0 are refused elsewhere.
  if (p.method != kEdenId || (p.flags & (kFlagEntropy | kFlagDither)) != kFlagEntropy || p.rate == 0) return false;
  return count < ((kHeadBits << 16) + p.rate - 1) / p.rate;
}

uint32_t rate_of_units(uint8_t units) { return (units * kOneBit + kRatesPerBit / 2) / kRatesPerBit; }

EdenPlan eden_plan(uint32_t length, uint32_t rate) {
  EdenPlan p;
  p.length = length;
  if (rate < kOneBit) {
    p.kept = std::max<uint32_t>(1, static_cast<uint32_t>((uint64_t{rate} * length + 32768) >> 16));
    p.parts[p.n_parts++] = {p.kept, 1};
  } else {
    p.kept = length;
    const int bits = static_cast<int>(rate >> 16);
    const uint32_t finer = static_cast<uint32_t>((uint64_t{rate & 0xffff} * length + 32768) >> 16);
    if (finer > 0) p.parts[p.n_parts++] = {finer, bits + 1};
    if (finer < length) p.parts[p.n_parts++] = {length - finer, bits};
  }
  for (int i = 0; i < p.n_parts; ++i) p.bytes += static_cast<uint64_t>(p.parts[i].bits) * kernels::plane_bytes(p.parts[i].n);
  return p;
}

void randomize_zeros(std::span<float> y, const BlockKey& own) {
  uint32_t words[4];
  for (size_t i = 0; i < y.size(); ++i) {
    if (i % 128 == 0) random_words(own, Purpose::kTies, 0, static_cast<uint32_t>(i / 128), words);
    if (y[i] != 0) continue;
    const bool negative = ((words[i / 32 % 4] >> (i % 32)) & 1) != 0;
    y[i] = negative ? -0.0f : 0.0f;
  }
}

double block_scale(ScaleKind kind, const BlockSums& s) {
  double scale = 0;
  switch (kind) {
    case ScaleKind::kUnbiased:
      scale = s.dot > 0 ? s.kept2 / s.dot * s.inverse_share : 0;
      break;
    case ScaleKind::kBiased:
      scale = s.q2 > 0 ? s.dot / s.q2 : 0;
      break;
    case ScaleKind::kNorm:
      scale = s.q2 > 0 ? std::sqrt(s.x2 / s.q2) : 0;
      break;
  }
  return scale > 0 ? scale : 0;
}

double block_error(double scale, const BlockSums& s) {
  return std::max(0.0, scale * scale * s.q2 - 2.0 * scale * s.dot + s.x2);
}

bool block_takes_three_rounds(const WireParams& params, const kernels::Magnitude& magnitude) {
  if (params.rounds != 2 || (params.flags & kFlagSizedRounds) == 0 || (params.flags & kFlagDither) != 0) return false;
  const double most = static_cast<double>(std::bit_cast<float>(magnitude.max_abs_bits));
  return 16.0 * (most * most) >= magnitude.sum_squares;
}

int rounds_of_word(const WireParams& params, uint32_t word, uint64_t offset) {
  if (!valid_scale_word(word)) fail(ErrorCode::kCorruptData, "byte ", offset, ": scale word ", word, " has no exponent");
  if (!three_rounds_of_word(word)) return params.rounds;
  if ((params.flags & kFlagDither) != 0)
    fail(ErrorCode::kCorruptData, "byte ", offset, ": a dithered block asks for a rotation of its own");
  if (params.rounds != 2 || (params.flags & kFlagSizedRounds) == 0) {
    fail(ErrorCode::kCorruptData, "byte ", offset, ": a block asks for three rounds, the record has ", params.rounds);
  }
  return 3;
}

double rotate_block(std::span<const float> x, uint32_t max_abs_bits, int rounds, const BlockKey& key, Scratch& scratch,
                    float* y) {
  // The largest value goes to [1, 2), so that sums of any block stay far inside the float range.
  const int exponent = std::clamp(static_cast<int>(max_abs_bits >> 23) - 127, -126, 126);
  const float scale = std::bit_cast<float>(static_cast<uint32_t>(127 - exponent) << 23);
  const BlockRotation rotation(x.size(), rounds, key, scratch.signs);
  rotation.forward_scaled(x.data(), scale, y);
  return rotation.gain() * static_cast<double>(scale);
}

uint64_t unrotate_block(std::span<float> y, int rounds, const BlockKey& key, double scale, double max_level, float weight,
                        bool accumulate, float* dst, Scratch& scratch) {
  const BlockRotation rotation(y.size(), rounds, key, scratch.signs);
  const double factor = scale / rotation.gain();
  const double weighted = accumulate ? factor * static_cast<double>(weight) : factor;
  const double largest = scale * max_level * std::sqrt(static_cast<double>(y.size()));
  const bool fits = largest < 0x1p126 && std::fabs(weighted) > 0x1p-90 && std::fabs(weighted) < 0x1p100 &&
                    (!accumulate || largest * std::fabs(static_cast<double>(weight)) < 0x1p126);
  if (fits) {
    rotation.inverse_scaled(y.data(), static_cast<float>(weighted), dst, accumulate);
    return 0;
  }
  rotation.inverse_scaled(y.data(), 1.0f, y.data(), false);
  uint64_t saturated = 0;
  for (size_t i = 0; i < y.size(); ++i) {
    dst[i] = limited(static_cast<double>(y[i]) * factor, weight, accumulate, dst[i], saturated);
  }
  return saturated;
}

}  // namespace kpd::gradient
