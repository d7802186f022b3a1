// base: patterns of names. Private.
#pragma once

#include <string_view>

namespace kpd {

// Whether the whole name fits: `*` stands for any characters, `?` for one, all others for themselves. Linear in the name for
// each star: only the last one is ever taken back.
bool fits_pattern(std::string_view pattern, std::string_view name);

}  // namespace kpd
