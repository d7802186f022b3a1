// gradient: the table of methods and what a spec means on the wire.
//
// A codec is named by a spec (kpd/base/spec.h), e.g. "eden:bits=1" or "qsgd:bits=4,block=512". `kpd codecs` prints the table.
// Tensors of one model may have codecs of their own, by name: codec_policy.h.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kpd/base/spec.h"

namespace kpd::gradient {

// How the decoded vector is scaled (EDEN section 1.1): y the rotated vector, q its quantized image.
enum class ScaleKind : uint8_t {
  kUnbiased = 0,  // S = |y|^2 / <y,q>
  kBiased = 1,    // S = <y,q> / |q|^2, least error of one vector
  kNorm = 2,      // S = |y| / |q|
};

// A codec record of a stream (docs/format/gradient.md), all that a decoder needs. Plain data.
//
// As a codec's or a stream's record, rounds = 0 of a method that rotates means "by the size of what is coded". As the
// parameters of one unit (a tensor, or several joined) rounds is resolved, kFlagSizedRounds says that it was, and kFlagJoin is
// gone.
struct WireParams {
  uint8_t method = 0;       // numbered method id
  uint8_t log2_block = 12;  // block = 2^log2_block elements
  uint8_t rounds = 0;       // of the randomized Hadamard; 0 where there is none
  ScaleKind scale = ScaleKind::kUnbiased;
  uint16_t flags = 0;  // kFlag...
  uint32_t rate = 0;   // bits per coordinate in units of 2^-16
  uint32_t param = 0;  // of the method: the step in units of 2^-20 for entropy codes, levels for qsgd, ...
  bool operator==(const WireParams&) const = default;
  double bits() const { return rate / 65536.0; }
};
inline constexpr uint16_t kFlagEntropy = 1;   // code=entropy
inline constexpr uint16_t kFlagDither = 2;    // dither=shared
inline constexpr uint16_t kFlagAllocate = 4;  // a rate per block travels in the segment
// In memory only: rounds follow from the size (no `rounds` was given); an eden block whose size asks for 2 may ask for 3 in its
// scale word.
inline constexpr uint16_t kFlagSizedRounds = 8;
inline constexpr uint16_t kFlagJoin = 16;       // tensors shorter than a block are coded together
inline constexpr uint16_t kFlagMaxNorm = 32;    // qsgd, norm=max
inline constexpr uint16_t kFlagFixedCode = 64;  // qsgd, code=fixed

// A key of a method's spec, for people: what it takes and what holds without it. A test parses what stands here.
struct SpecKey {
  std::string_view key;
  std::string_view values;    // "fixed|entropy", or "64..16384" with a note behind a comma
  std::string_view fallback;  // a value, or words where it depends: "by size"
};

// One row of the table of methods.
struct MethodRow {
  uint8_t id;                 // on the wire; never reused
  std::string_view name;      // in a spec
  std::string_view bits;      // for people: "0.05..8"
  std::string_view unbiased;  // for people: how unbiased
  std::string_view limit;     // for people: the error limit
  std::string_view paper;
  std::vector<SpecKey> keys;
};
const std::vector<MethodRow>& methods();

// A parsed and checked spec.
class Codec {
 public:
  Codec();  // float32
  // Throws Error(kInvalidArgument) naming the position and the nearest method, key or choice.
  static Codec parse(std::string_view spec_text);
  const std::string& text() const { return text_; }
  const WireParams& params() const { return params_; }
  const MethodRow& row() const { return *row_; }
  double bits() const { return params_.bits(); }
  // Expected |x^ - x|^2 / |x|^2 of a tensor of n elements, whatever their values; NaN if the method states no such limit.
  // n = 0: the limit of large dimension, from the papers' formulas.
  // Else of what travels for n elements (below 64 float32, so 0; an entropy code whose codes are shorter than its flush is the
  // fixed code) in blocks of the length that most of them have:
  //   eden and drive, drive+: under a uniform rotation, kpd/quant/sphere.h. Entropy code with unbiased scale below .5 bit:
  //   exact for its closed-form scale; all else: of each block's own scale, to first order in 1/n (one bit and less: closer).
  //   The dithered code: step^2/12 at any n. randk: exact. sq, hadamard-sq, qsgd: the papers' upper bounds with the longest
  //   block's length as dimension.
  // Costs up to milliseconds. The same bits on every machine.
  double limit_vnmse(uint64_t n = 0) const;
  // The same spec with `bits` in it set. Error(kInvalidArgument) if the method has no such key or not this rate.
  Codec with_bits(double bits) const;

 private:
  Codec(std::string_view text, const WireParams& params, const MethodRow& row) : text_(text), params_(params), row_(&row) {}

  std::string text_;
  WireParams params_;
  const MethodRow* row_;
};

// The least rate, on a grid of 1/20 bit (of whole bits for qsgd), at which this codec's limit_vnmse(n) is at most `vnmse`, by
// bisection; with_bits() takes it. NaN if no rate is enough, or the method has no rate to choose or states no limit. All ranks
// of a run get the same one. An entropy code takes some tens of milliseconds.
double bits_for_vnmse(const Codec& codec, double vnmse, uint64_t n = 0);

}  // namespace kpd::gradient
