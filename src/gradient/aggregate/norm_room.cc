// gradient: how much longer than its input a decoded message may be (norm_room() of kpd/gradient/aggregator.h).
//
// |decoded|^2 / |x|^2 of one vector is 1 + v on average. Around it it spreads with the number of coordinates that are coded: at
// .1 bit of 1,000 numbers 100 are, and the standard deviation is 15 %. Rotations make it the same for all inputs, so it is
// measured, for whatever code: a closed form would need one for each.
#include <algorithm>
#include <cmath>

#include "gradient/stream_format.h"
#include "gradient/units.h"
#include "kpd/base/rng.h"
#include "kpd/gradient/aggregator.h"
#include "kpd/gradient/decoder.h"

namespace kpd::gradient {
namespace {

constexpr uint64_t kNumbers = uint64_t{1} << 22;  // coded in all
constexpr uint64_t kMinMessages = 1024, kMaxMessages = 65536;
// One in 10,000 is 3.7 standard deviations of a normal. Few coded coordinates make the tail longer: at 64 numbers and .1 bit,
// where 6 are coded, one in 10,000 is 4.8 away in the logarithm (tests/gradient/aggregator_test.cc).
constexpr double kDeviations = 6;
constexpr double kRounding = 1 + 1e-5;  // of float32

// Elements of the shortest vector that is coded as one by `codec`; 0 if all tensors with it travel as they are.
uint64_t shortest_unit(const Manifest& manifest, const CodecPolicy& policy, const Codec& codec) {
  const WireParams& params = codec.params();
  const uint64_t block = uint64_t{1} << params.log2_block;
  uint64_t least = 0, joined = 0;
  const auto meet = [&](uint64_t count) {
    const uint64_t unit = std::min(count, block);
    if (count > 0 && (least == 0 || unit < least)) least = unit;
  };
  for (const TensorInfo& info : manifest) {
    const uint64_t count = info.count();
    if (&policy.of(info.name) != &codec || dtype_is_exact(info.dtype) || count < kMinCodedElements) continue;
    if (is_joined(params, info.dtype, count)) {
      joined += count;
    } else {
      meet(count);
    }
  }
  meet(joined);
  return least;
}

struct Spread {
  double sum = 0, squares = 0, n = 0;
  void add(double v) {
    sum += v;
    squares += v * v;
    n += 1;
  }
  double mean() const { return sum / n; }
  double far() const { return mean() + kDeviations * std::sqrt(std::max(0.0, squares / n - mean() * mean())); }
};

}  // namespace

namespace {

double room_of(const Codec& codec, uint64_t n) {
  if (n == 0 || resolve_params(codec.params(), n).rounds == 0) return kRounding;
  const Manifest one = {{"x", DType::kFloat32, {n}}};
  const RunSecret secret = RunSecret::from_seed(1);
  Encoder encoder(one, codec, secret);
  Decoder decoder(one, secret);
  std::vector<float> x(n);
  std::vector<uint8_t> message(encoder.max_bytes());
  const TensorView view{std::span<const float>(x)};
  CounterRng random(1);
  Spread plain, logarithm;
  bool vanishes = false;  // a message may decode to nothing
  const uint64_t messages = std::clamp(kNumbers / n, kMinMessages, kMaxMessages);
  for (uint64_t i = 0; i < messages; ++i) {
    double norm2 = 0;
    for (float& v : x) {
      v = static_cast<float>(random.next_normal());
      norm2 += static_cast<double>(v) * v;
    }
    const MessageIds ids{.run = 1, .round = i, .client = 1, .base_model_hash = 0, .weight = 1};
    const uint64_t bytes = encoder.encode_message({&view, 1}, ids, message);
    const double norm = decoder.norm(std::span(message).first(bytes), ids);
    const double ratio = norm * norm / norm2;
    plain.add(ratio);
    vanishes = vanishes || ratio == 0;
    if (ratio > 0) logarithm.add(std::log(ratio));
  }
  // A code that scales by one over a sum has its tail in the logarithm, one whose length is a number of coordinates has not.
  const double far = vanishes ? plain.far() : std::max(plain.far(), std::exp(logarithm.far()));
  return std::max(1.0, far) * kRounding;
}

}  // namespace

double norm_room(const Manifest& manifest, const CodecPolicy& policy) {
  double room = room_of(policy.base, shortest_unit(manifest, policy, policy.base));
  for (const auto& [pattern, codec] : policy.by_name)
    room = std::max(room, room_of(codec, shortest_unit(manifest, policy, codec)));
  return room;
}

}  // namespace kpd::gradient
