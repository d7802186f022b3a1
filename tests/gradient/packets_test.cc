// tests: packetized messages: complete = the message itself; under loss, random and in bursts, tensors of every size stay
// unbiased and have the error of subsampling; bad packets are lost packets.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "base/expect_error.h"
#include "gradient/round_trip.h"
#include "gradient/stream_format.h"
#include "kpd/base/error.h"
#include "kpd/base/crc32.h"
#include "kpd/gradient/decoder.h"
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
  s.set = packetize(r.bytes, one_tensor(n), RunSecret::from_seed(1), payload);
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
    EXPECT_FALSE(report.lost);
    EXPECT_TRUE(report.lost_groups.empty());
    EXPECT_EQ(s.set.total_bytes(), s.set.control.size() + s.set.payload_bytes + 12 * s.set.packets.size());
  }
}

// Which of n packets arrive: each is lost with probability p; or one run of them, p n long in the mean, which may wrap around.
std::vector<uint8_t> draw_arrivals(size_t n, double p, bool burst, CounterRng& rng) {
  std::vector<uint8_t> arrived(n, 1);
  if (burst) {
    const double expected = p * static_cast<double>(n);
    const size_t whole = static_cast<size_t>(expected);
    const size_t length = whole + (rng.next_double() < expected - static_cast<double>(whole) ? 1 : 0);
    const size_t start = rng.next_below(n);
    for (size_t i = 0; i < length; ++i) arrived[(start + i) % n] = 0;
  } else {
    for (uint8_t& a : arrived) a = rng.next_double() < p ? 0 : 1;
  }
  return arrived;
}

struct Mean {
  double sum = 0, squares = 0, n = 0;
  void add(double v) {
    sum += v;
    squares += v * v;
    ++n;
  }
  double value() const { return sum / n; }
  double error() const { return std::sqrt(std::max(0.0, squares / n - value() * value()) / (n - 1)); }
};

// Messages of several tensors, each of a client of its own; what loss makes of each tensor.
class LossTrials {
 public:
  LossTrials(const std::vector<uint64_t>& counts, const std::string& spec, uint32_t payload = 1200) : payload_(payload) {
    for (const uint64_t n : counts) {
      manifest_.push_back({std::to_string(manifest_.size()), DType::kFloat32, {n}});
      x_.push_back(lognormal_vector(n, 3 + n));
      views_.push_back(TensorView{std::span<const float>(x_.back())});
      whole_.emplace_back(n);
      lossy_.emplace_back(n);
    }
    encoder_ = std::make_unique<Encoder>(manifest_, Codec::parse(spec), secret_);
    decoder_ = std::make_unique<Decoder>(manifest_, secret_);
    packets_ = std::make_unique<PacketDecoder>(manifest_, secret_);
    message_.resize(encoder_->max_bytes());
  }

  struct Figures {
    Mean projection;    // <decoded, x> / |x|^2
    Mean error, bound;  // |decoded - x|^2 / |x|^2, and (1 + v) sigma / alpha - 1, v and alpha those of the trial
    Mean above;         // error - bound
  };
  // One a tensor and one of all together, over the messages of which something arrived.
  std::vector<Figures> run(int trials, double loss, bool burst) {
    std::vector<Figures> figures(x_.size() + 1);
    CounterRng rng(11, burst ? 1 : 0);
    lost_ = 0;
    for (int trial = 0; trial < trials; ++trial) one(trial, loss, burst, rng, figures);
    return figures;
  }
  int lost() const { return lost_; }

