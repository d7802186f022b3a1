// gradient: how ranks greet each other before an average. Private.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kpd/base/bytes.h"
#include "kpd/base/error.h"
#include "kpd/base/hash.h"
#include "kpd/gradient/message.h"

namespace kpd::gradient {

inline constexpr uint32_t kHelloMagic = 0x3248504b;  // "KPH2"

// What ranks must agree on, as they greet each other. Weights may differ.
struct Hello {
  uint64_t manifest = 0, run = 0, secret = 0, pattern = 0, codec = 0, second = 0, weight = 0;
  static constexpr size_t kBytes = 4 + 7 * 8;

  std::vector<uint8_t> bytes() const {
    std::vector<uint8_t> b(kBytes);
    ByteWriter w(b);
    w.u32(kHelloMagic);
    for (const uint64_t v : {manifest, run, secret, pattern, codec, second, weight}) w.u64(v);
    return b;
  }
  static Hello read(const std::vector<uint8_t>& b, int from) {
    const std::string name = str("greeting of rank ", from);
    ByteReader r(b, name);
    if (b.size() != kBytes || r.u32("magic") != kHelloMagic)
      fail(ErrorCode::kMismatch, "rank ", from, " does not greet as this version of kpd does");
    Hello h;
    for (uint64_t* v : {&h.manifest, &h.run, &h.secret, &h.pattern, &h.codec, &h.second, &h.weight}) *v = r.u64("greeting");
    return h;
  }
};

inline uint64_t hash_of(std::string_view text) { return hash64(text_bytes(text)); }

// Equal for equal secrets, and good for nothing else.
inline uint64_t hash_of(const RunSecret& secret) {
  const std::string_view purpose = "kpd-greeting";
  std::vector<uint8_t> bytes(purpose.begin(), purpose.end());
  bytes.insert(bytes.end(), secret.bytes.begin(), secret.bytes.end());
  return hash64(bytes);
}

}  // namespace kpd::gradient
