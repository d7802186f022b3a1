// fuzz: the bytes of HTTP connections to `kpd serve`. The first byte says in what pieces they arrive. A finding is: requests
// that depend on the pieces, a body beyond the limit, a method or path that could not have been in a request line, and what the
// sanitizers see.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "../tools/kpd/serve/http_request.h"

namespace {

constexpr size_t kBodyBytes = 4096;

void expect(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "%s\n", what);
  __builtin_trap();
}

// All that a connection says, and how it ended.
std::vector<std::string> read_all(std::string_view bytes, size_t piece) {
  std::vector<std::string> out;
  size_t at = 0;
  kpd::tool::RequestReader reader(
      kBodyBytes,
      [&](std::string& to, size_t at_most) {
        const size_t n = std::min({at_most, piece, bytes.size() - at});
        to.append(bytes, at, n);
        at += n;
        return n > 0;
      },
      [] {});
  try {
    for (;;) {
      const kpd::tool::RawRequest r = reader.next();
      expect(r.body.size() <= kBodyBytes, "a body beyond the limit");
      expect((r.method + r.target).find_first_of(" \r\n") == std::string::npos, "a method or path with a space or line in it");
      expect((r.host + r.origin + r.authorization).find_first_of("\r\n") == std::string::npos, "a field of two lines");
      out.insert(out.end(), {r.method, r.target, r.host, r.origin, r.authorization, r.keep_alive ? "+" : "-", r.body});
      kpd::tool::host_name(r.host);
    }
  } catch (const kpd::tool::NoRequest&) {
    out.push_back("end");
  } catch (const kpd::tool::HttpError& e) {
    expect(e.status() >= 400 && e.status() <= 505, "an unknown status");
    out.push_back(std::to_string(e.status()) + e.what());
  }
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0 || size > 200000) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  expect(read_all(bytes, size_t{1} + data[0]) == read_all(bytes, bytes.size() + 1),
         "requests depend on how their bytes arrive");
  return 0;
}
