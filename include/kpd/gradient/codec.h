// gradient: the table of methods and what a spec means on the wire.
//
// A codec is named by a spec (kpd/base/spec.h), e.g. "eden:bits=1" or "qsgd:bits=4,block=512". `kpd codecs` prints the table.
// Tensors of one model may have codecs of their own, by name: a policy.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
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
// As a codec's or a stream's record, rounds = 0 of a method that rotates means "by the size of what is coded". As the parameters
// of one unit (a tensor, or several joined) rounds is resolved, kFlagSizedRounds says that it was, and kFlagJoin is gone.
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
inline constexpr uint16_t kFlagEntropy = 1;      // code=entropy
inline constexpr uint16_t kFlagDither = 2;       // dither=shared
inline constexpr uint16_t kFlagAllocate = 4;     // a rate per block travels in the segment
inline constexpr uint16_t kFlagSizedRounds = 8;  // in memory only: rounds follow from the size; a block may ask for 3
inline constexpr uint16_t kFlagJoin = 16;        // tensors shorter than a block are coded together

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
  // Expected |x^ - x|^2 / |x|^2 in the limit of large dimension, from the paper's formula at this codec's rate; NaN if the
  // method has no input-independent limit.
  double limit_vnmse() const;

 private:
  Codec(std::string_view text, const WireParams& params, const MethodRow& row) : text_(text), params_(params), row_(&row) {}

  std::string text_;
  WireParams params_;
  const MethodRow* row_;
};

// Which codec every tensor of a model gets, by its name. Tensors of fewer than 64 elements and of exact types travel as they are
// whatever it says.
struct CodecPolicy {
  Codec base;                                         // of the tensors that no pattern names
  std::vector<std::pair<std::string, Codec>> by_name;  // (pattern, codec), the first that matches counts

  CodecPolicy() = default;
  CodecPolicy(Codec codec) : base(std::move(codec)) {}  // NOLINT: implicit by design
  // Of "PATTERN=SPEC" and at most one "SPEC" (without one: `fallback`), in this order of preference. In a pattern `*` stands for
  // any characters, none too, and `?` for one byte; it holds no '=' and no ':'. Throws Error(kInvalidArgument).
  static CodecPolicy parse(std::span<const std::string> texts, const Codec& fallback = Codec());
  const Codec& of(std::string_view tensor_name) const;
  std::string text() const;  // what parse() reads, with blanks between
};

}  // namespace kpd::gradient
