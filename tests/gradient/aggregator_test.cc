// tests: the server's round goes on without clients that fail or lie; what is refused leaves no trace in the sum.
#include "kpd/gradient/aggregator.h"

#include <gtest/gtest.h>

#include <optional>

#include <cmath>
#include <cstring>
#include <thread>

#include "base/expect_error.h"
#include "gradient/round_trip.h"
#include "kpd/base/bytes.h"
#include "kpd/base/hash.h"
#include "kpd/base/crc32.h"
#include "kpd/comm/inprocess.h"
#include "kpd/gradient/aggregate.h"
#include "kpd/gradient/decoder.h"

namespace kpd::gradient {
namespace {

using namespace testing;
using Bytes = std::vector<uint8_t>;

constexpr uint64_t kDim = 20000;
constexpr MessageIds kRound{.run = 1, .round = 4, .client = 0, .base_model_hash = 9, .weight = 1};

MessageIds ids_of(uint64_t client, uint64_t weight = 1) {
  MessageIds ids = kRound;
  ids.client = client;
  ids.weight = weight;
  return ids;
}

std::vector<float> vector_of(uint64_t client) { return normal_vector(kDim, client + 10); }

Bytes message_of(const std::vector<float>& x, const MessageIds& ids, const std::string& codec = "eden:bits=2",
                 const std::string& name = "x", bool authenticated = false) {
  EncodeOptions options;
  options.authenticated = authenticated;
  Encoder e({{name, DType::kFloat32, {x.size()}}}, Codec::parse(codec), RunSecret::from_seed(2), options);
  Bytes bytes(e.max_bytes());
  const TensorView view{std::span<const float>(x)};
  bytes.resize(e.encode_message({&view, 1}, ids, bytes));
  return bytes;
}

void reseal(Bytes& message) {
  store_u32(message.data() + message.size() - 4, crc32(std::span(message).first(message.size() - 4)));
}

class Server {
 public:
  explicit Server(AggregatorOptions options = {})
      : aggregator(one_tensor(kDim), RunSecret::from_seed(2), with_weights(std::move(options))) {
    aggregator.begin_round(kRound, spans());
  }
  // The tests' clients have weights of 1 and 3.
  static AggregatorOptions with_weights(AggregatorOptions options) {
    if (options.max_weight == 1) options.max_weight = 1000;
    return options;
  }
  std::vector<std::span<float>> spans() { return {std::span<float>(sum)}; }
  Refusal add(uint64_t client, const Bytes& message, const char* part = "") {
    const Verdict v = aggregator.add(client, message);
    EXPECT_NE(v.reason.find(part), std::string::npos) << v.reason;
    EXPECT_EQ(v.reason.empty(), v.accepted());
    return v.refusal;
  }
  std::vector<float> sum = std::vector<float>(kDim, 7.0f);
  Aggregator aggregator;
};

// What clients 0 and 1 alone give.
std::vector<float> clean_sum(const std::string& codec = "eden:bits=2", AggregatorOptions options = {}) {
  Server s(std::move(options));
  EXPECT_EQ(s.add(0, message_of(vector_of(0), ids_of(0), codec)), Refusal::kNone);
  EXPECT_EQ(s.add(1, message_of(vector_of(1), ids_of(1, 3), codec)), Refusal::kNone);
  EXPECT_TRUE(s.aggregator.finish_round());
  return s.sum;
}

TEST(Aggregator, AveragesByWeight) {
  const std::vector<float> mean = clean_sum("float32"), a = vector_of(0), b = vector_of(1);
  for (size_t i = 0; i < kDim; ++i) ASSERT_NEAR(mean[i], (a[i] + 3 * b[i]) / 4, 1e-5) << i;
}

TEST(Aggregator, EveryRefusalIsNamedAndLeavesNoTrace) {
  AggregatorOptions options;
  options.max_weight = 1000;
  options.max_norm = 1000;
  options.codec = Codec::parse("eden:bits=2");
  Server s(options);
  const std::vector<float> x = vector_of(2);
  const auto changed = [&](auto change) {
    MessageIds ids = ids_of(2);
    change(ids);
    return message_of(x, ids);
  };
  EXPECT_EQ(s.add(0, message_of(vector_of(0), ids_of(0))), Refusal::kNone);
  EXPECT_EQ(s.add(2, {}, "magic"), Refusal::kDamaged);
  EXPECT_EQ(s.add(2, Bytes(1000, 0x5a), "KPDG"), Refusal::kDamaged);
  Bytes flipped = message_of(x, ids_of(2));
  flipped[500] ^= 4;
  EXPECT_EQ(s.add(2, flipped, "checksum"), Refusal::kDamaged);
  Bytes hostile = message_of(x, ids_of(2));
  store_u32(hostile.data() + 72 + 18, 1);  // the first scale word
  reseal(hostile);
  EXPECT_EQ(s.add(2, hostile), Refusal::kDamaged);
  EXPECT_EQ(s.add(0, message_of(vector_of(0), ids_of(0)), "client 0 is in the sum already"), Refusal::kTwice);
  EXPECT_EQ(s.add(2, changed([](MessageIds& i) { i.round = 3; }), "round 3, expected 4"), Refusal::kOtherRound);
  EXPECT_EQ(s.add(2, changed([](MessageIds& i) { i.run = 8; }), "run 8, expected 1"), Refusal::kOtherRun);
  EXPECT_EQ(s.add(2, changed([](MessageIds& i) { i.client = 5; }), "client 5, expected 2"), Refusal::kOtherClient);
  EXPECT_EQ(s.add(2, changed([](MessageIds& i) { i.base_model_hash = 5; }), "base model"), Refusal::kOtherModel);
  EXPECT_EQ(s.add(2, message_of(x, ids_of(2), "eden:bits=2", "y"), "another model"), Refusal::kOtherModel);
  EXPECT_EQ(s.add(2, message_of(x, ids_of(2), "eden:bits=3"), "not compressed by eden:bits=2"), Refusal::kOtherCodec);
  EXPECT_EQ(s.add(2, changed([](MessageIds& i) { i.weight = 0; }), "weight 0"), Refusal::kWeight);
  EXPECT_EQ(s.add(2, changed([](MessageIds& i) { i.weight = 1001; }), "weight 1001"), Refusal::kWeight);
  std::vector<float> huge = x;
  for (float& v : huge) v *= 20;
  EXPECT_EQ(s.add(2, message_of(huge, ids_of(2)), "the limit is 10"), Refusal::kNorm);
  s.aggregator.refuse(Refusal::kSilent);
  EXPECT_EQ(s.add(1, message_of(vector_of(1), ids_of(1, 3))), Refusal::kNone);
  EXPECT_TRUE(s.aggregator.finish_round());
  EXPECT_EQ(s.sum, clean_sum());
  const RoundReport& r = s.aggregator.report();
  EXPECT_EQ(r.accepted, 2u);
  EXPECT_EQ(r.total_weight, 4u);
  EXPECT_EQ(r.refusals(), 15u);
  EXPECT_EQ(r.refused[static_cast<size_t>(Refusal::kDamaged)], 4u);
  EXPECT_EQ(r.refused[static_cast<size_t>(Refusal::kSilent)], 1u);
}

// Eight clients of weight 1 hold +1, one holds -1 and says that it weighs as much as 2^32 of them: within any limit of the
// norm.
TEST(Aggregator, ARogueWeightTurnsNoMean) {
  const std::vector<float> ones(kDim, 1.0f), rogue(kDim, -1.0f);
  for (const bool known : {false, true}) {
    AggregatorOptions options;
    options.max_norm = 1.01 * std::sqrt(static_cast<double>(kDim));
    options.codec = Codec::parse("float32");
    const std::optional<uint64_t> weight = known ? std::optional<uint64_t>(1) : std::nullopt;
    std::vector<float> sum(kDim);
    const std::span<float> whole(sum);
    Aggregator server(one_tensor(kDim), RunSecret::from_seed(2), options);
    server.begin_round(kRound, {&whole, 1});
    for (uint64_t c = 0; c < 8; ++c) EXPECT_TRUE(server.add(c, message_of(ones, ids_of(c), "float32"), weight).accepted());
    const Verdict v = server.add(8, message_of(rogue, ids_of(8, uint64_t{1} << 32), "float32"), weight);
    EXPECT_EQ(v.refusal, Refusal::kWeight);
    EXPECT_EQ(v.reason, known ? "the message has weight 4294967296, expected 1" : "weight 4294967296, expected 1 to 1");
    EXPECT_TRUE(server.finish_round());
    for (const float x : sum) ASSERT_EQ(x, 1.0f);
  }
}

// Counters and the like have no part in an update's length unless they are summed.
TEST(Aggregator, ExactTypesThatAreNotSummedHaveNoNorm) {
  const Manifest manifest = {{"x", DType::kFloat32, {100}}, {"batches", DType::kInt64, {1}}, {"fp8", DType::kFloat8E4M3, {1}}};
  const std::vector<float> x(100, 0.5f);
  const int64_t batches = 1000;
  const uint8_t nan = 0x7f;
  const TensorView views[] = {std::span<const float>(x), {&batches, 1, DType::kInt64}, {&nan, 1, DType::kFloat8E4M3}};
  Encoder e(manifest, Codec::parse("eden:bits=8"), RunSecret::from_seed(2));
  Bytes message(e.max_bytes());
  message.resize(e.encode_message(views, ids_of(0), message));

  std::vector<float> sum(100), number(1);
  Aggregator aggregator(manifest, RunSecret::from_seed(2), {.max_norm = 6});
  std::span<float> to[] = {sum, {}, {}};
  aggregator.begin_round(kRound, to);
  const Verdict v = aggregator.add(0, message);
  EXPECT_TRUE(v.accepted()) << v.reason;
  EXPECT_NEAR(v.norm, 5, .1);
  EXPECT_NEAR(sum[7], .5f, .05f);
  for (const size_t summed : {1, 2}) {
    to[1] = to[2] = {};
    to[summed] = number;
    aggregator.begin_round(kRound, to);
    EXPECT_EQ(aggregator.add(0, message).refusal, Refusal::kNorm);
    EXPECT_EQ(number[0], 0);
  }
}

// What is known of a client is exact: less is as wrong as more, and max_weight has no say.
TEST(Aggregator, AnExpectedWeightIsTheOnlyOne) {
  Server s;
  EXPECT_EQ(s.aggregator.add(0, message_of(vector_of(0), ids_of(0, 4000)), 5000).refusal, Refusal::kWeight);
  EXPECT_EQ(s.aggregator.add(0, message_of(vector_of(0), ids_of(0, 5000)), 5000).refusal, Refusal::kNone);
  EXPECT_EQ(s.aggregator.add(1, message_of(vector_of(1), ids_of(1, 1)), 0).refusal, Refusal::kWeight);
}

// Messages of clients whose update has just the longest norm.
TEST(Aggregator, HonestClientsOfTheLongestNormAreTaken) {
  constexpr uint64_t kShort = 1000;
  for (const char* spec : {"eden:bits=.1", "eden:bits=.1,code=entropy", "drive", "hadamard-sq:bits=1"}) {
    const Codec codec = Codec::parse(spec);
    const Manifest manifest = one_tensor(kShort);
    const double room = norm_room(manifest, codec);
    const bool tenth = codec.bits() < 1;
    const int messages = tenth ? 20000 : 2000;
    Encoder encoder(manifest, codec, RunSecret::from_seed(5));
    Decoder decoder(manifest, RunSecret::from_seed(5));
    const std::vector<float> x = normal_vector(kShort, 3);
    double norm2 = 0, mean = 0;
    for (const float v : x) norm2 += static_cast<double>(v) * v;
    const TensorView view{std::span<const float>(x)};
    Bytes message(encoder.max_bytes());
    int refused = 0;
    for (int i = 0; i < messages; ++i) {
      MessageIds ids = ids_of(static_cast<uint64_t>(i));
      const uint64_t bytes = encoder.encode_message({&view, 1}, ids, message);
      const double norm = decoder.norm(std::span(message).first(bytes), ids);
      refused += norm * norm > room * norm2;
      mean += norm * norm / norm2 / messages;
    }
    // Fewer than one in 10,000: of 20,000 messages fewer than 2 are expected. At .1 bit of 1,000 numbers a standard deviation
    // of |decoded|^2 is 15 % (fixed) or 28 % (entropy), so that six are 2.4 and 4.7 times the mean.
    EXPECT_LT(refused, 2) << spec;
    EXPECT_GT(room, mean) << spec;
    EXPECT_LT(room, (tenth ? 5 : 2.5) * mean) << spec;
  }
  EXPECT_LT(norm_room(one_tensor(kShort), Codec::parse("qsgd:bits=2")), 1.0001);
}

TEST(Aggregator, AMessageThatIsWrongInItsLastSegmentLeavesNoTrace) {
  // The entropy code's states are checked only by decoding: the norm pass does so before anything is added.
  const std::string codec = "eden:bits=2,code=entropy,block=64";
  Server s;
  EXPECT_EQ(s.add(0, message_of(vector_of(0), ids_of(0), codec)), Refusal::kNone);
  Bytes hostile = message_of(vector_of(2), ids_of(2), codec);
  hostile[hostile.size() - 60] ^= 0x10;
  reseal(hostile);
  EXPECT_EQ(s.add(2, hostile, "segment at byte"), Refusal::kDamaged);
  EXPECT_EQ(s.add(1, message_of(vector_of(1), ids_of(1, 3), codec)), Refusal::kNone);
  EXPECT_TRUE(s.aggregator.finish_round());
  EXPECT_EQ(s.sum, clean_sum(codec));
}

TEST(Aggregator, NoUpdateMakesTheSumInfinite) {
  const std::vector<float> clean = clean_sum();
  std::vector<float> huge(kDim, 3e38f);  // twice that is beyond float
  for (const char* codec : {"float32", "bf16", "eden:bits=2", "sq:bits=2"}) {
    Server s;
    EXPECT_EQ(s.add(0, message_of(vector_of(0), ids_of(0))), Refusal::kNone);
    EXPECT_EQ(s.add(2, message_of(huge, ids_of(2, 2), codec), "the limit is"), Refusal::kNorm) << codec;
    for (float& v : huge) v = -v;
    EXPECT_EQ(s.add(2, message_of(huge, ids_of(2, 2), codec), "the limit is"), Refusal::kNorm) << codec;
    EXPECT_EQ(s.add(1, message_of(vector_of(1), ids_of(1, 3))), Refusal::kNone);
    EXPECT_TRUE(s.aggregator.finish_round());
    EXPECT_EQ(s.sum, clean) << codec;
  }
}

TEST(Aggregator, ARoundWithoutAnyoneChangesNothing) {
  Server s;
  s.aggregator.refuse(Refusal::kLost);
  EXPECT_EQ(s.add(0, Bytes(100)), Refusal::kDamaged);
  EXPECT_FALSE(s.aggregator.finish_round());
  for (const float v : s.sum) ASSERT_EQ(v, 0.0f);
  s.aggregator.begin_round(kRound, s.spans());
  EXPECT_EQ(s.aggregator.report().refusals(), 0u);
}

TEST(Aggregator, NormIsThatOfTheDecodedVector) {
  for (const char* codec : {"eden:bits=1", "eden:bits=0.3", "eden:bits=2.5", "eden:bits=7", "eden:bits=2,allocate=energy",
                            "eden:bits=3,code=entropy", "eden:bits=.2,code=entropy", "eden:bits=2,code=entropy,dither=shared",
                            "drive", "qsgd:bits=4", "sq:bits=2", "hadamard-sq:bits=1", "float32", "bf16"}) {
    Server s;
    const Verdict v = s.aggregator.add(0, message_of(vector_of(0), ids_of(0), codec));
    ASSERT_TRUE(v.accepted()) << codec << v.reason;
    ASSERT_TRUE(s.aggregator.finish_round());
    double norm2 = 0;
    for (const float x : s.sum) norm2 += static_cast<double>(x) * x;
    EXPECT_NEAR(v.norm / std::sqrt(norm2), 1, 1e-5) << codec;
  }
}

TEST(Aggregator, RotatedSumEqualsTheSumOfTheDecoded) {
  const std::string codec = "eden:bits=2,code=entropy,dither=shared";
  AggregatorOptions rotated;
  rotated.sum_rotated = true;
  rotated.codec = Codec::parse(codec);
  const std::vector<float> a = clean_sum(codec, rotated), b = clean_sum(codec);
  for (size_t i = 0; i < kDim; ++i) ASSERT_NEAR(a[i], b[i], 1e-4f * (1 + std::fabs(b[i]))) << i;
  Server s(rotated);
  EXPECT_EQ(s.add(0, message_of(vector_of(0), ids_of(0), codec + ",block=512"), "not compressed by"), Refusal::kOtherCodec);
  EXPECT_EQ(s.add(1, message_of(vector_of(1), ids_of(1), codec)), Refusal::kNone);
}

TEST(Aggregator, AuthenticationCodesAreChecked) {
  const auto mac = [](uint8_t key) {
    return [key](std::span<const uint8_t> message) {
      Bytes keyed(message.begin(), message.end());
      keyed.push_back(key);
      const Sha256Digest digest = sha256(keyed);
      std::array<uint8_t, 16> code;
      std::copy_n(digest.begin(), 16, code.begin());
      return code;
    };
  };
  AggregatorOptions options;
  options.mac = mac(1);
  Server s(options);
  Bytes message = message_of(vector_of(0), ids_of(0));
  EXPECT_EQ(s.add(0, message, "has no authentication code"), Refusal::kForged);
  EXPECT_KPD_ERROR(kMismatch, "no MAC field", authenticate(message, mac(1)));
  message = message_of(vector_of(0), ids_of(0), "eden:bits=2", "x", true);
  EXPECT_EQ(s.add(0, message, "authentication"), Refusal::kForged);
  authenticate(message, mac(2));
  EXPECT_EQ(s.add(0, message), Refusal::kForged);
  authenticate(message, mac(1));
  EXPECT_EQ(s.add(0, message), Refusal::kNone);
  Bytes changed = message_of(vector_of(1), ids_of(1), "eden:bits=2", "x", true);
  authenticate(changed, mac(1));
  store_u64(changed.data() + 64, 100);  // the weight
  reseal(changed);
  EXPECT_EQ(s.add(1, changed), Refusal::kForged);
  EXPECT_TRUE(s.aggregator.finish_round());
  EXPECT_EQ(s.aggregator.report().accepted, 1u);
}

// Five clients over an engine: right, silent, gone, garbage, and one whose message of the last round comes first and whose
// right one comes twice.
TEST(Collect, GoesOnWithoutThoseThatFail) {
  auto group = comm::make_inprocess_group(6);
  constexpr uint32_t kTag = 9;
  group[1]->send(0, kTag, message_of(vector_of(0), ids_of(0)));
  group[3].reset();
  group[4]->send(0, kTag, Bytes(5000, 1));
  MessageIds late = ids_of(1, 3);
  late.round = 3;
  group[5]->send(0, kTag, message_of(vector_of(7), late));
  group[5]->send(0, kTag, message_of(vector_of(1), ids_of(1, 3)));
  group[5]->send(0, kTag, message_of(vector_of(1), ids_of(1, 3)));
  Server s;
  const std::vector<Sender> senders = {{1, 0, kTag}, {2, 20, kTag}, {3, 30, kTag}, {4, 40, kTag}, {5, 1, kTag}};
  const std::vector<Verdict> verdicts = collect_updates(*group[0], senders, comm::Milliseconds(100), s.aggregator);
  const std::vector<Refusal> want = {Refusal::kNone, Refusal::kSilent, Refusal::kLost, Refusal::kDamaged, Refusal::kNone};
  for (size_t i = 0; i < want.size(); ++i) EXPECT_EQ(verdicts[i].refusal, want[i]) << i << " " << verdicts[i].reason;
  EXPECT_EQ(verdicts[1].reason, "rank 2 sent nothing in time");
  EXPECT_EQ(verdicts[2].reason, "rank 3 is gone");
  EXPECT_TRUE(s.aggregator.finish_round());
  EXPECT_EQ(s.sum, clean_sum());
  const RoundReport& r = s.aggregator.report();
  EXPECT_EQ(r.refused[static_cast<size_t>(Refusal::kOtherRound)], 1u);
  EXPECT_EQ(r.refused[static_cast<size_t>(Refusal::kTwice)], 1u);
  EXPECT_EQ(r.refusals(), 5u);
}

// An engine of one peer that sends one message for ever.
class EndlessPeer final : public comm::Exchange {
 public:
  explicit EndlessPeer(Bytes message) : message_(std::move(message)) {}
  std::string_view engine() const override { return "endless"; }
  int rank() const override { return 0; }
  int size() const override { return 2; }
  void send(int, uint32_t, Bytes) override {}
  comm::Delivery receive(int, uint32_t, Bytes& bytes, comm::Milliseconds) override {
    bytes = message_;
    return comm::Delivery::kReceived;
  }
  bool lost(int) const override { return false; }
  bool flush(comm::Milliseconds) override { return true; }
  comm::Traffic traffic() const override { return {}; }

