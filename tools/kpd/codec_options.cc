// tools: see codec_options.h.
#include "codec_options.h"

#include <algorithm>
#include <cstdio>
#include <limits>

#include "cli.h"

namespace kpd::tool {
namespace {

// In a spec '=' stands behind ':' only, and a pattern has neither.
bool is_pattern(const std::string& text) { return text.find('=') < text.find(':'); }

}  // namespace

std::vector<gradient::CodecPolicy> parse_codecs(std::span<const std::string> texts) {
  std::vector<std::string> patterns, plain;
  for (const std::string& text : texts) (is_pattern(text) ? patterns : plain).push_back(text);
  if (plain.empty()) plain.push_back(kDefaultCodec);
  std::vector<gradient::CodecPolicy> policies;
  for (const std::string& text : plain) {
    std::vector<std::string> all = patterns;
    all.push_back(text);
    policies.push_back(as_usage("--codec", [&] { return gradient::CodecPolicy::parse(all); }));
  }
  return policies;
}

gradient::CodecPolicy parse_one_codec(std::span<const std::string> texts) {
  std::vector<gradient::CodecPolicy> policies = parse_codecs(texts);
  if (policies.size() > 1) {
    usage("--codec ", policies[0].base.text(), " and --codec ", policies[1].base.text(),
          ": give one; PATTERN=SPEC gives another codec to the tensors whose names match");
  }
  return policies[0];
}

void note_idle_patterns(const gradient::CodecPolicy& policy, const gradient::Manifest& manifest) {
  for (const auto& [pattern, given] : policy.by_name) {
    const gradient::Codec& codec = given;  // clang 14 lets no lambda refer to the binding itself
    const bool used = std::any_of(manifest.begin(), manifest.end(),
                                  [&](const gradient::TensorInfo& tensor) { return &policy.of(tensor.name) == &codec; });
    if (used) continue;
    std::fprintf(stderr, "note: --codec %s=%s is of no tensor: none has such a name, or an earlier pattern has them\n",
                 pattern.c_str(), codec.text().c_str());
  }
}

double limit_vnmse(const gradient::CodecPolicy& policy, uint64_t n) {
  return policy.by_name.empty() ? policy.base.limit_vnmse(n) : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace kpd::tool
