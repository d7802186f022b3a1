// gradient: EDEN's row in the table of methods: its spec, its checks and its error limit (research: EDEN sections 1.2, 1.5).
#include "gradient/eden.h"

#include <cmath>

#include "kpd/base/error.h"
#include "kpd/quant/gaussian_step.h"

namespace kpd::gradient {
namespace {

constexpr int kMaxEntropyLog2Block = 12;
constexpr std::string_view kCodes[] = {"fixed", "entropy"};
constexpr std::string_view kDithers[] = {"none", "shared"};
constexpr std::string_view kAllocations[] = {"none", "energy"};

WireParams parse_eden(const Spec& spec) {
  WireParams p;
  p.rate = parse_bits(spec, 1, kMinBits, kMaxBits);
  p.scale = parse_scale(spec, true);
  p.rounds = parse_rounds(spec);
  p.log2_block = parse_block(spec);
  const bool entropy = spec.choice("code", 0, kCodes) == 1;
  const bool dither = spec.choice("dither", 0, kDithers) == 1;
  const bool allocate = spec.choice("allocate", 0, kAllocations) == 1;
  if (entropy) {
    p.flags |= kFlagEntropy;
    if (p.log2_block > kMaxEntropyLog2Block) spec.fail_at(spec.find("block")->position, "code=entropy takes blocks up to 4096");
  }
  if (dither) {
    const size_t at = spec.find("dither")->position;
    if (!entropy) spec.fail_at(at, "dither=shared needs code=entropy");
    if (p.rate < kOneBit) spec.fail_at(at, "dither=shared needs bits >= 1");
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
  const bool entropy = (p.flags & kFlagEntropy) != 0, dither = (p.flags & kFlagDither) != 0;
  const auto corrupt = [](const char* text) { fail(ErrorCode::kCorruptData, "eden: ", text); };
  if (dither && !entropy) corrupt("dither without an entropy code");
  if ((p.flags & kFlagAllocate) != 0 && entropy) corrupt("a rate per block with an entropy code");
  if (dither && p.scale != ScaleKind::kUnbiased) corrupt("dither with a scale that is not unbiased");
  check_fields("eden", p,
               {.rotates = true,
                .last_scale = ScaleKind::kNorm,
                .flags = kFlagEntropy | kFlagDither | kFlagAllocate,
                .min_rate = kMinRate,
                .max_rate = kMaxRate,
                .min_param = entropy ? quant::kMinStepQ20 : 0,
                .max_param = entropy ? quant::kMaxStepQ20 : 0,
                .param_name = entropy ? "step" : "parameter",
                .max_log2_block = entropy ? kMaxEntropyLog2Block : kMaxLog2Block});
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
          kMaxBits};
}

}  // namespace kpd::gradient
