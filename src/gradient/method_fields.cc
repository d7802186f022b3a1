// gradient: see method_fields.h.
#include "gradient/method_fields.h"

#include <bit>
#include <span>

#include "kpd/base/error.h"

namespace kpd::gradient {

uint8_t parse_block(const Spec& spec, int default_log2) {
  const int64_t block =
      spec.integer("block", int64_t{1} << default_log2, int64_t{1} << kMinLog2Block, int64_t{1} << kMaxLog2Block);
  if (!std::has_single_bit(static_cast<uint64_t>(block))) {
    spec.fail_at(spec.find("block")->position, str("block=", block, ", expected a power of two"));
  }
  return static_cast<uint8_t>(std::countr_zero(static_cast<uint64_t>(block)));
}

uint8_t parse_rounds(const Spec& spec) {
  return spec.has("rounds") ? static_cast<uint8_t>(spec.integer("rounds", 2, 1, kMaxRounds)) : kAutoRounds;
}

uint32_t parse_bits(const Spec& spec, double fallback, double min, double max) {
  return static_cast<uint32_t>(spec.number("bits", fallback, min, max) * kOneBit + 0.5);
}

ScaleKind parse_scale(const Spec& spec, bool norm) {
  static constexpr std::string_view kChoices[] = {"unbiased", "biased", "norm"};
  return static_cast<ScaleKind>(spec.choice("scale", 0, std::span(kChoices).first(norm ? 3 : 2)));
}

void check_field(std::string_view method, std::string_view field, uint64_t value, uint64_t min, uint64_t max) {
  if (value >= min && value <= max) return;
  if (min == max) fail(ErrorCode::kCorruptData, method, ": ", field, " ", value, ", expected ", min);
  fail(ErrorCode::kCorruptData, method, ": ", field, " ", value, ", expected ", min, " to ", max);
}

void check_fields(std::string_view method, const WireParams& params, const FieldLimits& limits) {
  check_field(method, "log2 of the block", params.log2_block, kMinLog2Block, static_cast<uint64_t>(limits.max_log2_block));
  check_field(method, "rounds", params.rounds, limits.rotates ? 1 : 0, limits.rotates ? kMaxRounds : 0);
  check_field(method, "scale kind", static_cast<uint8_t>(params.scale), 0, static_cast<uint8_t>(limits.last_scale));
  check_field(method, "flags", params.flags & ~(limits.flags | (limits.rotates ? kFlagSizedRounds : 0u)), 0, 0);
  check_field(method, "rate", params.rate, limits.min_rate, limits.max_rate);
  check_field(method, limits.param_name, params.param, limits.min_param, limits.max_param);
}

}  // namespace kpd::gradient
