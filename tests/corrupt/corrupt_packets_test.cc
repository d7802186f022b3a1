// tests: damaged packetized messages. A damaged control part is one kpd::Error before anything is added; a damaged packet,
// sealed or not, is a lost one.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/expect_error.h"
#include "corrupt/damage.h"
#include "kpd/base/crc32.h"
#include "kpd/gradient/packets.h"

namespace kpd::gradient {
namespace {

using namespace testing;

constexpr uint64_t kCount = 9000;  // block 64: three groups
constexpr MessageIds kIds{1, 2, 3, 4, 5};
constexpr size_t kPacketHead = 8;

PacketSet packets_of(const std::string& spec, const std::vector<float>& x) {
  Encoder e(one_tensor(x.size()), Codec::parse(spec), RunSecret::from_seed(7));
  const TensorView view{std::span<const float>(x)};
  Bytes b(e.max_bytes());
  b.resize(e.encode_message({&view, 1}, kIds, b));
  return packetize(b, one_tensor(x.size()), RunSecret::from_seed(7), 64, "hostile");
}

struct Result {
  std::vector<float> values = std::vector<float>(kCount, 0.0f);
  PacketReport report;
};

Result decode(const PacketSet& set) {
  Result r;
  PacketDecoder d(one_tensor(kCount), RunSecret::from_seed(7));
  const std::vector<std::span<const uint8_t>> packets(set.packets.begin(), set.packets.end());
  const std::span<float> acc(r.values);
  d.decode_add(set.control, packets, kIds, 1.0f, {&acc, 1}, &r.report, "hostile");
  return r;
}

void seal_packet(Bytes& packet) {
  const size_t end = packet.size() - kChecksumBytes;
  store_u32(packet.data() + end, crc32({packet.data(), end}));
}

// The control part and the tag by which its packets know it.
void seal_all(PacketSet& set) {
  seal(set.control);
  const uint32_t tag = load_u32(set.control.data() + set.control.size() - kChecksumBytes);
  for (Bytes& p : set.packets) {
    store_u32(p.data(), tag);
    seal_packet(p);
  }
}

const char* const kSpecs[] = {"eden:bits=2,block=64", "eden:code=entropy,bits=2,block=64"};

TEST(CorruptPackets, ControlPart) {
  const std::vector<float> x = normal_vector(kCount, 1);
  for (const char* spec : kSpecs) {
    SCOPED_TRACE(spec);
    const PacketSet good = packets_of(spec, x);
    const size_t record = kMessageHeaderBytes + 2, words = record + kRecordBytes + 2;
    const size_t packets = good.control.size() - kChecksumBytes - 4;
    const uint32_t count = static_cast<uint32_t>(good.packets.size());
    const auto refused = [&](ErrorCode code, const std::string& part, size_t at, uint32_t v) {
      PacketSet set = good;
      store_u32(set.control.data() + at, v);
      seal_all(set);
      try {
        (void)decode(set);
        ADD_FAILURE() << "accepted, expected: " << part;
      } catch (const Error& e) {
        EXPECT_EQ(e.code(), code) << e.what();
        EXPECT_NE(std::string(e.what()).find("hostile: " + part), std::string::npos) << e.what();
      }
    };
    refused(ErrorCode::kCorruptData, str("byte ", words + 4, ": scale word 2 has no exponent"), words + 4, 2);
    EXPECT_EQ(load_u32(good.control.data() + packets), count);
    refused(ErrorCode::kCorruptData, str("byte ", packets, ": 0 packets for 9000 codes"), packets, 0);
    refused(ErrorCode::kCorruptData, str("byte ", packets, ": 2251 packets"), packets, 9000 / 4 + 1);
    refused(ErrorCode::kCorruptData, str("byte ", packets, ": 4294967295 packets"), packets, ~0u);
    const bool fixed = std::string(spec) == kSpecs[0];
    refused(ErrorCode::kUnsupported, str("byte ", words, ": this method has no packetized form"), record + 2,
            (load_u32(good.control.data() + record + 2) & 0xffffu) |
                (fixed ? uint32_t{kFlagAllocate} : uint32_t{kFlagDither | kFlagEntropy}) << 16);
    for (size_t n = 0; n < good.control.size(); n += 7) {
      PacketSet cut = good;
      cut.control.resize(n);
      SCOPED_TRACE(n);
      EXPECT_KPD_ERROR(kCorruptData, "hostile: byte ", decode(cut));
    }
  }
}

// Found before anything is added, not while groups are decoded.
TEST(CorruptPackets, AScaleWordThatAsksForThreeRoundsWhereItMayNot) {
  PacketSet set = packets_of("eden:bits=2,block=64,rounds=2", normal_vector(kCount, 1));
  const size_t last = set.control.size() - kChecksumBytes - 8;
  set.control[last] |= 1;
  seal_all(set);
  EXPECT_KPD_ERROR(kCorruptData, str("hostile: byte ", last, ": a block asks for three rounds"), decode(set));
}

TEST(CorruptPackets, ADamagedPacketIsALostOne) {
  const std::vector<float> x = normal_vector(kCount, 1);
  for (const char* spec : kSpecs) {
    SCOPED_TRACE(spec);
    const PacketSet good = packets_of(spec, x);
    ASSERT_GT(good.packets.size(), 20u);
    PacketSet without = good;
    without.packets.erase(without.packets.begin() + 3);
    const Result lost = decode(without);
    EXPECT_EQ(lost.report.received + 1, lost.report.expected);
    const auto expect_lost = [&](const Bytes& packet, bool as_damaged) {
      PacketSet set = good;
      set.packets[3] = packet;
      const Result r = decode(set);
      EXPECT_EQ(r.values, lost.values);
      EXPECT_EQ(r.report.received, lost.report.received);
      EXPECT_EQ(r.report.damaged, as_damaged ? 1u : 0u);
    };
    Bytes p = good.packets[3];
    for (size_t bit = 0; bit < 8 * p.size(); bit += 5) {
      p[bit / 8] ^= static_cast<uint8_t>(1u << (bit % 8));
      expect_lost(p, true);
      p[bit / 8] ^= static_cast<uint8_t>(1u << (bit % 8));
    }
    // Sealed: no payload, half of it, more of it.
    p.resize(kPacketHead + kChecksumBytes);
    seal_packet(p);
    expect_lost(p, true);
    p = good.packets[3];
    p.resize(p.size() / 2);
    seal_packet(p);
    expect_lost(p, true);
    p = good.packets[3];
    p.insert(p.end(), 9, uint8_t{0});
    seal_packet(p);
    expect_lost(p, true);
    // Of another message.
    p = good.packets[3];
    p[0] ^= 1;
    seal_packet(p);
    expect_lost(p, false);
  }
}

// The first bytes of a segment are scale words only for eden.
TEST(CorruptPackets, OnlyEdenIsPacketized) {
  std::vector<float> x = normal_vector(kCount, 1);
  std::fill(x.begin(), x.begin() + 5000, 0.0f);
  for (const char* spec : {"bf16", "randk:bits=2", "drive", "qsgd:bits=2", "eden:code=entropy,dither=shared,bits=2",
                           "eden:bits=2,allocate=energy"}) {
    EXPECT_KPD_ERROR(kUnsupported, "has no packetized form", packets_of(spec, x));
  }
}

}  // namespace
}  // namespace kpd::gradient
