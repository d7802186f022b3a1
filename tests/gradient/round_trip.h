// tests: one-tensor helpers over the message API.
#pragma once

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "kpd/base/rng.h"
#include "kpd/gradient/message.h"
#include "kpd/gradient/decoder.h"

namespace kpd::gradient::testing {

inline Manifest one_tensor(uint64_t n) { return {{"x", DType::kFloat32, {n}}}; }

inline std::vector<float> normal_vector(uint64_t n, uint64_t seed) {
  CounterRng rng(seed, 77);
  std::vector<float> x(n);
  for (float& v : x) v = static_cast<float>(rng.next_normal());
  return x;
}

inline std::vector<float> lognormal_vector(uint64_t n, uint64_t seed) {
  std::vector<float> x = normal_vector(n, seed);
  for (float& v : x) v = std::exp(v);
  return x;
}

struct RoundTrip {
  std::vector<uint8_t> bytes;
  std::vector<float> decoded;
  EncodeReport report;
  DecodeReport decode_report;
  double error2 = 0, norm2 = 0;
  double vnmse() const { return norm2 > 0 ? error2 / norm2 : error2; }
  double bits() const { return 8.0 * static_cast<double>(bytes.size()) / static_cast<double>(decoded.size()); }
};

inline RoundTrip round_trip(const std::vector<float>& x, const std::string& spec, const MessageIds& ids = {}, int threads = 1,
                            NonFinite nonfinite = NonFinite::kRefuse) {
  const RunSecret secret = RunSecret::from_seed(1);
  Encoder encoder(one_tensor(x.size()), Codec::parse(spec), secret, {threads, nonfinite});
  RoundTrip r;
  r.bytes.resize(encoder.max_bytes());
  const TensorView view{std::span<const float>(x)};
  r.bytes.resize(encoder.encode_message({&view, 1}, ids, r.bytes, &r.report));
  Decoder decoder(one_tensor(x.size()), secret, {threads, {}});
  r.decoded.resize(x.size());
  const std::span<float> dst(r.decoded);
  decoder.decode(r.bytes, ids, {&dst, 1}, &r.decode_report);
  for (size_t i = 0; i < x.size(); ++i) {
    const double d = static_cast<double>(r.decoded[i]) - static_cast<double>(x[i]);
    r.error2 += d * d;
    r.norm2 += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  }
  return r;
}

}  // namespace kpd::gradient::testing
