// llm: rotary frequencies (RoFormer, arXiv:2104.09864) and their stretchings, as transformers' modeling_rope_utils defines
// them.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "kpd/base/error.h"
#include "kpd/llm/model_description.h"

namespace kpd::llm {
namespace {

// 1 / theta^(2 i / n), in double.
std::vector<double> plain_radians(double theta, size_t n_rotated) {
  std::vector<double> radians(n_rotated / 2);
  for (size_t i = 0; i < radians.size(); ++i) {
    radians[i] = 1.0 / std::pow(theta, static_cast<double>(2 * i) / static_cast<double>(n_rotated));
  }
  return radians;
}

// "NTK-aware": the base grows with the context beyond the trained one.
double dynamic_theta(const RopeDescription& rope, size_t n_positions) {
  const auto trained = static_cast<double>(rope.original_context);
  const double n = std::max(static_cast<double>(n_positions), trained);
  const auto dim = static_cast<double>(rope.n_rotated);
  return rope.theta * std::pow(rope.factor * n / trained - (rope.factor - 1), dim / (dim - 2));
}

// Long waves are stretched by the factor, short ones left, those between blended.
void stretch_llama3(const RopeDescription& rope, std::vector<double>& radians) {
  const auto trained = static_cast<double>(rope.original_context);
  const double longest = trained / rope.low_freq_factor, shortest = trained / rope.high_freq_factor;
  for (double& r : radians) {
    const double wave = 2 * std::numbers::pi / r;
    if (wave > longest) {
      r /= rope.factor;
    } else if (wave >= shortest) {
      const double smooth = (trained / wave - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
      r = (1 - smooth) * r / rope.factor + smooth * r;
    }
  }
}

// YaRN (arXiv:2309.00071): a ramp between stretched and plain over the dimensions that turn beta_slow to beta_fast times.
void stretch_yarn(const RopeDescription& rope, std::vector<double>& radians) {
  const auto dim = static_cast<double>(rope.n_rotated);
  const auto trained = static_cast<double>(rope.original_context);
  const auto dimension_of = [&](double turns) {
    return dim * std::log(trained / (turns * 2 * std::numbers::pi)) / (2 * std::log(rope.theta));
  };
  double low = dimension_of(rope.beta_fast), high = dimension_of(rope.beta_slow);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, dim - 1);
  if (low == high) high += 0.001;
  for (size_t i = 0; i < radians.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    radians[i] = radians[i] / rope.factor * ramp + radians[i] * (1 - ramp);
  }
}

}  // namespace

const char* rope_kind_name(RopeKind kind) {
  switch (kind) {
    case RopeKind::kDefault:
      return "default";
    case RopeKind::kLinear:
      return "linear";
    case RopeKind::kDynamic:
      return "dynamic";
    case RopeKind::kLlama3:
      return "llama3";
    case RopeKind::kYarn:
      return "yarn";
    case RopeKind::kLongRope:
      return "longrope";
  }
  return "?";
}

size_t rope_context(const RopeDescription& rope, size_t n_positions) {
  switch (rope.kind) {
    case RopeKind::kDynamic:
      return std::max(n_positions, rope.original_context);
    case RopeKind::kLongRope:
      return n_positions > rope.original_context ? rope.original_context + 1 : rope.original_context;
    case RopeKind::kDefault:
    case RopeKind::kLinear:
    case RopeKind::kLlama3:
    case RopeKind::kYarn:
      break;
  }
  return 1;
}

RopeFrequencies rope_frequencies(const RopeDescription& rope, size_t n_positions) {
  const double theta = rope.kind == RopeKind::kDynamic ? dynamic_theta(rope, n_positions) : rope.theta;
  std::vector<double> radians = plain_radians(theta, rope.n_rotated);
  const std::vector<float>* factors = &rope.short_factor;
  switch (rope.kind) {
    case RopeKind::kDefault:
    case RopeKind::kDynamic:
      break;
    case RopeKind::kLinear:
      for (double& r : radians) r /= rope.factor;
      break;
    case RopeKind::kLlama3:
      stretch_llama3(rope, radians);
      break;
    case RopeKind::kYarn:
      stretch_yarn(rope, radians);
      break;
    case RopeKind::kLongRope:
      if (n_positions > rope.original_context) factors = &rope.long_factor;
      break;
  }
  for (size_t i = 0; i < factors->size(); ++i) radians[i] /= (*factors)[i];
  RopeFrequencies result;
  result.radians.assign(radians.begin(), radians.end());
  result.attention_factor = static_cast<float>(rope.attention_factor);
  return result;
}

}  // namespace kpd::llm
