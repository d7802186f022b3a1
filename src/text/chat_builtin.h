// text: chat templates for models that bring none. Private.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace kpd::text {

std::optional<std::string> built_in_chat_template(std::string_view name);
std::span<const std::string_view> built_in_chat_names();

}  // namespace kpd::text
