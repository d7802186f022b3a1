// io: typed access to GGUF's metadata. Files differ in the widths that they store the same key with, so numbers convert where
// the value fits; nothing else does.
#include <algorithm>
#include <limits>
#include <utility>

#include "kpd/base/error.h"
#include "kpd/io/gguf.h"
#include "io/text.h"

namespace kpd::io {
namespace {

// In the order of GgufValue's alternatives.
constexpr const char* kKinds[] = {"an unsigned number",
                                  "a signed number",
                                  "a real number",
                                  "a bool",
                                  "a string",
                                  "an array of unsigned numbers",
                                  "an array of signed numbers",
                                  "an array of real numbers",
                                  "an array of bools",
                                  "an array of strings"};
static_assert(std::size(kKinds) == std::variant_size_v<GgufValue>);

[[noreturn]] void wrong(const GgufMetadata& m, std::string_view key, const std::string& found, const char* expected) {
  fail(ErrorCode::kCorruptData, printable_path(m.name), ": key '", printable(key), "' ", found, ", expected ", expected);
}

const GgufValue& get(const GgufMetadata& m, std::string_view key, const char* expected) {
  const GgufValue* v = m.find(key);
  if (v == nullptr) wrong(m, key, "is missing", expected);
  return *v;
}

template <class T>
const T& get_as(const GgufMetadata& m, std::string_view key, const char* expected) {
  const GgufValue& v = get(m, key, expected);
  const T* typed = std::get_if<T>(&v);
  if (typed == nullptr) wrong(m, key, str("is ", kKinds[v.index()]), expected);
  return *typed;
}

}  // namespace

const GgufValue* GgufMetadata::find(std::string_view key) const {
  const auto it = std::find_if(values.begin(), values.end(), [&](const auto& pair) { return pair.first == key; });
  return it == values.end() ? nullptr : &it->second;
}

uint64_t GgufMetadata::number(std::string_view key) const {
  constexpr const char* kExpected = "an integer of 0 or more";
  const GgufValue& v = get(*this, key, kExpected);
  if (const auto* n = std::get_if<int64_t>(&v)) {
    if (*n < 0) wrong(*this, key, str("is ", *n), kExpected);
    return static_cast<uint64_t>(*n);
  }
  return get_as<uint64_t>(*this, key, kExpected);
}

double GgufMetadata::real(std::string_view key) const {
  constexpr const char* kExpected = "a number";
  const GgufValue& v = get(*this, key, kExpected);
  if (const auto* n = std::get_if<uint64_t>(&v)) return static_cast<double>(*n);
  if (const auto* n = std::get_if<int64_t>(&v)) return static_cast<double>(*n);
  return get_as<double>(*this, key, kExpected);
}

bool GgufMetadata::boolean(std::string_view key) const { return get_as<bool>(*this, key, "a bool"); }

const std::string& GgufMetadata::text(std::string_view key) const { return get_as<std::string>(*this, key, "a string"); }

const std::vector<std::string>& GgufMetadata::texts(std::string_view key) const {
  return get_as<std::vector<std::string>>(*this, key, "an array of strings");
}

std::vector<double> GgufMetadata::reals(std::string_view key) const {
  constexpr const char* kExpected = "an array of numbers";
  const GgufValue& v = get(*this, key, kExpected);
  if (const auto* n = std::get_if<std::vector<uint64_t>>(&v)) return {n->begin(), n->end()};
  if (const auto* n = std::get_if<std::vector<int64_t>>(&v)) return {n->begin(), n->end()};
  return get_as<std::vector<double>>(*this, key, kExpected);
}

std::vector<int64_t> GgufMetadata::integers(std::string_view key) const {
  constexpr const char* kExpected = "an array of signed 64-bit integers";
  const GgufValue& v = get(*this, key, kExpected);
  if (const auto* n = std::get_if<std::vector<uint64_t>>(&v)) {
    const auto large = std::find_if(n->begin(), n->end(), [](uint64_t x) { return !std::in_range<int64_t>(x); });
    if (large != n->end()) wrong(*this, key, str("holds ", *large), kExpected);
    return {n->begin(), n->end()};
  }
  return get_as<std::vector<int64_t>>(*this, key, kExpected);
}

}  // namespace kpd::io
