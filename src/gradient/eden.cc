// gradient: EDEN's row in the table of methods: its spec, its checks and its error limit (research: EDEN sections 1.2, 1.5).
#include "gradient/eden.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "kpd/base/error.h"
#include "kpd/quant/gaussian_step.h"
#include "kpd/transform/rotation.h"

namespace kpd::gradient {
namespace {

constexpr std::string_view kCodes[] = {"fixed", "entropy"};
constexpr std::string_view kScales[] = {"unbiased", "biased", "norm"};
constexpr std::string_view kDithers[] = {"none", "shared"};
constexpr std::string_view kAllocations[] = {"none", "energy"};

WireParams parse_eden(const Spec& spec) {
  WireParams p;
  const double bits = spec.number("bits", 1.0, 0.05, 8.0);
  p.rate = std::clamp(static_cast<uint32_t>(bits * kRateOne + 0.5), kMinRate, kMaxRate);
  p.scale = static_cast<ScaleKind>(spec.choice("scale", 0, kScales));
  p.rounds = spec.has("rounds") ? static_cast<uint8_t>(spec.integer("rounds", 2, 1, transform::kMaxRounds)) : kAutoRounds;
  const int64_t block = spec.integer("block", 4096, 64, 16384);
  if (!std::has_single_bit(static_cast<uint64_t>(block))) {
    spec.fail_at(spec.find("block")->position, str("block=", block, ": expected a power of two from 64 to 16384"));
  }
  p.log2_block = static_cast<uint8_t>(std::countr_zero(static_cast<uint64_t>(block)));
  const bool entropy = spec.choice("code", 0, kCodes) == 1;
  const bool dither = spec.choice("dither", 0, kDithers) == 1;
  const bool allocate = spec.choice("allocate", 0, kAllocations) == 1;
  if (entropy) {
    p.flags |= kFlagEntropy;
    if (block > 4096) spec.fail_at(spec.find("block")->position, "code=entropy takes blocks up to 4096");
  }
  if (dither) {
    const size_t at = spec.find("dither")->position;
    if (!entropy) spec.fail_at(at, "dither=shared needs code=entropy");
    if (p.rate < kRateOne) spec.fail_at(at, "dither=shared needs bits >= 1");
    if (p.scale != ScaleKind::kUnbiased) spec.fail_at(at, "dither=shared takes scale=unbiased only");
    p.flags |= kFlagDither;
  }
  if (allocate) {
    if (entropy) spec.fail_at(spec.find("allocate")->position, "allocate=energy needs code=fixed");
    p.flags |= kFlagAllocate;
  }
  if (entropy) p.param = quant::step_for_bits(p.bits(), dither);
  return p;
}

std::unique_ptr<SegmentCodec> make_eden(const WireParams& p) {
  const auto corrupt = [](auto... text) { fail(ErrorCode::kCorruptData, "eden record: ", text...); };
  const bool entropy = (p.flags & kFlagEntropy) != 0, dither = (p.flags & kFlagDither) != 0;
  const bool allocate = (p.flags & kFlagAllocate) != 0;
  if ((p.flags & ~(kFlagEntropy | kFlagDither | kFlagAllocate | kFlagSizedRounds)) != 0) corrupt("unknown flags ", p.flags);
  if (dither && !entropy) corrupt("dither without an entropy code");
  if (allocate && entropy) corrupt("a rate per block with an entropy code");
  if (p.log2_block < 6 || p.log2_block > (entropy ? 12 : 14)) corrupt("log2 of the block is ", p.log2_block);
  if (p.rounds < 1 || p.rounds > transform::kMaxRounds) corrupt(p.rounds, " rounds, expected 1 to ", transform::kMaxRounds);
  if (static_cast<int>(p.scale) > 2) corrupt("scale kind ", static_cast<int>(p.scale), ", expected 0 to 2");
  if (p.rate < kMinRate || p.rate > kMaxRate) corrupt("rate ", p.rate, ", expected ", kMinRate, " to ", kMaxRate);
  if (dither && p.scale != ScaleKind::kUnbiased) corrupt("dither with a scale that is not unbiased");
  if (!entropy && p.param != 0) corrupt("parameter ", p.param, ", expected 0");
  if (entropy && (p.param < quant::kMinStepQ20 || p.param > quant::kMaxStepQ20)) {
    corrupt("step ", p.param, ", expected ", quant::kMinStepQ20, " to ", quant::kMaxStepQ20);
  }
  return entropy ? make_eden_entropy(p) : make_eden_fixed(p);
}

}  // namespace

void throw_nonfinite(std::span<const float> x, uint64_t offset) {
  size_t i = 0;
  while (i + 1 < x.size() && std::isfinite(x[i])) ++i;
  throw NonFiniteInput{offset + i};
}

MethodEntry eden_entry() {
  return {{kEdenId,
           "eden",
           "0.05..8",
           "yes, for a uniform rotation; dither=shared: exactly",
           "1/E[Q(Z)^2] - 1",
           "EDEN, Vargaftik et al., ICML 2022",
           {kBitsKey,
            {"code", "fixed|entropy", "fixed"},
            {"scale", "unbiased|biased|norm", "unbiased"},
            kRoundsKey,
            kBlockKey,  // up to 4096 with code=entropy
            {"dither", "none|shared", "none"},
            {"allocate", "none|energy", "none"}}},
          parse_eden,
          make_eden,
          eden_limit,
          kRatesPerBit,
          8};
}

}  // namespace kpd::gradient
