// base: see cpu_quota.h. /proc/self/cgroup names the group in each hierarchy, /proc/self/mountinfo where the hierarchy is
// mounted and which part of it is to be seen there (proc(5), cgroups(7)).
#include "base/cpu_quota.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string_view>
#include <vector>

namespace kpd {
namespace {

// Where a hierarchy is mounted, and the group that its root shows.
struct Mount {
  std::string point, shown;
};

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream in(line);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

bool lists(const std::string& names, std::string_view wanted) {
  std::istringstream in(names);
  for (std::string name; std::getline(in, name, ',');) {
    if (name == wanted) return true;
  }
  return false;
}

// Spaces and the like stand as \040 in mountinfo.
std::string unescaped(const std::string& text) {
  const auto octal = [](char c) { return c >= '0' && c <= '7'; };
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size() && octal(text[i + 1]) && octal(text[i + 2]) && octal(text[i + 3])) {
      out += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + (text[i + 3] - '0'));
      i += 3;
    } else {
      out += text[i];
    }
  }
  return out;
}

// The mount of version 2, or of version 1's hierarchy with the controller cpu.
std::optional<Mount> find_mount(const std::string& root, bool unified) {
  std::ifstream in(root + "/proc/self/mountinfo");
  for (std::string line; std::getline(in, line);) {
    const std::vector<std::string> words = words_of(line);
    const auto dash = std::find(words.begin(), words.end(), "-");
    if (words.size() < 6 || words.end() - dash < 4) continue;
    const bool fits = unified ? dash[1] == "cgroup2" : dash[1] == "cgroup" && lists(dash[3], "cpu");
    if (fits) return Mount{unescaped(words[4]), unescaped(words[3])};
  }
  return std::nullopt;
}

// The group of this process, as /proc/self/cgroup names it: "0::/path" in version 2, "4:cpu,cpuacct:/path" in version 1.
std::optional<std::string> find_group(const std::string& root, bool unified) {
  std::ifstream in(root + "/proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {
    const size_t first = line.find(':'), second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (unified ? line.starts_with("0::") : lists(controllers, "cpu")) return line.substr(second + 1);
  }
  return std::nullopt;
}

std::optional<double> quota_in(const std::string& folder, bool unified) {
  double quota = 0, period = 0;
  if (unified) {
    std::ifstream in(folder + "/cpu.max");
    if (!(in >> quota >> period)) return std::nullopt;  // "max" is no number
  } else {
    std::ifstream of_quota(folder + "/cpu.cfs_quota_us"), of_period(folder + "/cpu.cfs_period_us");
    if (!(of_quota >> quota) || !(of_period >> period)) return std::nullopt;
  }
  if (!(quota > 0) || !(period > 0)) return std::nullopt;
  return quota / period;
}

// The least of the group and of those around it, up to what is mounted.
std::optional<double> least_quota(const std::string& root, bool unified) {
  const std::optional<Mount> mount = find_mount(root, unified);
  std::optional<std::string> group = find_group(root, unified);
  if (!mount || !group) return std::nullopt;
  // A container may see its own group as the root of the mount, or a path that leads out of what it sees.
  if (mount->shown != "/" && group->starts_with(mount->shown)) group->erase(0, mount->shown.size());
  if (!group->starts_with('/') || group->find("/..") != std::string::npos) group->clear();
  std::optional<double> least;
  for (;;) {
    while (group->ends_with('/')) group->pop_back();
    if (const auto quota = quota_in(root + mount->point + *group, unified); quota && (!least || *quota < *least)) least = quota;
    if (group->empty()) return least;
    group->erase(group->find_last_of('/'));
  }
}

}  // namespace

std::optional<double> cpu_quota(const std::string& root) {
  std::optional<double> least;
  for (const bool unified : {true, false}) {
    if (const auto quota = least_quota(root, unified); quota && (!least || *quota < *least)) least = quota;
  }
  return least;
}

}  // namespace kpd
