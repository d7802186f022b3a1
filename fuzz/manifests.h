// fuzz: the manifests of the messages that the fuzzers' receivers expect and that make_stream_corpus writes.
#pragma once

#include "kpd/gradient/message.h"

namespace kpd::gradient::fuzz {

inline constexpr MessageIds kIds{11, 12, 13, 14, 15};

// Of streams. Without `block` the first two are joined.
inline const Manifest& manifest() {
  static const Manifest m = {{"a", DType::kFloat32, {64}},
                             {"b", DType::kBFloat16, {10, 13}},
                             {"c", DType::kFloat32, {3}},
                             {"d", DType::kFloat16, {0}},
                             {"e", DType::kInt16, {5}}};
  return m;
}

// Of packets: several groups, and a message of few codes.
inline const Manifest& packets_manifest() {
  static const Manifest m = {
      {"a", DType::kFloat32, {64}}, {"b", DType::kBFloat16, {4200}}, {"c", DType::kFloat32, {3}}, {"e", DType::kInt16, {5}}};
  return m;
}
inline const Manifest& few_manifest() {
  static const Manifest m = {{"f", DType::kFloat32, {96}}};
  return m;
}

}  // namespace kpd::gradient::fuzz
