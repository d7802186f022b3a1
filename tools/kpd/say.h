// tools: lines for people on stderr that a command can do without: where stderr is closed, its reader gone or its disk full,
// the work goes on.
#pragma once

#include <cstdio>
#include <string>

#include <fmt/format.h>

namespace kpd::tool {

// In one piece, so that lines of several threads do not mix.
template <class... Args>
void say(fmt::format_string<Args...> format, Args&&... args) {
  const std::string text = fmt::format(format, std::forward<Args>(args)...);
  static_cast<void>(std::fwrite(text.data(), 1, text.size(), stderr));
}

}  // namespace kpd::tool
