// tools: the --codec options of a command, as they come: SPEC, of which some commands take several, and PATTERN=SPEC, which
// gives a codec to the tensors whose names match ('*norm*=float32').
#pragma once

#include <span>
#include <string>
#include <vector>

#include "kpd/gradient/codec.h"
#include "kpd/gradient/codec_policy.h"
#include "kpd/gradient/message.h"

namespace kpd::tool {

// Help of --codec, behind what it is of.
inline constexpr const char* kPatternHelp =
    "PATTERN=SPEC, e.g. '*norm*=float32', is for the tensors whose names match (* any characters, ? one), the first that "
    "matches";

// A policy for each SPEC (the default where there is none), each with all the patterns. Throws UsageError.
std::vector<gradient::CodecPolicy> parse_codecs(std::span<const std::string> texts);
// Where one SPEC is all that is taken.
gradient::CodecPolicy parse_one_codec(std::span<const std::string> texts);
// Says on stderr which patterns are of none of these tensors: a misspelt one would change nothing without a word.
void note_idle_patterns(const gradient::CodecPolicy& policy, const gradient::Manifest& manifest);
// NaN where tensors have codecs of their own.
double limit_vnmse(const gradient::CodecPolicy& policy, uint64_t n = 0);

}  // namespace kpd::tool
