// io: the one way from a model's JSON files to values. Private.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace kpd::io {

using Json = nlohmann::json;

// Throws Error(kCorruptData) if it is not JSON, Error(kLimitExceeded) if it is too large or too deep.
Json parse_json(std::string_view text, const std::string& file);

}  // namespace kpd::io
