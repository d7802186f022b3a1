// tests: packetized messages: complete = the message itself; loss, random and burst, has the error of subsampling; bad packets
// are lost packets.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/expect_error.h"
#include "gradient/round_trip.h"
#include "gradient/stream_format.h"
#include "kpd/base/error.h"
#include "kpd/base/hash.h"
#include "kpd/gradient/packets.h"

namespace kpd::gradient {
namespace {

using namespace testing;

struct Sent {
  std::vector<float> x;
  PacketSet set;
  std::vector<float> whole;  // the message decoded
};

Sent send(uint64_t n, const std::string& spec, uint32_t payload) {
  Sent s;
  s.x = lognormal_vector(n, 21);
  const RoundTrip r = round_trip(s.x, spec);
  s.whole = r.decoded;
  s.set = packetize(r.bytes, one_tensor(n), payload);
  return s;
}

std::vector<float> receive(const Sent& s, const std::vector<std::vector<uint8_t>>& packets, PacketReport* report = nullptr) {
  PacketDecoder decoder(one_tensor(s.x.size()), RunSecret::from_seed(1), {2, {}});
  std::vector<float> out(s.x.size());
  const std::span<float> dst(out);
  std::vector<std::span<const uint8_t>> views(packets.begin(), packets.end());
  decoder.decode_add(s.set.control, views, {}, 1.0f, {&dst, 1}, report);
  return out;
}

double vnmse(const std::vector<float>& got, const std::vector<float>& x) {
  double error = 0, norm = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    error += (static_cast<double>(got[i]) - x[i]) * (static_cast<double>(got[i]) - x[i]);
    norm += static_cast<double>(x[i]) * x[i];
  }
  return error / norm;
}

TEST(Packets, CompleteEqualsTheMessage) {
  for (const char* spec :
       {"eden:bits=1", "eden:bits=3.3", "eden:bits=0.2", "eden:code=entropy,bits=2", "eden:code=entropy,bits=7"}) {
    const Sent s = send(4096 * 70 + 77, spec, 600);
    PacketReport report;
    const std::vector<float> got = receive(s, s.set.packets, &report);
    EXPECT_EQ(got, s.whole) << spec;
    EXPECT_EQ(report.received, report.expected);
    EXPECT_EQ(s.set.total_bytes(), s.set.control.size() + s.set.payload_bytes + 16 * s.set.packets.size());
  }
}

TEST(Packets, LossHasTheErrorOfSubsampling) {
  for (const auto& [spec, v] :
       {std::pair<std::string, double>{"eden:bits=1", .570796}, {"eden:bits=4", .00959}, {"eden:code=entropy,bits=2", .0976}}) {
    const Sent s = send(4096 * 128, spec, 500);
    const size_t n = s.set.packets.size();
    ASSERT_GE(n, 64u);
    for (const bool burst : {false, true}) {
      for (const double p : {.01, .05, .2}) {
        const size_t drop = static_cast<size_t>(p * static_cast<double>(n) + .5);
        std::vector<size_t> order(n);
        for (size_t i = 0; i < n; ++i) order[i] = i;
        CounterRng rng(5);
        if (burst) {
          std::rotate(order.begin(), order.begin() + static_cast<ptrdiff_t>(rng.next_below(n)), order.end());
        } else {
          for (size_t i = n - 1; i > 0; --i) std::swap(order[i], order[rng.next_below(i + 1)]);
        }
        std::vector<std::vector<uint8_t>> kept;
        for (size_t i = drop; i < n; ++i) kept.push_back(s.set.packets[order[i]]);
        const double lost = static_cast<double>(drop) / static_cast<double>(n);
        const double limit = (1 + v) / (1 - lost) - 1;
        // One draw over 128 blocks; 1/(1-p) is convex, and the groups do not lose exactly alike.
        EXPECT_LT(vnmse(receive(s, kept), s.x), limit * 1.06) << spec << " burst " << burst << " p " << p;
      }
    }
  }
}

TEST(Packets, BadPacketsAreCountedAndLost) {
  const Sent s = send(4096 * 64, "eden:bits=1", 600);
  std::vector<std::vector<uint8_t>> packets = s.set.packets;
  packets.push_back(packets[0]);  // duplicate
  packets[1][20] ^= 1;            // damaged
  const Sent other = send(4096 * 63, "eden:bits=1", 600);
  packets.push_back(other.set.packets[0]);  // foreign
  packets.push_back({});                    // damaged
  PacketReport report;
  const std::vector<float> got = receive(s, packets, &report);
  EXPECT_EQ(report.duplicate, 1u);
  EXPECT_EQ(report.damaged, 2u);
  EXPECT_EQ(report.foreign, 1u);
  EXPECT_EQ(report.received, report.expected - 1);
  EXPECT_LT(vnmse(got, s.x), .8);
}

TEST(Packets, NothingReceivedIsZeroAndReported) {
  const Sent s = send(4096 * 64, "eden:code=entropy,bits=1", 600);
  PacketReport report;
  const std::vector<float> got = receive(s, {}, &report);
  EXPECT_EQ(report.groups_lost, report.groups);
  for (const float v : got) ASSERT_EQ(v, 0.0f);
}

TEST(Packets, ZerosNeedNoPackets) {
  for (const char* spec : {"eden:bits=0.05", "eden:code=entropy,bits=1"}) {
    std::vector<float> x(4096 * 80);
    const RoundTrip zero = round_trip(x, spec);
    EXPECT_TRUE(packetize(zero.bytes, one_tensor(x.size())).packets.empty());
    x[5000] = 1;  // one block of one group
    Sent s;
    s.x = x;
    const RoundTrip r = round_trip(x, spec);
    s.set = packetize(r.bytes, one_tensor(x.size()), 64);
    PacketReport report;
    EXPECT_EQ(receive(s, s.set.packets, &report), r.decoded) << spec;
    EXPECT_EQ(report.received, report.expected);
    EXPECT_EQ(report.damaged + report.duplicate + report.foreign + report.groups_lost, 0u);
  }
}

TEST(Packets, UnsupportedMethodsSaySo) {
  const std::vector<float> x = normal_vector(5000, 1);
  for (const char* spec : {"qsgd:bits=2", "eden:code=entropy,dither=shared,bits=1", "eden:allocate=energy"}) {
    const RoundTrip r = round_trip(x, spec);
    EXPECT_THROW(packetize(r.bytes, one_tensor(x.size())), Error) << spec;
  }
}

// A message's checksum says nothing about who made it: a segment that does not decode is refused, not cut.
TEST(Packets, HostileMessagesAreRefused) {
  const std::vector<float> x = normal_vector(4096, 1);
  const std::vector<uint8_t> right = round_trip(x, "eden:bits=8,code=entropy").bytes;
  const size_t segment = kMessageHeaderBytes + 2 + kRecordBytes + 2 + 4;
  const auto seal = [](std::vector<uint8_t> bytes) {
    store_u64(bytes.data() + 16, bytes.size());
    store_u32(bytes.data() + bytes.size() - 4, crc32({bytes.data(), bytes.size() - 4}));
    return bytes;
  };
  std::vector<uint8_t> word_alone(right.begin(), right.begin() + static_cast<std::ptrdiff_t>(segment + 4));
  store_u32(word_alone.data() + segment - 4, 4);
  word_alone.resize(word_alone.size() + 4);
  EXPECT_KPD_ERROR(kCorruptData, str("byte ", segment, ": segment: "),
                   packetize(seal(word_alone), one_tensor(4096), 1200, "hostile"));
  for (size_t i = segment; i + 8 < right.size(); i += 7) {
    std::vector<uint8_t> changed = right;
    changed[i] ^= 0x41;
    try {
      packetize(seal(changed), one_tensor(4096), 1200, "hostile");
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kCorruptData) << e.what();
    }
  }
}

TEST(Packets, KeepAboutTheSizeAskedFor) {
  for (const char* spec :
       {"eden:bits=1", "eden:bits=3.7", "eden:bits=0.3", "eden:bits=5,block=16384", "eden:code=entropy,bits=0.1",
        "eden:code=entropy,bits=1", "eden:code=entropy,bits=3", "eden:code=entropy,bits=8"}) {
    for (const uint32_t target : {64u, 500u, 1200u, 9000u}) {
      if (target == 64 && std::string_view(spec).ends_with("16384")) continue;  // 4,096 packets for 64 blocks do not suffice
      const Sent s = send(4096 * 70 + 77, spec, target);
      size_t largest = 0;
      for (const std::vector<uint8_t>& packet : s.set.packets) largest = std::max(largest, packet.size() - 16);
      EXPECT_LE(static_cast<double>(largest), 1.1 * target + 40) << spec;
      EXPECT_GT(static_cast<double>(largest), .25 * target) << spec;
    }
  }
}

}  // namespace
}  // namespace kpd::gradient
