// llm: elapsed time. Private.
#pragma once

#include <chrono>

namespace kpd::llm {

using Clock = std::chrono::steady_clock;

inline double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

}  // namespace kpd::llm