 private:
  struct Sums {
    double dot = 0, norm = 0, error = 0, whole_error = 0;
    void add(const std::vector<float>& x, const std::vector<float>& whole, const std::vector<float>& lossy) {
      for (size_t i = 0; i < x.size(); ++i) {
        dot += double{lossy[i]} * x[i];
        norm += double{x[i]} * x[i];
        error += (double{lossy[i]} - x[i]) * (double{lossy[i]} - x[i]);
        whole_error += (double{whole[i]} - x[i]) * (double{whole[i]} - x[i]);
      }
    }
    void report(double inverse, Figures& f) const {
      const double bound = (1 + whole_error / norm) * inverse - 1;
      f.projection.add(dot / norm);
      f.error.add(error / norm);
      f.bound.add(bound);
      f.above.add(error / norm - bound);
    }
  };
  void one(int trial, double loss, bool burst, CounterRng& rng, std::vector<Figures>& figures) {
    MessageIds ids;
    ids.client = static_cast<uint64_t>(trial);
    const uint64_t bytes = encoder_->encode_message(views_, ids, message_);
    const std::span<const uint8_t> message = std::span(message_).first(bytes);
    const PacketSet set = packetize(message, manifest_, secret_, payload_);
    const std::vector<uint8_t> arrived = draw_arrivals(set.packets.size(), loss, burst, rng);
    std::vector<std::span<const uint8_t>> got;
    for (size_t i = 0; i < arrived.size(); ++i) {
      if (arrived[i] != 0) got.emplace_back(set.packets[i]);
    }
    std::vector<std::span<float>> whole(whole_.begin(), whole_.end()), lossy(lossy_.begin(), lossy_.end());
    for (std::vector<float>& t : lossy_) std::fill(t.begin(), t.end(), 0.0f);
    PacketReport report;
    if (!packets_->decode_add(set.control, got, ids, 1.0f, lossy, &report)) {
      EXPECT_TRUE(report.lost && got.empty());
      ++lost_;
      return;
    }
    decoder_->decode(message, ids, whole);
    const double inverse = static_cast<double>(set.packets.size()) / static_cast<double>(got.size());
    Sums all;
    for (size_t t = 0; t < x_.size(); ++t) {
      Sums one;
      one.add(x_[t], whole_[t], lossy_[t]);
      all.add(x_[t], whole_[t], lossy_[t]);
      one.report(inverse, figures[t]);
    }
    all.report(inverse, figures.back());
  }

  RunSecret secret_ = RunSecret::from_seed(1);
  Manifest manifest_;
  std::vector<std::vector<float>> x_, whole_, lossy_;
  std::vector<TensorView> views_;
  std::unique_ptr<Encoder> encoder_;
  std::unique_ptr<Decoder> decoder_;
  std::unique_ptr<PacketDecoder> packets_;
  std::vector<uint8_t> message_;
  uint32_t payload_;
  int lost_ = 0;
};

// Unbiased within four standard errors, which are stated; the error at most 1.02 of the bound, within three.
void expect_subsampling(const LossTrials::Figures& f, double stderr_projection, double stderr_error) {
  EXPECT_LT(f.projection.error(), stderr_projection);
  EXPECT_NEAR(f.projection.value(), 1, 4 * f.projection.error() + 1e-6);  // one packet: no error at all
  EXPECT_LT(f.above.error(), stderr_error * f.bound.value());
  EXPECT_LT(f.above.value(), .02 * f.bound.value() + 3 * f.above.error());
}

TEST(Packets, SmallTensorsAloneAreUnbiasedUnderLoss) {
  for (const char* spec : {"eden:bits=1", "eden:bits=0.1"}) {
    for (const uint64_t n : {64u, 300u, 1000u, 9600u}) {
      LossTrials trials({n}, spec);
      for (const bool burst : {false, true}) {
        for (const double p : {.05, .2}) {
          SCOPED_TRACE(str(spec, " n ", n, " burst ", burst, " p ", p));
          const int count = static_cast<int>(std::max<uint64_t>(30, 100000 / n));
          expect_subsampling(trials.run(count, p, burst)[0], .05, .03);
        }
      }
    }
  }
}

void expect_unbiased_together(LossTrials trials, const char* spec) {
  for (const bool burst : {false, true}) {
    const std::vector<LossTrials::Figures> figures = trials.run(150, burst ? .2 : .3, burst);
    for (size_t t = 0; t < figures.size(); ++t) {
      SCOPED_TRACE(str(spec, " tensor ", t, " burst ", burst));
      expect_subsampling(figures[t], .2, .15);
    }
  }
}

TEST(Packets, SmallTensorsTogetherAreUnbiasedUnderLoss) {
  for (const char* spec : {"eden:bits=1,join=0", "eden:bits=2.3,join=0", "eden:code=entropy,bits=1,join=0"}) {
    expect_unbiased_together(LossTrials({64, 300, 9600, 70, 1000, 64}, spec), spec);
  }
  // Of 64 elements six codes travel, in six of eight packets.
  expect_unbiased_together(LossTrials({64, 40000, 300, 70}, "eden:bits=0.1,join=0", 64), "eden:bits=0.1,join=0");
}

