// gradient: the code of scatter-reduce-allgather's second hop (second_hop.h).
#include "gradient/aggregate/second_hop.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "kpd/base/error.h"

namespace kpd::gradient {
namespace {

constexpr double kMostBits = 32;

// None where the method takes no such bits.
std::optional<Codec> try_bits(const Codec& codec, double bits) {
  try {
    return codec.with_bits(bits);
  } catch (const Error&) {
    return std::nullopt;
  }
}

bool good_enough(const Codec& coarse, const Codec& fine, double factor) {
  const double limit = coarse.limit_vnmse();
  if (std::isfinite(limit)) return fine.limit_vnmse() <= factor * limit;
  return fine.bits() >= coarse.bits() - 0.5 * std::log2(factor);
}

// Steps are coarse, so that few encoders are made: what varies from round to round varies within one.
double step_of(const Codec& codec) {
  const double step = std::min(1.0, codec.bits()) / 8;
  return try_bits(codec, codec.bits() + step) || try_bits(codec, codec.bits() - step) ? step : 1;  // whole bits only
}

}  // namespace

double second_hop_bits(const Codec& codec, double factor, double most) {
  const double own = codec.bits();
  const auto& keys = codec.row().keys;
  if (std::none_of(keys.begin(), keys.end(), [](const SpecKey& k) { return k.key == "bits"; })) return own;
  const double step = step_of(codec);
  if (most < own) {
    const double fewer = std::floor(most * 256) / 256;
    return try_bits(codec, fewer) ? fewer : own;
  }
  if (!(factor > 0 && factor < 1)) return own;
  // The least k at which the code is good enough or the method takes no such bits; all above are alike.
  const auto enough = [&](uint64_t k) {
    const std::optional<Codec> fine = try_bits(codec, own + static_cast<double>(k) * step);
    return !fine || good_enough(codec, *fine, factor);
  };
  uint64_t low = 0, high = static_cast<uint64_t>(std::max(0.0, kMostBits - own) / step) + 1;
  while (low < high) {
    const uint64_t k = low + (high - low) / 2;
    enough(k) ? high = k : low = k + 1;
  }
  low = std::min(low, static_cast<uint64_t>((most - own) / step));
  while (low > 0 && !try_bits(codec, own + static_cast<double>(low) * step)) --low;
  return own + static_cast<double>(low) * step;
}

}  // namespace kpd::gradient
