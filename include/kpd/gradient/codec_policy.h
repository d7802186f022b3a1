// gradient: codecs of tensors by their names.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kpd/gradient/codec.h"

namespace kpd::gradient {

// Which codec every tensor of a model gets, by its name. Tensors of fewer than 64 elements and of exact types travel as they
// are whatever it says.
struct CodecPolicy {
  Codec base;                                          // of the tensors that no pattern names
  std::vector<std::pair<std::string, Codec>> by_name;  // (pattern, codec), the first that matches counts

  CodecPolicy() = default;
  CodecPolicy(Codec codec) : base(std::move(codec)) {}  // NOLINT: implicit by design
  // Of "PATTERN=SPEC" and at most one "SPEC" (without one: `fallback`), in this order of preference. In a pattern `*` stands
  // for any characters, none too, and `?` for one byte; it holds no '=' and no ':'. Throws Error(kInvalidArgument).
  static CodecPolicy parse(std::span<const std::string> texts, const Codec& fallback = Codec());
  const Codec& of(std::string_view tensor_name) const;
  std::string text() const;  // what parse() reads, with blanks between
};

}  // namespace kpd::gradient
