// tests: rANS with one state: what goes in comes out, by any tables; length near the entropy; damage is found or decodes to
// something else, never read past the end.
#include <gtest/gtest.h>

#include <cmath>

#include "base/expect_error.h"
#include "kpd/base/rng.h"
#include "kpd/coding/rans_serial.h"

namespace kpd::coding {
namespace {

const uint16_t kSkew[] = {3900, 190, 5, 1};
const uint16_t kEven[] = {1024, 1024, 1024, 1024};
const uint16_t kOne[] = {0, 4096};

struct Tables {
  RansEncodeTable encode;
  RansDecodeTable decode;
  explicit Tables(std::span<const uint16_t> f) : encode(f), decode(f) {}
};

uint8_t draw(std::span<const uint16_t> f, CounterRng& rng) {
  uint64_t at = rng.next_below(kRansTotal);
  uint8_t s = 0;
  for (; at >= f[s]; ++s) at -= f[s];
  return s;
}

TEST(RansSerial, TablesMayChangeAtEverySymbol) {
  const Tables skew(kSkew), even(kEven), one(kOne);
  const Tables* const by[] = {&skew, &even, &one, &skew};
  const std::span<const uint16_t> frequencies[] = {kSkew, kEven, kOne, kSkew};
  for (const size_t n : {0u, 1u, 2u, 7u, 1000u}) {
    CounterRng rng(n, 1);
    std::vector<uint8_t> symbols(n), flush = {9, 9};
    for (size_t i = 0; i < n; ++i) symbols[i] = draw(frequencies[i % 4], rng);
    RansSerialEncoder encoder;
    for (size_t i = n; i-- > 0;) encoder.put(by[i % 4]->encode, symbols[i]);
    encoder.finish(flush);
    const size_t bytes = flush.size() - 2;
    flush.push_back(0xff);  // what follows is not the flush's
    RansSerialDecoder decoder(std::span<const uint8_t>(flush).subspan(2));
    for (size_t i = 0; i < n; ++i) ASSERT_EQ(decoder.get(by[i % 4]->decode), symbols[i]) << n << " " << i;
    EXPECT_EQ(decoder.finish(), bytes);
  }
}

TEST(RansSerial, FlushIsTwoBytesAboveTheEntropy) {
  const Tables skew(kSkew);
  CounterRng rng(3, 2);
  double bits = 0, bytes = 0;
  for (int flush_number = 0; flush_number < 200; ++flush_number) {
    RansSerialEncoder encoder;
    for (int i = 0; i < 500; ++i) {
      const uint8_t s = draw(kSkew, rng);
      bits += 12 - std::log2(static_cast<double>(kSkew[s]));
      encoder.put(skew.encode, s);
    }
    std::vector<uint8_t> flush;
    encoder.finish(flush);
    bytes += static_cast<double>(flush.size());
  }
  // 16 bits of the first state carry nothing, and on the average 8 of the last one.
  EXPECT_NEAR(bytes / 200, bits / 8 / 200 + 3, .3);
}

TEST(RansSerial, DamageIsAnError) {
  const Tables even(kEven);
  RansSerialEncoder encoder;
  for (int i = 0; i < 100; ++i) encoder.put(even.encode, static_cast<uint8_t>(i % 4));
  std::vector<uint8_t> flush;
  encoder.finish(flush);
  const auto read = [&](std::span<const uint8_t> bytes, int n) {
    RansSerialDecoder decoder(bytes, 10);
    for (int i = 0; i < n; ++i) decoder.get(even.decode);
    decoder.finish();
  };
  read(flush, 100);
  EXPECT_KPD_ERROR(kCorruptData, "byte 10: expected 4 bytes", read(std::span(flush).first(3), 100));
  EXPECT_KPD_ERROR(kCorruptData, "the rANS words end early", read(std::span(flush).first(flush.size() - 1), 100));
  EXPECT_KPD_ERROR(kCorruptData, "the rANS state does not end at its start", read(flush, 99));
  flush[2] = flush[3] = 0;
  EXPECT_KPD_ERROR(kCorruptData, "byte 10: a rANS state is below 65536", read(flush, 100));
}

}  // namespace
}  // namespace kpd::coding
