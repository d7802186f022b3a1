// fuzz: base's spec grammar. Anything thrown but kpd::Error is a finding; what parses must be made of its own parts.
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "kpd/base/error.h"
#include "kpd/base/spec.h"

namespace {

constexpr std::array<std::string_view, 5> kKeys = {"bits", "block", "code", "scale", "rounds"};
constexpr std::array<std::string_view, 2> kCodes = {"fixed", "entropy"};

template <class Fn>
void attempt(const Fn& fn) {
  try {
    fn();
  } catch (const kpd::Error& e) {
    if (std::string_view(e.what()).find('\n') != std::string_view::npos) __builtin_trap();  // one line
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  attempt([&] {
    const kpd::Spec spec = kpd::Spec::parse(text);
    std::string again = spec.method();
    for (const auto& item : spec.items()) {
      again += (again.size() == spec.method().size() ? ":" : ",") + item.key + "=" + item.value;
      if (text.substr(item.position - 1, item.value.size()) != item.value) __builtin_trap();
    }
    if (again != text) __builtin_trap();
    attempt([&] { spec.check_keys(kKeys); });
    attempt([&] { (void)spec.number("bits", 1, .05, 8); });
    attempt([&] { (void)spec.integer("block", 4096, 64, 65536); });
    attempt([&] { (void)spec.choice("code", 0, kCodes); });
  });
  return 0;
}