// Tensors that are coded as one vector share their error, so the bound is that of all together.
TEST(Packets, JoinedTensorsAreUnbiasedUnderLoss) {
  for (const char* spec : {"eden:bits=1,join=1", "eden:bits=0.1,join=1", "eden:code=entropy,bits=1,join=1"}) {
    LossTrials trials({64, 300, 70, 1000, 2000, 64}, spec, 64);
    const std::vector<LossTrials::Figures> figures = trials.run(200, .2, true);
    for (size_t t = 0; t < figures.size(); ++t) {
      SCOPED_TRACE(str(spec, " tensor ", t));
      EXPECT_NEAR(figures[t].projection.value(), 1, 4 * figures[t].projection.error());
    }
    expect_subsampling(figures.back(), .1, .05);
  }
}

TEST(Packets, LargeTensorsHaveTheErrorOfSubsampling) {
  for (const char* spec : {"eden:bits=1", "eden:bits=4", "eden:code=entropy,bits=2"}) {
    LossTrials trials({4096 * 64}, spec);
    for (const bool burst : {false, true}) {
      SCOPED_TRACE(str(spec, " burst ", burst));
      const LossTrials::Figures f = trials.run(2, .2, burst)[0];
      EXPECT_NEAR(f.projection.value(), 1, .01);
      EXPECT_LT(f.error.value(), 1.02 * f.bound.value());
    }
  }
}

