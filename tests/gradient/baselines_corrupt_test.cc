// gradient: the baseline methods on bytes and fields that no encoder wrote: they throw kpd::Error that names the byte, or
// decode finite values.
#include <gtest/gtest.h>

#include <cmath>

#include "base/expect_error.h"
#include "gradient/baseline_fixture.h"
#include "gradient/baseline_tools.h"

namespace kpd::gradient {
namespace {

// Decodes and checks that nothing but a well-worded Error comes out. Returns whether it decoded.
bool decodes(BaselineCodec& codec, const std::vector<uint8_t>& bytes, size_t n) {
  try {
    const std::vector<float> out = codec.decode(bytes, n, 6);
    const bool raw = codec.entry->row.id == kFloat32Id || codec.entry->row.id == kBf16Id;  // carry what they are given
    for (const float v : out) EXPECT_TRUE(raw || std::isfinite(v));
    return true;
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kCorruptData) << e.what();
    EXPECT_EQ(std::string(e.what()).find("byte "), 0u) << e.what();
    return false;
  }
}

TEST(BaselinesCorrupt, EveryTruncationAndExtension) {
  for (const std::string& spec : baseline_specs()) {
    SCOPED_TRACE(spec);
    BaselineCodec codec(spec);
    const size_t n = codec.params.log2_block < 8 ? 200 : 700;
    std::vector<uint8_t> bytes = codec.encode(lognormal_vector(n, 1), 6);
    for (size_t length = 0; length < bytes.size(); ++length) {
      EXPECT_FALSE(decodes(codec, std::vector<uint8_t>(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(length)), n))
          << length;
    }
    bytes.push_back(0);
    EXPECT_FALSE(decodes(codec, bytes, n));
  }
}

TEST(BaselinesCorrupt, BitFlipsAndNoise) {
  CounterRng rng(4);
  for (const std::string& spec : baseline_specs()) {
    SCOPED_TRACE(spec);
    BaselineCodec codec(spec);
    const size_t n = 300;
    const std::vector<uint8_t> bytes = codec.encode(lognormal_vector(n, 1), 6);
    for (int i = 0; i < 600; ++i) {
      std::vector<uint8_t> damaged = bytes;
      const int flips = 1 + static_cast<int>(rng.next_below(4));
      for (int f = 0; f < flips; ++f) damaged[rng.next_below(damaged.size())] ^= static_cast<uint8_t>(1u << rng.next_below(8));
      decodes(codec, damaged, n);
    }
    for (int i = 0; i < 200; ++i) {
      std::vector<uint8_t> noise = bytes;
      const size_t keep = rng.next_below(3) == 0 ? 0 : std::min<size_t>(noise.size(), 8);
      for (size_t k = keep; k < noise.size(); ++k) noise[k] = static_cast<uint8_t>(rng.next_u32());
      decodes(codec, noise, n);
    }
  }
}

void set_float(std::vector<uint8_t>& bytes, size_t at, float v) { baselines::write_float(bytes.data() + at, v); }

TEST(BaselinesCorrupt, ScalesMustBeFiniteAndOrdered) {
  const std::vector<float> x = lognormal_vector(300, 1);
  for (const std::string& spec : baseline_specs()) {
    if (spec == "float32" || spec == "bf16") continue;
    BaselineCodec codec(spec);
    const std::vector<uint8_t> bytes = codec.encode(x, 6);
    for (const float v : {NAN, INFINITY, -INFINITY}) {
      std::vector<uint8_t> damaged = bytes;
      set_float(damaged, 0, v);
      EXPECT_KPD_ERROR(kCorruptData, "byte 0: ", codec.decode(damaged, x.size(), 6));
    }
  }
  for (const char* spec : {"drive", "terngrad", "qsgd", "qsgd:code=fixed"}) {
    BaselineCodec codec(spec);
    std::vector<uint8_t> bytes = codec.encode(x, 6);
    set_float(bytes, 0, -1);
    EXPECT_KPD_ERROR(kCorruptData, "negative", codec.decode(bytes, x.size(), 6));
  }
  for (const char* spec : {"sq", "hadamard-sq", "kashin-sq", "drive+"}) {
    BaselineCodec codec(spec);
    std::vector<uint8_t> bytes = codec.encode(x, 6);
    set_float(bytes, 0, 2);
    set_float(bytes, 4, 1);
    EXPECT_KPD_ERROR(kCorruptData, "exceeds", codec.decode(bytes, x.size(), 6));
    set_float(bytes, 0, -FLT_MAX);
    set_float(bytes, 4, FLT_MAX);
    EXPECT_TRUE(decodes(codec, bytes, x.size())) << spec;
  }
}

TEST(BaselinesCorrupt, PaddingAndDigits) {
  const std::vector<float> x = lognormal_vector(101, 1);
  for (const char* spec : {"drive", "drive+", "sq:bits=1", "hadamard-sq:bits=3", "kashin-sq:bits=1"}) {
    BaselineCodec codec(spec);
    std::vector<uint8_t> bytes = codec.encode(x, 6);
    bytes.back() |= 0x80;
    EXPECT_KPD_ERROR(kCorruptData, "expected zero", codec.decode(bytes, x.size(), 6));
  }
  BaselineCodec fixed("qsgd:bits=3,norm=max,code=fixed");  // 101 = 4 * 21 + 17 digits, 236 + 48 bits
  std::vector<uint8_t> digits = fixed.encode(x, 6);
  ASSERT_EQ(digits.size(), 4u + 36);
  digits.back() |= 0x10;
  EXPECT_KPD_ERROR(kCorruptData, "byte 39: bits beyond the last code", fixed.decode(digits, x.size(), 6));
  digits.back() &= 0x0f;
  digits[4 + 29] |= 0xf0;  // the first half byte of the last group; then all of it
  for (size_t i = 34; i < 40; ++i) digits[i] = i < 39 ? 0xff : 0x0f;
  EXPECT_KPD_ERROR(kCorruptData, "byte 33: a group of 17 digits of radix 7 is too large", fixed.decode(digits, x.size(), 6));
  BaselineCodec single("qsgd:bits=5,norm=max,code=fixed");
  digits = single.encode(x, 6);
  digits[4] |= 0x1f;
  EXPECT_KPD_ERROR(kCorruptData, "byte 4: a group of 1 digits of radix 31 is too large", single.decode(digits, x.size(), 6));

  BaselineCodec terngrad("terngrad");
  std::vector<uint8_t> bytes = terngrad.encode(x, 6);
  bytes[4] = 243;
  EXPECT_KPD_ERROR(kCorruptData, "byte 4: ternary byte 243, expected at most 242", terngrad.decode(bytes, x.size(), 6));
  bytes[4] = 0;
  bytes.back() = 81;  // a digit of the fifth place where one element is left
  EXPECT_KPD_ERROR(kCorruptData, "digits beyond", terngrad.decode(bytes, x.size(), 6));
}

// Norms, then bits in the order of the wire; blanks only help to read them.
std::vector<uint8_t> qsgd_segment(const std::vector<float>& norms, std::string text) {
  std::string bits;
  for (const char c : text) bits += c == ' ' ? "" : std::string(1, c);
  std::vector<uint8_t> bytes(4 * norms.size() + (bits.size() + 7) / 8);
  for (size_t i = 0; i < norms.size(); ++i) set_float(bytes, 4 * i, norms[i]);
  for (size_t i = 0; i < bits.size(); ++i) {
    bytes[4 * norms.size() + i / 8] |= static_cast<uint8_t>((bits[i] == '1') << (7 - i % 8));
  }
  return bytes;
}

// Elias omega: 1 = 0, 2 = 100, 3 = 110, 4 = 101000, 70 = 10 110 1000110 0.
TEST(BaselinesCorrupt, QsgdCodes) {
  BaselineCodec codec("qsgd:bits=2");  // s = 2
  std::vector<float> expected(64, 0.0f);
  // Two nonzeros: distance 4, negative, level 2; distance 1, positive, level 1.
  expected[3] = -6.0f, expected[4] = 3.0f;
  EXPECT_EQ(codec.decode(qsgd_segment({6.0f}, "1 110 101000 1 100 0 0 0"), 64, 1), expected);
  // Every element: level 1 as omega(2) and its sign, then 63 zeros.
  std::fill(expected.begin(), expected.end(), 0.0f);
  expected[0] = -3.0f;
  EXPECT_EQ(codec.decode(qsgd_segment({6.0f}, "0 1001" + std::string(63, '0')), 64, 1), expected);

  const auto refused = [&](const std::vector<uint8_t>& bytes, const char* part) {
    EXPECT_KPD_ERROR(kCorruptData, part, codec.decode(bytes, 64, 1));
  };
  refused(qsgd_segment({6.0f}, "1 100 0 0 110"), "byte 6: an Elias omega value is beyond its limit");            // level 3
  refused(qsgd_segment({6.0f}, "0 101000" + std::string(63, '0')), "an Elias omega value is beyond its limit");  // level 3
  refused(qsgd_segment({6.0f}, "1 100 10 110 1000110 0 0 0"), "beyond its limit");  // a distance of 70
  refused(qsgd_segment({6.0f}, "1 10 110 1000110 0"), "beyond its limit");          // 69 nonzeros
  refused(qsgd_segment({6.0f}, "1 110 0 0 0 0"), "the bits end");
  refused(qsgd_segment({6.0f}, "1" + std::string(120, '1')), "omega");
  refused(qsgd_segment({6.0f}, "1 0 000000 00000000"), "bytes are left");
  refused(qsgd_segment({6.0f}, "1 0 100000"), "not zero");
  refused(qsgd_segment({0.0f}, "1"), "bytes are left");
}

TEST(BaselinesCorrupt, RecordFields) {
  for (const std::string& spec : baseline_specs()) {
    SCOPED_TRACE(spec);
    const BaselineCodec good(spec);
    const auto refused = [&](auto change) {
      WireParams p = good.params;
      change(p);
      EXPECT_KPD_ERROR(kCorruptData, "expected", good.entry->make(p));
    };
    refused([](WireParams& p) { p.log2_block = 5; });
    refused([](WireParams& p) { p.log2_block = 40; });
    refused([](WireParams& p) { p.rounds = 7; });
    if (good.params.rounds != 0) refused([](WireParams& p) { p.rounds = kAutoRounds; });  // not resolved
    refused([](WireParams& p) { p.scale = ScaleKind::kNorm; });
    refused([](WireParams& p) { p.flags = 1; });
    refused([](WireParams& p) { p.rate = 0; });
    refused([](WireParams& p) { p.rate = UINT32_MAX; });
    refused([](WireParams& p) { p.param = UINT32_MAX; });
    if (good.params.method != kQsgdId) {
      refused([](WireParams& p) { p.flags = kFlagMaxNorm; });
      refused([](WireParams& p) { p.flags = kFlagFixedCode; });
    } else if ((good.params.flags & kFlagFixedCode) != 0) {
      refused([](WireParams& p) { p.rate += 1; });
      refused([](WireParams& p) { p.rate = kOneBit; });
      refused([](WireParams& p) { p.param += 1; });
    }
  }
}

TEST(BaselinesCorrupt, SpecErrorsNameTheKey) {
  EXPECT_KPD_ERROR(kInvalidArgument, "bits=9", BaselineCodec("sq:bits=9"));
  EXPECT_KPD_ERROR(kInvalidArgument, "bits=2.5", BaselineCodec("qsgd:bits=2.5"));
  EXPECT_KPD_ERROR(kInvalidArgument, "bits=1", BaselineCodec("qsgd:bits=1,code=fixed"));
  EXPECT_KPD_ERROR(kInvalidArgument, "norm=linf", BaselineCodec("qsgd:norm=linf"));
  EXPECT_KPD_ERROR(kInvalidArgument, "power of two", BaselineCodec("drive:block=100"));
  EXPECT_KPD_ERROR(kInvalidArgument, "scale=norm", BaselineCodec("drive:scale=norm"));
  EXPECT_KPD_ERROR(kInvalidArgument, "rounds=7", BaselineCodec("hadamard-sq:rounds=7"));
  EXPECT_KPD_ERROR(kInvalidArgument, "unknown key 'bits'", BaselineCodec("drive:bits=1"));
  EXPECT_KPD_ERROR(kInvalidArgument, "unknown key 'rounds'", BaselineCodec("sq:rounds=1"));
  EXPECT_KPD_ERROR(kInvalidArgument, "iterations=0", BaselineCodec("kashin-sq:iterations=0"));
}

}  // namespace
}  // namespace kpd::gradient
