// base: the one place where the version stands; CMake reads it from here.
#pragma once

#define KPD_VERSION_MAJOR 0
#define KPD_VERSION_MINOR 1
#define KPD_VERSION_PATCH 0

namespace kpd {
inline constexpr const char kVersion[] = "0.1.0";
}  // namespace kpd