 private:
  Bytes message_;
};

TEST(Collect, ASenderWithoutEndDoesNotKeepTheRoundOpen) {
  const Bytes good = message_of(std::vector<float>(64, 1.0f), ids_of(0));
  MessageIds late = ids_of(0);
  late.round = 3;
  for (const Bytes& message : {message_of(std::vector<float>(64, 1.0f), late), good}) {
    EndlessPeer engine(message);
    Aggregator aggregator(one_tensor(64), RunSecret::from_seed(2));
    std::vector<float> sum(64);
    const std::span<float> to(sum);
    aggregator.begin_round(kRound, {&to, 1});
    const Sender sender{1, 0, 9, 1};
    const std::vector<Verdict> verdicts = collect_updates(engine, {&sender, 1}, comm::Milliseconds(10), aggregator);
    EXPECT_EQ(verdicts[0].refusal, message == good ? Refusal::kNone : Refusal::kOtherRound);
  }
}

// An engine of one peer whose first message comes when its time is over, or is followed by another.
class OnePeer final : public comm::Exchange {
 public:
  explicit OnePeer(std::vector<std::optional<Bytes>> script) : script_(std::move(script)) {}
  std::string_view engine() const override { return "script"; }
  int rank() const override { return 0; }
  int size() const override { return 2; }
  void send(int, uint32_t, Bytes) override {}
  comm::Delivery receive(int, uint32_t, Bytes& bytes, comm::Milliseconds) override {
    if (at_ == script_.size()) return comm::Delivery::kTimedOut;
    const std::optional<Bytes>& next = script_[at_++];
    if (!next) return comm::Delivery::kTimedOut;
    bytes = *next;
    return comm::Delivery::kReceived;
  }
  bool lost(int) const override { return false; }
  bool flush(comm::Milliseconds) override { return true; }
  comm::Traffic traffic() const override { return {}; }

