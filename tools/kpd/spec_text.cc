// tools: see spec_text.h.
#include "spec_text.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include <fmt/format.h>

#include "kpd/base/error.h"
#include "kpd/base/spec.h"

namespace kpd::tool {
namespace {

constexpr uint8_t kExactMethod = 11;  // what is no floating point, whatever the codec: in no spec

// The shortest decimal of q / 65536 that a spec reads back as q.
std::string q16_text(uint32_t q) {
  const double value = q / 65536.0;
  for (int digits = 1; digits < 12; ++digits) {
    const std::string text = fmt::format("{:.{}g}", value, digits);
    if (std::floor(std::strtod(text.c_str(), nullptr) * 65536 + 0.5) == q) return text;
  }
  return fmt::format("{}", value);
}

}  // namespace

std::string spec_text(const gradient::WireParams& params) {
  const auto& rows = gradient::methods();
  const auto row = std::find_if(rows.begin(), rows.end(), [&](const gradient::MethodRow& r) { return r.id == params.method; });
  if (params.method == kExactMethod) return "exact";
  if (row == rows.end()) return fmt::format("method {}", params.method);
  std::string text(row->name);
  char separator = ':';
  const auto put = [&](std::string_view key, const std::string& value) {
    if (std::none_of(row->keys.begin(), row->keys.end(), [&](const gradient::SpecKey& k) { return k.key == key; })) return;
    text += str(separator, key, "=", value);
    separator = ',';
  };
  put("bits", q16_text(params.rate));
  if (params.flags & gradient::kFlagEntropy) put("code", "entropy");
  if (params.flags & gradient::kFlagDither) put("dither", "shared");
  if (params.flags & gradient::kFlagAllocate) put("allocate", "energy");
  if (params.flags & gradient::kFlagMaxNorm) put("norm", "max");
  if (params.flags & gradient::kFlagFixedCode) put("code", "fixed");
  // Of a record: a unit's resolved parameters do not say whether it was to be joined. Rounds that follow from the size do so
  // again, with what a block may ask for beyond them.
  const bool resolved = (params.flags & gradient::kFlagSizedRounds) != 0;
  if (!resolved && (params.flags & (gradient::kFlagJoin | gradient::kFlagDither)) == 0) put("join", "0");
  constexpr const char* kScales[] = {"unbiased", "biased", "norm"};
  if (params.scale != gradient::ScaleKind::kUnbiased)
    put("scale", kScales[std::min<size_t>(2, static_cast<size_t>(params.scale))]);
  if (params.rounds != 0 && !resolved) put("rounds", fmt::format("{}", params.rounds));
  if (row->name == "kashin-sq") put("iterations", fmt::format("{}", params.param));
  if (row->name == "terngrad" && params.param != 0) put("clip", q16_text(params.param));
  put("block", fmt::format("{}", uint64_t{1} << std::min<unsigned>(63, params.log2_block)));
  return text;
}

namespace {

std::string full_spec(const gradient::Codec& codec) {
  const Spec spec = Spec::parse(codec.text());
  std::string text(codec.row().name);
  for (const gradient::SpecKey& key : codec.row().keys) {
    const Spec::Item* given = spec.find(key.key);
    text += str(&key == codec.row().keys.data() ? ":" : ",", key.key, "=",
                given != nullptr ? std::string_view(given->value) : key.fallback);
  }
  return text;
}

}  // namespace

std::string full_spec(const gradient::CodecPolicy& policy) {
  std::string text = full_spec(policy.base);
  for (const auto& [pattern, codec] : policy.by_name) text += str(" ", pattern, "=", full_spec(codec));
  return text;
}

}  // namespace kpd::tool
