// gradient: the fields of a method's parameters, the same for every method: their limits, the spec keys that set them, and the
// checks of a record that was read from a stream. Private.
#pragma once

#include <cstdint>
#include <string_view>

#include "kpd/base/spec.h"
#include "kpd/gradient/codec.h"
#include "kpd/transform/rotation.h"

namespace kpd::gradient {

inline constexpr uint32_t kOneBit = 1u << 16;  // WireParams::rate of one bit per coordinate
inline constexpr int kMinLog2Block = 6;
inline constexpr int kMaxLog2Block = 14;  // a block with its tail has up to 32767 elements
inline constexpr int kDefaultLog2Block = 12;
inline constexpr int kRatesPerBit = 20;                  // of methods whose rate need not be whole
inline constexpr double kRateUnit = 1.0 / kRatesPerBit;  // of a block's own rate (kFlagAllocate)
inline constexpr uint8_t kAutoRounds = 0;  // in a record of a method that rotates: by the size, see rounds_by_size()
using transform::kMaxRounds;

// Rows of MethodRow::keys that several methods have.
inline constexpr double kMinBits = 0.05;
inline constexpr int kMaxBits = 8;
inline constexpr SpecKey kBitsKey{"bits", "0.05..8", "1"};
inline constexpr SpecKey kBlockKey{"block", "64..16384, a power of two", "4096"};
inline constexpr SpecKey kRoundsKey{"rounds", "1..6", "by size"};

// --- spec keys; errors are Spec's own and name the position.
uint8_t parse_block(const Spec& spec, int default_log2 = kDefaultLog2Block);     // the log2
uint8_t parse_rounds(const Spec& spec);                                          // kAutoRounds unless given
uint32_t parse_bits(const Spec& spec, double fallback, double min, double max);  // in units of 2^-16
ScaleKind parse_scale(const Spec& spec, bool norm = false);                      // unbiased or biased; `norm`: norm, too

// --- fields of a hostile record: each throws Error(kCorruptData) "METHOD: FIELD VALUE, expected ...".
void check_field(std::string_view method, std::string_view field, uint64_t value, uint64_t min, uint64_t max);
// log2_block in range, rounds in 1..6 (`rotates`) or 0, no flags but `flags` and rounds by size, scale kind at most
// `last_scale`, rate and param in range.
struct FieldLimits {
  bool rotates = false;
  ScaleKind last_scale = ScaleKind::kUnbiased;
  unsigned flags = 0;
  uint64_t min_rate = 0, max_rate = 0;
  uint64_t min_param = 0, max_param = 0;
  std::string_view param_name = "parameter";
  int max_log2_block = kMaxLog2Block;
};
void check_fields(std::string_view method, const WireParams& params, const FieldLimits& limits);

}  // namespace kpd::gradient
