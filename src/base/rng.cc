// base: Philox4x32-10 (Salmon et al., SC'11, section 3.3) and the numbers drawn from it.
#include "kpd/base/rng.h"

#include <sys/random.h>

#include <cerrno>
#include <cmath>

#include "kpd/base/error.h"

namespace kpd {

PhiloxCounter philox4x32(PhiloxCounter counter, PhiloxKey key) {
  constexpr uint64_t kMultiplier0 = 0xd2511f53u, kMultiplier1 = 0xcd9e8d57u;
  constexpr uint32_t kWeyl0 = 0x9e3779b9u, kWeyl1 = 0xbb67ae85u;
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = kMultiplier0 * counter[0];
    const uint64_t product1 = kMultiplier1 * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(product0)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

uint32_t CounterRng::next_u32() {
  const uint64_t word = index_++;
  if (word % 4 == 0) {
    const uint64_t block = word / 4;
    buffer_ = philox4x32({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), static_cast<uint32_t>(stream_),
                          static_cast<uint32_t>(stream_ >> 32)},
                         {static_cast<uint32_t>(seed_), static_cast<uint32_t>(seed_ >> 32)});
  }
  return buffer_[word % 4];
}

uint64_t CounterRng::next_u64() {
  const uint64_t low = next_u32();
  return low | (static_cast<uint64_t>(next_u32()) << 32);
}

double CounterRng::next_double() { return static_cast<double>(next_u64() >> 11) * 0x1p-53; }

uint64_t CounterRng::next_below(uint64_t bound) {
  if (bound == 0) fail(ErrorCode::kInvalidArgument, "random number below 0 asked for");
  const uint64_t threshold = (0 - bound) % bound;  // 2^64 mod bound: the numbers below it would be drawn once too often
  uint64_t v = next_u64();
  while (v < threshold) v = next_u64();
  return v % bound;
}

double CounterRng::next_normal() {
  if (has_spare_) {
    has_spare_ = false;
    return spare_;
  }
  const double u = 1.0 - next_double();  // in (0, 1], so that the logarithm is finite
  const double angle = 6.283185307179586476925 * next_double();
  const double radius = std::sqrt(-2.0 * std::log(u));
  spare_ = radius * std::sin(angle);
  has_spare_ = true;
  return radius * std::cos(angle);
}

double CounterRng::next_gamma(double shape) {
  if (!(shape > 0) || !std::isfinite(shape))
    fail(ErrorCode::kInvalidArgument, "gamma shape ", shape, ", expected a number above 0");
  if (shape < 1) {  // Marsaglia and Tsang, section 6
    const double u = 1.0 - next_double();
    return next_gamma(shape + 1) * std::pow(u, 1 / shape);
  }
  const double d = shape - 1.0 / 3.0;
  const double c = 1.0 / std::sqrt(9.0 * d);
  for (;;) {
    const double x = next_normal();
    const double root = 1.0 + c * x;
    if (root <= 0) continue;
    const double v = root * root * root;
    const double u = 1.0 - next_double();
    if (std::log(u) < 0.5 * x * x + d - d * v + d * std::log(v)) return d * v;
  }
}

uint64_t os_entropy() {
  uint64_t v = 0;
  if (getentropy(&v, sizeof(v)) != 0) fail(ErrorCode::kIo, "the operating system gave no random bytes, errno ", errno);
  return v;
}

}  // namespace kpd
