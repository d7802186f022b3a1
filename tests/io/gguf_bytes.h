// tests: GGUF files put together field by field, right or wrong.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace kpd::testing {

class GgufBytes {
 public:
  std::vector<uint8_t> out;

  // Counts may be put in place later: n_tensors at byte 8, n_values at byte 16.
  explicit GgufBytes(uint64_t n_tensors = 0, uint64_t n_values = 0, uint32_t version = 3) {
    raw("GGUF");
    number(version).number(n_tensors).number(n_values);
  }

  GgufBytes& raw(std::string_view v) {
    out.insert(out.end(), v.begin(), v.end());
    return *this;
  }
  template <class T>
  GgufBytes& number(T v) {
    static_assert(std::is_arithmetic_v<T>);
    const auto* p = reinterpret_cast<const uint8_t*>(&v);
    out.insert(out.end(), p, p + sizeof(v));
    return *this;
  }
  GgufBytes& text(std::string_view v) { return number<uint64_t>(v.size()).raw(v); }
  // Key and type; the value follows.
  GgufBytes& key(std::string_view name, uint32_t type) { return text(name).number(type); }
  GgufBytes& array(std::string_view name, uint32_t item_type, uint64_t n) { return key(name, 9).number(item_type).number(n); }
  // dims innermost first, as the file has them.
  GgufBytes& tensor(std::string_view name, const std::vector<uint64_t>& dims, uint32_t type, uint64_t offset) {
    text(name).number(static_cast<uint32_t>(dims.size()));
    for (const uint64_t d : dims) number(d);
    return number(type).number(offset);
  }
  // Padding and n bytes of data that count up.
  std::vector<uint8_t> data(size_t n, size_t alignment = 32) const {
    std::vector<uint8_t> file = out;
    file.resize((file.size() + alignment - 1) / alignment * alignment);
    for (size_t i = 0; i < n; ++i) file.push_back(static_cast<uint8_t>(i));
    return file;
  }
};

}  // namespace kpd::testing