 private:
  const std::vector<std::optional<Bytes>> script_;
  size_t at_ = 0;
};

TEST(Collect, AVerdictStandsWhateverComesAfterIt) {
  const Bytes right = message_of(vector_of(0), ids_of(0));
  const auto collect = [&](std::vector<std::optional<Bytes>> script, Refusal refusal, uint64_t refusals) {
    OnePeer exchange(std::move(script));
    Server s;
    const std::vector<Sender> senders = {{1, 0, 9}};
    const std::vector<Verdict> verdicts = collect_updates(exchange, senders, comm::Milliseconds(1), s.aggregator);
    EXPECT_EQ(verdicts.at(0).refusal, refusal) << verdicts.at(0).reason;
    EXPECT_EQ(s.aggregator.report().refusals(), refusals);
    EXPECT_EQ(s.aggregator.finish_round(), refusal == Refusal::kNone);
  };
  collect({right}, Refusal::kNone, 0);
  collect({std::nullopt, right}, Refusal::kSilent, 1);       // late
  collect({Bytes(50, 1), right}, Refusal::kDamaged, 2);      // a second try
  collect({right, std::nullopt, right}, Refusal::kNone, 0);  // after the round: nobody asks
}

TEST(Collect, AStopEndsTheWait) {
  auto group = comm::make_inprocess_group(2);
  Server s;
  int asked = 0;
  const std::vector<Sender> senders = {{1, 0, 9}};
  const std::vector<Verdict> verdicts =
      collect_updates(*group[0], senders, comm::Milliseconds(1u << 30), s.aggregator, {.stopped = [&] { return ++asked > 2; }});
  EXPECT_EQ(verdicts.at(0).refusal, Refusal::kSilent);
}

TEST(Aggregator, WhatTheCallerGetsWrongIsSaid) {
  AggregatorOptions rotated;
  rotated.sum_rotated = true;
  EXPECT_KPD_ERROR(kInvalidArgument, "needs the codec", Aggregator(one_tensor(kDim), RunSecret::from_seed(2), rotated));
  Server s;
  EXPECT_FALSE(s.aggregator.finish_round());
  EXPECT_KPD_ERROR(kInvalidArgument, "outside a round", s.aggregator.finish_round());
  const std::span<float> shorter = std::span(s.sum).first(kDim - 1);
  EXPECT_KPD_ERROR(kInvalidArgument, "19999 floats", s.aggregator.begin_round(kRound, {&shorter, 1}));
}

TEST(Aggregator, ARoundThatWasGivenUpIsForgotten) {
  const std::string codec = "eden:bits=2,code=entropy,dither=shared";
  AggregatorOptions options;
  options.sum_rotated = true;
  options.codec = Codec::parse(codec);
  Server s(options);
  MessageIds next = ids_of(0);
  ++next.round;
  {
    auto gone = std::make_unique<std::vector<float>>(kDim);
    const std::span<float> sum(*gone);
    s.aggregator.begin_round(next, {&sum, 1});
    EXPECT_EQ(s.add(0, message_of(vector_of(0), next, codec)), Refusal::kNone);
  }
  s.aggregator.begin_round(kRound, s.spans());
  EXPECT_EQ(s.add(0, message_of(vector_of(0), ids_of(0), codec)), Refusal::kNone);
  EXPECT_EQ(s.add(1, message_of(vector_of(1), ids_of(1, 3), codec)), Refusal::kNone);
  EXPECT_TRUE(s.aggregator.finish_round());
  EXPECT_EQ(s.sum, clean_sum(codec, options));
}

TEST(Aggregator, WeightsDoNotWrap) {
  AggregatorOptions options;
  options.max_weight = ~uint64_t{0};
  Server s(options);
  EXPECT_EQ(s.add(0, message_of(vector_of(0), ids_of(0, ~uint64_t{0}))), Refusal::kNone);
  EXPECT_EQ(s.add(1, message_of(vector_of(1), ids_of(1, 1)), "leaves 64 bits"), Refusal::kWeight);
}

}  // namespace
}  // namespace kpd::gradient
