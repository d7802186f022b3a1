// tools: a codec spec from the fields that a stream carries, and the table of methods as text.
#pragma once

#include <string>

#include "kpd/gradient/codec.h"
#include "kpd/gradient/codec_policy.h"

namespace kpd::tool {

// A spec that encodes to the same fields, e.g. "eden:bits=1,block=4096,rounds=2"; "method 77" for an unknown id.
std::string spec_text(const gradient::WireParams& params);

// A spec with every key of its method, those that were not given as their defaults: "eden:bits=1,code=fixed,rounds=by
// size,..."; of a policy the base and PATTERN=SPEC of each pattern.
std::string full_spec(const gradient::CodecPolicy& policy);

}  // namespace kpd::tool