TEST(Packets, AreAsManyAsPromised) {
  const auto packets = [](uint64_t n, const char* spec, uint32_t target) { return send(n, spec, target).set.packets.size(); };
  EXPECT_EQ(packets(64, "eden:bits=1", 1200), 1u);      // 8 bytes of codes
  EXPECT_EQ(packets(1024, "eden:bits=1", 1200), 2u);    // 128
  EXPECT_EQ(packets(9600, "eden:bits=1", 1200), 16u);   // 1,200
  EXPECT_EQ(packets(96000, "eden:bits=2", 1200), 20u);  // 24,000
  EXPECT_EQ(packets(96000, "eden:bits=2", 60000), 16u);
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

TEST(Packets, NothingReceivedIsALostMessage) {
  for (const uint64_t n : {64u, 4096u * 64}) {
    const Sent s = send(n, "eden:code=entropy,bits=1", 600);
    PacketDecoder decoder(one_tensor(n), RunSecret::from_seed(1));
    std::vector<float> out(n, 7.0f);
    const std::span<float> acc(out);
    PacketReport report;
    EXPECT_FALSE(decoder.decode_add(s.set.control, {}, {}, 1.0f, {&acc, 1}, &report));
    EXPECT_TRUE(report.lost);
    EXPECT_EQ(report.received, 0u);
    for (const float v : out) ASSERT_EQ(v, 7.0f);
  }
}

// A group of which nothing arrived is named; the others go on.
TEST(Packets, LostGroupsAreNamed) {
  const Manifest manifest = {{"big", DType::kFloat32, {200000}}, {"small", DType::kFloat32, {64}}};
  const std::vector<float> big = normal_vector(200000, 1), small = normal_vector(64, 2);
  const RunSecret secret = RunSecret::from_seed(1);
  Encoder encoder(manifest, Codec::parse("eden:bits=0.1,join=0"), secret);
  const TensorView views[] = {TensorView{std::span<const float>(big)}, TensorView{std::span<const float>(small)}};
  std::vector<uint8_t> message(encoder.max_bytes());
  message.resize(encoder.encode_message(views, {}, message));
  const PacketSet set = packetize(message, manifest, secret, 64);
  ASSERT_GT(set.packets.size(), 20u);
  PacketDecoder decoder(manifest, secret);
  int named = 0;
  for (size_t only = 0; only < set.packets.size(); ++only) {
    std::vector<float> b(200000), s(64);
    const std::span<float> acc[] = {b, s};
    const std::span<const uint8_t> packet = set.packets[only];
    PacketReport report;
    ASSERT_TRUE(decoder.decode_add(set.control, {&packet, 1}, {}, 1.0f, acc, &report));
    const bool zero = std::all_of(s.begin(), s.end(), [](float v) { return v == 0; });
    EXPECT_EQ(report.lost_groups.size(), zero ? 1u : 0u);
    if (!zero) continue;
    ++named;
    EXPECT_EQ(to_text(report.lost_groups[0], manifest), "elements 0 to 63 of tensor 'small'");
  }
  // Six codes in six of the packets.
  EXPECT_EQ(named, static_cast<int>(set.packets.size()) - 6);
}

// Whoever does not know the secret cannot tell which packets to drop.
TEST(Packets, TheSecretDecidesTheOrder) {
  const RoundTrip r = round_trip(normal_vector(100000, 1), "eden:bits=1");
  const PacketSet a = packetize(r.bytes, one_tensor(100000), RunSecret::from_seed(1));
  const PacketSet b = packetize(r.bytes, one_tensor(100000), RunSecret::from_seed(2));
  ASSERT_EQ(a.packets.size(), b.packets.size());
  EXPECT_EQ(a.control, b.control);
  size_t same = 0;
  for (size_t i = 0; i < a.packets.size(); ++i) same += a.packets[i] == b.packets[i] ? 1 : 0;
  EXPECT_LT(same, 4u);
}

TEST(Packets, ZerosNeedNoPackets) {
  for (const char* spec : {"eden:bits=0.05", "eden:code=entropy,bits=1"}) {
    std::vector<float> x(4096 * 80);
    const RoundTrip zero = round_trip(x, spec);
    const PacketSet none = packetize(zero.bytes, one_tensor(x.size()), RunSecret::from_seed(1));
    EXPECT_TRUE(none.packets.empty());
    Sent nothing{x, none, {}};
    PacketReport of_zeros;
    EXPECT_EQ(receive(nothing, {}, &of_zeros), x);
    EXPECT_FALSE(of_zeros.lost);
    x[5000] = 1;  // one block of one group
    Sent s;
    s.x = x;
    const RoundTrip r = round_trip(x, spec);
    s.set = packetize(r.bytes, one_tensor(x.size()), RunSecret::from_seed(1), 64);
    PacketReport report;
    EXPECT_EQ(receive(s, s.set.packets, &report), r.decoded) << spec;
    EXPECT_EQ(report.received, report.expected);
    EXPECT_EQ(report.damaged + report.duplicate + report.foreign + report.lost_groups.size(), 0u);
  }
}

TEST(Packets, UnsupportedMethodsSaySo) {
  const std::vector<float> x = normal_vector(5000, 1);
  for (const char* spec : {"qsgd:bits=2", "eden:code=entropy,dither=shared,bits=1", "eden:allocate=energy"}) {
    const RoundTrip r = round_trip(x, spec);
    SCOPED_TRACE(spec);
    EXPECT_KPD_ERROR(kUnsupported, "no packetized form", packetize(r.bytes, one_tensor(x.size()), RunSecret::from_seed(1)));
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
  const auto cut = [](const std::vector<uint8_t>& message) { packetize(message, one_tensor(4096), {}, 1200, "hostile"); };
  std::vector<uint8_t> word_alone(right.begin(), right.begin() + static_cast<std::ptrdiff_t>(segment + 4));
  store_u32(word_alone.data() + segment - 4, 4);
  word_alone.resize(word_alone.size() + 4);
  EXPECT_KPD_ERROR(kCorruptData, str("byte ", segment, ": segment: "), cut(seal(word_alone)));
  for (size_t i = segment; i + 8 < right.size(); i += 7) {
    std::vector<uint8_t> changed = right;
    changed[i] ^= 0x41;
    try {
      cut(seal(changed));
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
      const Sent s = send(4096 * 70 + 77, spec, target);
      size_t largest = 0, smallest = 60000;
      for (const std::vector<uint8_t>& packet : s.set.packets) {
        largest = std::max(largest, packet.size() - 12);
        smallest = std::min(smallest, packet.size() - 12);
      }
      EXPECT_LE(static_cast<double>(largest), 1.1 * target + 16) << spec << " " << target;
      EXPECT_GT(static_cast<double>(smallest), .75 * static_cast<double>(largest) - 16) << spec << " " << target;
    }
  }
}

}  // namespace
}  // namespace kpd::gradient
