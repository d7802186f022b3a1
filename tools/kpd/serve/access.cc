#include "serve/access.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "cli.h"
#include "serve/http_request.h"
#include "kpd/base/ascii.h"
#include "kpd/io/file.h"

namespace kpd::tool {
namespace {

// What a client can put into a header as it is.
void check_key(const std::string& key, const char* where) {
  const auto visible = [](char c) { return c > ' ' && c < 0x7F; };
  if (key.empty() || !std::all_of(key.begin(), key.end(), visible))
    usage(where, ": expected visible ASCII characters, no spaces, at least one");
}

// A key a line; empty lines are none.
void read_key_file(const std::string& path, std::vector<std::string>& keys) {
  constexpr size_t kMaxBytes = 1 << 20;
  const io::MappedFile file = io::map_file(path);
  if (file.bytes().size() > kMaxBytes) usage("--api-key-file: ", path, " has more than ", kMaxBytes, " bytes");
  const std::string text(file.text());
  const size_t before = keys.size();
  for (std::string line : split(text, '\n')) {
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty()) continue;
    check_key(line, "--api-key-file");
    keys.push_back(std::move(line));
  }
  if (keys.size() == before) usage("--api-key-file: ", path, " holds no key");
}

}  // namespace

std::vector<std::string> read_keys(const AccessOptions& options) {
  std::vector<std::string> keys;
  if (options.has_key) {
    check_key(options.key, "--api-key");
    keys.push_back(options.key);
  }
  if (options.has_key_file) read_key_file(options.key_file, keys);
  if (!keys.empty()) return keys;
  const char* const variable = std::getenv(kKeyVariable);
  if (variable == nullptr) return keys;
  check_key(variable, kKeyVariable);
  return {variable};
}

bool is_loopback(const std::string& host) { return host == "localhost" || host == "::1" || host.starts_with("127."); }

std::string in_url(const std::string& host) { return host.find(':') == std::string::npos ? host : "[" + host + "]"; }

std::vector<std::string> host_names(const std::string& host, const std::vector<std::string>& allowed) {
  if (!is_loopback(host) && allowed.empty()) return {};
  std::vector<std::string> names{"localhost", "127.0.0.1", "[::1]"};
  names.push_back(host_name(in_url(host)));
  for (std::string name : allowed) {
    if (std::count(name.begin(), name.end(), ':') > 1 && !name.starts_with('[')) name = "[" + name + "]";
    if (name.empty() || name.find_first_of("/@ ") != std::string::npos || host_name(name).size() != name.size())
      usage("--allowed-host: expected a name or an address without a port, not '", name, "'");
    names.push_back(host_name(name));
  }
  return names;
}

std::vector<std::string> read_origins(const std::vector<std::string>& given) {
  std::vector<std::string> origins;
  for (const std::string& origin : given) {
    const size_t scheme = origin.find("://");
    const bool is_site = scheme != std::string::npos && scheme > 0 && scheme + 3 < origin.size() &&
                         origin.find_first_of("/?#@ ,", scheme + 3) == std::string::npos;
    if (!is_site && origin != "*" && origin != "null")
      usage("--cors-origin: expected a site as https://chat.example or http://localhost:3000, without a path, or *, not '",
            origin, "'");
    // Browsers write schemes and names in lower case.
    origins.push_back(ascii_lower(origin));
  }
  return origins;
}

}  // namespace kpd::tool
