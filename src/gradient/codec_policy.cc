// gradient: which tensor has which codec (kpd/gradient/codec.h).
#include <algorithm>
#include <optional>

#include "base/glob.h"
#include "gradient/stream_format.h"
#include "kpd/base/error.h"
#include "kpd/gradient/codec.h"
#include "kpd/gradient/codec_policy.h"

namespace kpd::gradient {

CodecPolicy CodecPolicy::parse(std::span<const std::string> texts, const Codec& fallback) {
  CodecPolicy policy(fallback);
  std::optional<std::string> base;
  for (const std::string& text : texts) {
    // In a spec '=' stands behind the ':' only.
    const size_t equals = text.find('=');
    if (equals < text.find(':')) {
      if (equals == 0)
        fail(ErrorCode::kInvalidArgument, "codec ", printable(text), ": expected PATTERN=SPEC or SPEC, the pattern is empty");
      policy.by_name.emplace_back(text.substr(0, equals), Codec::parse(std::string_view(text).substr(equals + 1)));
      continue;
    }
    if (base) {
      fail(ErrorCode::kInvalidArgument, "two codecs for the same tensors: ", printable(*base), " and ", printable(text),
           "; PATTERN=SPEC gives a codec to the tensors whose names match");
    }
    base = text;
    policy.base = Codec::parse(text);
  }
  return policy;
}

const Codec& CodecPolicy::of(std::string_view tensor_name) const {
  for (const auto& [pattern, codec] : by_name) {
    if (fits_pattern(pattern, tensor_name)) return codec;
  }
  return base;
}

std::string CodecPolicy::text() const {
  std::string out;
  for (const auto& [pattern, codec] : by_name) out += str(pattern, "=", codec.text(), " ");
  return out + base.text();
}

}  // namespace kpd::gradient
