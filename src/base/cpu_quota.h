// base: how much processor time the control groups of this process (a container's limits) let it have. Private. Reads what the
// kernel says under /proc and /sys, nothing else.
#pragma once

#include <optional>
#include <string>

namespace kpd {

// Processors' worth of time, e.g. 1.5: the least that any of the groups around this process may use (version 2: cpu.max;
// version 1: cpu.cfs_quota_us over cpu.cfs_period_us). None without a quota, or where nothing of it can be read. `root` stands
// before every path: "" but in tests. Thread-safe; allocates.
std::optional<double> cpu_quota(const std::string& root);

}  // namespace kpd
