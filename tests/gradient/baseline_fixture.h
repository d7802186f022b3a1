// tests: a codec of one of the baseline methods, driven through its table entry, without the message layer.
#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "gradient/baselines.h"
#include "gradient/units.h"
#include "kpd/base/error.h"
#include "kpd/base/rng.h"

namespace kpd::gradient {

inline const std::vector<MethodEntry>& baseline_entries() {
  static const std::vector<MethodEntry> entries = {float32_entry(),  bf16_entry(),        drive_entry(),     drive_plus_entry(),
                                                   sq_entry(),       hadamard_sq_entry(), kashin_sq_entry(), qsgd_entry(),
                                                   terngrad_entry(), randk_entry()};
  return entries;
}

// One spec of every kind of path; small blocks so that a segment holds several.
inline const std::vector<std::string>& baseline_specs() {
  static const std::vector<std::string> specs = {"float32",
                                                 "bf16",
                                                 "drive",
                                                 "drive:block=64,rounds=1",
                                                 "drive:scale=biased",
                                                 "drive+:block=256",
                                                 "drive+:scale=biased",
                                                 "sq:bits=1",
                                                 "sq:bits=0.1",
                                                 "sq:bits=2.3,block=64",
                                                 "sq:bits=8",
                                                 "hadamard-sq:bits=1,block=128",
                                                 "hadamard-sq:bits=0.05",
                                                 "hadamard-sq:bits=4.7",
                                                 "hadamard-sq:bits=8,rounds=3",
                                                 "kashin-sq:bits=1",
                                                 "kashin-sq:bits=0.25,block=256",
                                                 "kashin-sq:bits=3.3,iterations=6",
                                                 "qsgd:bits=1",
                                                 "qsgd:bits=4",
                                                 "qsgd:bits=8,block=64",
                                                 "qsgd:bits=4,norm=max",
                                                 "qsgd:bits=2,norm=max,code=fixed",
                                                 "qsgd:bits=3,norm=max,code=fixed,block=64",
                                                 "qsgd:bits=4,norm=max,code=fixed",
                                                 "qsgd:bits=4,code=fixed,block=4096",
                                                 "qsgd:bits=8,norm=max,code=fixed,block=128",
                                                 "terngrad",
                                                 "terngrad:block=64,clip=2.5",
                                                 "randk:bits=1",
                                                 "randk:bits=32",
                                                 "randk:bits=0.05,block=64"};
  return specs;
}

struct BaselineCodec {
  explicit BaselineCodec(const std::string& text) {
    const Spec spec = Spec::parse(text);
    for (const MethodEntry& e : baseline_entries()) {
      if (e.row.name == spec.method()) entry = &e;
    }
    if (entry == nullptr) fail(ErrorCode::kInvalidArgument, "no baseline named ", spec.method());
    std::vector<std::string_view> names;
    for (const SpecKey& key : entry->row.keys) names.push_back(key.key);
    spec.check_keys(names);
    params = entry->parse(spec);
    if (rotates(entry->row.id) && params.rounds == kAutoRounds) params.rounds = 2;
    codec = entry->make(params);
  }
  double limit(uint64_t n = 0) const { return entry->limit_vnmse(params, n); }
  SegmentShape shape(uint64_t count) const { return segment_shape(count, 1u << params.log2_block, 0); }

  std::vector<uint8_t> encode(const std::vector<float>& x, uint64_t seed, SegmentStats* stats = nullptr) {
    const SegmentShape s = shape(x.size());
    std::vector<uint8_t> bytes(codec->segment_bytes(s));
    SegmentStats own;
    bytes.resize(codec->encode(x, s, keys(seed), bytes, scratch, stats != nullptr ? *stats : own));
    return bytes;
  }
  std::vector<float> decode(const std::vector<uint8_t>& bytes, uint64_t count, uint64_t seed) {
    std::vector<float> out(count);
    saturated = codec->decode(bytes, shape(count), keys(seed), 1, false, out, scratch);
    return out;
  }
  static TensorKeys keys(uint64_t seed) { return {seed * 2 + 1, seed * 0x9E3779B97F4A7C15u + 77}; }

  const MethodEntry* entry = nullptr;
  WireParams params;
  std::unique_ptr<SegmentCodec> codec;
  Scratch scratch;
  uint64_t saturated = 0;
};

inline std::vector<float> normal_vector(size_t n, uint64_t seed) {
  CounterRng rng(seed);
  std::vector<float> x(n);
  for (float& v : x) v = static_cast<float>(rng.next_normal());
  return x;
}

inline std::vector<float> lognormal_vector(size_t n, uint64_t seed) {
  std::vector<float> x = normal_vector(n, seed);
  for (float& v : x) v = std::exp(v);
  return x;
}

inline double squared_norm(const std::vector<float>& x) {
  double sum = 0;
  for (const float v : x) sum += static_cast<double>(v) * v;
  return sum;
}

inline double squared_distance(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += (static_cast<double>(a[i]) - b[i]) * (static_cast<double>(a[i]) - b[i]);
  return sum;
}

}  // namespace kpd::gradient
