// text: JSON into a chat template's values. Private.
#pragma once

#include <string_view>

#include "text/jinja_value.h"

namespace kpd::text::jinja {

// Its texts are foreign. Throws Error(kInvalidArgument) for what is no JSON object or nested deeper than 32 levels; `what` is
// named.
Value parse_variables(std::string_view json, std::string_view what);

}  // namespace kpd::text::jinja
