// tools: who may use `kpd serve`: keys, names that requests call it, sites whose pages may ask.
#pragma once

#include <string>
#include <vector>

namespace kpd::tool {

struct AccessOptions {
  std::string key, key_file;
  bool has_key = false, has_key_file = false;  // also where they are given as empty texts
  std::vector<std::string> allowed_hosts, origins;
};

inline constexpr const char* kKeyVariable = "KPD_API_KEY";

// --api-key and the lines of --api-key-file; without either what the environment variable KPD_API_KEY holds. None: no key is
// needed. Throws UsageError for keys that no client can put into a header, Error(kIo) for a file that cannot be read.
std::vector<std::string> read_keys(const AccessOptions& options);

bool is_loopback(const std::string& host);

// An address as it stands in a URL.
std::string in_url(const std::string& host);

// What requests may call a server on `host`. One that all the network can reach has names that it does not know: empty.
std::vector<std::string> host_names(const std::string& host, const std::vector<std::string>& allowed);

// --cors-origin as browsers write it in Origin: "https://chat.example", "http://localhost:3000", "null", or "*".
std::vector<std::string> read_origins(const std::vector<std::string>& given);

}  // namespace kpd::tool
