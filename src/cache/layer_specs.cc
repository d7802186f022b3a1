// cache: a spec for each layer, from the text that a user gives.
#include <charconv>
#include <optional>

#include "kpd/base/error.h"
#include "kpd/cache/kv_cache.h"

namespace kpd::cache {
namespace {

// The number that all of `text` is.
std::optional<size_t> number(std::string_view text) {
  size_t n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return n;
}

}  // namespace

std::vector<std::string> layer_specs(std::string_view spec, std::span<const std::string> others, size_t n_layers) {
  check_spec(spec);
  std::vector<std::string> specs(n_layers, std::string(spec));
  std::vector<bool> named(n_layers, false);
  for (const std::string_view other : others) {
    const size_t equals = other.find('=');
    if (equals == std::string_view::npos || equals == 0)
      fail(ErrorCode::kInvalidArgument, "'", other.substr(0, 60), "', expected LAYERS=SPEC, for example 0,4-7=f32");
    const std::string_view its = other.substr(equals + 1);
    check_spec(its);
    const std::string_view numbers = other.substr(0, equals);
    for (size_t at = 0; at <= numbers.size();) {
      const std::string_view item = numbers.substr(at, numbers.find(',', at) - at);
      at += item.size() + 1;
      const size_t dash = item.find('-');
      const std::optional<size_t> first = number(item.substr(0, dash));
      const std::optional<size_t> last = dash == std::string_view::npos ? first : number(item.substr(dash + 1));
      if (!first || !last || *first > *last) {
        fail(ErrorCode::kInvalidArgument, "'", other.substr(0, 60), "': '", item.substr(0, 60),
             "', expected the number of a layer or a range like 4-7");
      }
      if (*last >= n_layers)
        fail(ErrorCode::kInvalidArgument, "'", other.substr(0, 60), "': layer ", *last, ", there are ", n_layers,
             ", from 0 on");
      for (size_t i = *first; i <= *last; ++i) {
        if (named[i]) fail(ErrorCode::kInvalidArgument, "'", other.substr(0, 60), "': layer ", i, " is named twice");
        named[i] = true;
        specs[i] = its;
      }
    }
  }
  return specs;
}

}  // namespace kpd::cache
