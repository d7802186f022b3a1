// tests: the C interface: what it does is what the C++ one does, bit for bit; every function's errors come back as a code and a
// sentence. (Encoder, decoder and peek alone: streaming_test.cc.)
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <string>

#include "base/expect_error.h"
#include "gradient/round_trip.h"
#include "kpd/base/dtype.h"
#include "kpd/base/error.h"
#include "kpd/gradient/aggregator.h"
#include "kpd/gradient/decoder.h"
#include "kpd/gradient/kpd_gradient.h"
#include "kpd/gradient/packets.h"

namespace kpd::gradient {
namespace {

using namespace testing;

constexpr uint64_t kCounts[] = {9000, 300, 5};
constexpr size_t kTensors = 3;
constexpr uint8_t kSecret[32] = {4, 5, 6};
constexpr kpd_message_ids kIds = {1, 2, 3, 4, 5};

class CApi : public ::testing::Test {
 protected:
  void SetUp() override {
    for (size_t i = 0; i < kTensors; ++i) {
      x_.push_back(normal_vector(kCounts[i], 10 + i));
      out_.emplace_back(kCounts[i]);
    }
    for (size_t i = 0; i < kTensors; ++i) {
      pointers_[i] = x_[i].data();
      out_pointers_[i] = out_[i].data();
    }
    ok(kpd_encoder_new("eden:bits=2", kCounts, kTensors, kSecret, 1, &encoder_, error_, sizeof error_));
    ok(kpd_decoder_new(kCounts, kTensors, kSecret, 1, &decoder_, error_, sizeof error_));
    message_.resize(kpd_encoder_max_bytes(encoder_));
    message_.resize(encode(kIds));
  }
  void TearDown() override {
    kpd_encoder_free(encoder_);
    kpd_decoder_free(decoder_);
  }

  void ok(int code) { ASSERT_EQ(code, 0) << error_; }
  void fails(int code, int expected, const std::string& part) {
    EXPECT_EQ(code, expected) << error_;
    EXPECT_NE(std::string(error_).find(part), std::string::npos) << error_;
    error_[0] = '\0';
  }
  uint64_t encode(const kpd_message_ids& ids) {
    uint64_t written = 0;
    message_.resize(kpd_encoder_max_bytes(encoder_));
    ok(kpd_encode(encoder_, pointers_, &ids, message_.data(), message_.size(), &written, nullptr, error_, sizeof error_));
    return written;
  }
  std::vector<std::vector<float>> decoded() {
    std::vector<std::vector<float>> result = out_;
    float* to[kTensors];
    for (size_t i = 0; i < kTensors; ++i) to[i] = result[i].data();
    ok(kpd_decode(decoder_, message_.data(), message_.size(), &kIds, to, error_, sizeof error_));
    return result;
  }

  std::vector<std::vector<float>> x_, out_;
  const float* pointers_[kTensors];
  float* out_pointers_[kTensors];
  kpd_encoder* encoder_ = nullptr;
  kpd_decoder* decoder_ = nullptr;
  std::vector<uint8_t> message_;
  char error_[300] = "";
};

TEST_F(CApi, EncodesBfloat16AndFloat16) {
  std::vector<uint16_t> half(kCounts[0]), brain(kCounts[1]);
  for (size_t i = 0; i < half.size(); ++i) half[i] = float_to_fp16(x_[0][i]);
  for (size_t i = 0; i < brain.size(); ++i) brain[i] = float_to_bf16(x_[1][i]);
  for (size_t i = 0; i < half.size(); ++i) x_[0][i] = fp16_to_float(half[i]);
  for (size_t i = 0; i < brain.size(); ++i) x_[1][i] = bf16_to_float(brain[i]);
  const uint64_t bytes = encode(kIds);
  const void* tensors[] = {half.data(), brain.data(), x_[2].data()};
  const int types[] = {KPD_FLOAT16, KPD_BFLOAT16, KPD_FLOAT32};
  std::vector<uint8_t> typed(message_.size());
  uint64_t written = 0;
  double vnmse = 0;
  ok(kpd_encode_typed(encoder_, tensors, types, &kIds, typed.data(), typed.size(), &written, &vnmse, error_, sizeof error_));
  EXPECT_EQ(written, bytes);
  EXPECT_TRUE(std::equal(typed.begin(), typed.begin() + static_cast<ptrdiff_t>(bytes), message_.begin()));
  EXPECT_NEAR(vnmse, .1332, .02);  // 2 bits
  const int wrong[] = {KPD_FLOAT16, 3, KPD_FLOAT32};
  fails(kpd_encode_typed(encoder_, tensors, wrong, &kIds, typed.data(), typed.size(), &written, nullptr, error_, sizeof error_),
        1, "element type 3");
  fails(
      kpd_encode_typed(encoder_, tensors, nullptr, &kIds, typed.data(), typed.size(), &written, nullptr, error_, sizeof error_),
      1, "must not be NULL");
}

TEST_F(CApi, AddsIntoBfloat16) {
  std::vector<std::vector<uint16_t>> acc;
  uint16_t* pointers[kTensors];
  for (size_t i = 0; i < kTensors; ++i) acc.emplace_back(kCounts[i], float_to_bf16(.75f));
  for (size_t i = 0; i < kTensors; ++i) pointers[i] = acc[i].data();
  ok(kpd_decode_add_bf16(decoder_, message_.data(), message_.size(), &kIds, -1.5f, pointers, error_, sizeof error_));
  const std::vector<std::vector<float>> expected = decoded();
  for (size_t i = 0; i < kTensors; ++i) {
    for (size_t k = 0; k < kCounts[i]; ++k) ASSERT_EQ(acc[i][k], float_to_bf16(.75f + -1.5f * expected[i][k])) << i << " " << k;
  }
  fails(kpd_decode_add_bf16(decoder_, message_.data(), message_.size(), &kIds, NAN, pointers, error_, sizeof error_), 1,
        "finite");
  fails(kpd_decode_add_bf16(decoder_, message_.data(), 20, &kIds, 1, pointers, error_, sizeof error_), 2, "byte");
  pointers[1] = nullptr;
  fails(kpd_decode_add_bf16(decoder_, message_.data(), message_.size(), &kIds, 1, pointers, error_, sizeof error_), 1,
        "must not be NULL");
}

// The largest float rounds up beyond the bfloat16 range; an accumulator stays within.
TEST(Bfloat16Sum, StaysFinite) {
  const std::vector<float> x(70, 3.4e38f);
  Encoder encoder(one_tensor(70), Codec::parse("float32"), RunSecret::from_seed(1));
  std::vector<uint8_t> message(encoder.max_bytes());
  const TensorView view{std::span<const float>(x)};
  message.resize(encoder.encode_message({&view, 1}, {}, message));
  Decoder decoder(one_tensor(70), RunSecret::from_seed(1));
  std::vector<uint16_t> acc(70);
  const BFloat16Span span{acc.data(), acc.size()};
  for (const float weight : {1.0f, 5.0f}) {
    decoder.decode_add(message, {}, weight, std::span(&span, 1));
    for (const uint16_t v : acc) ASSERT_EQ(v, 0x7f7f);
  }
  decoder.decode_add(message, {}, -9.0f, std::span(&span, 1));
  for (const uint16_t v : acc) ASSERT_EQ(v, 0xff7f);
  const BFloat16Span wrong{acc.data(), 69};
  EXPECT_KPD_ERROR(kInvalidArgument, "has 69 elements, expected 70",
                   decoder.decode_add(message, {}, 1.0f, std::span(&wrong, 1)));
  EXPECT_KPD_ERROR(kInvalidArgument, "0 destinations", decoder.decode_add(message, {}, 1.0f, std::span<const BFloat16Span>()));
}

TEST_F(CApi, StreamsBothWays) {
  std::vector<uint8_t> chunk(kpd_stream_max_chunk_bytes(encoder_));
  kpd_stream_decoder* decoder = nullptr;
  ok(kpd_stream_decoder_new(kCounts, kTensors, kSecret, &decoder, error_, sizeof error_));
  EXPECT_EQ(kpd_stream_decoder_done(decoder), 0);
  fails(kpd_stream_decoder_feed(decoder, message_.data(), 10, error_, sizeof error_), 1, "no message was begun");
  ok(kpd_stream_decoder_begin(decoder, &kIds, 1.0f, out_pointers_, error_, sizeof error_));
  const void* tensors[] = {x_[0].data(), x_[1].data(), x_[2].data()};
  ok(kpd_stream_begin(encoder_, tensors, nullptr, &kIds, error_, sizeof error_));
  uint64_t written = 0;
  do {
    ok(kpd_stream_next(encoder_, chunk.data(), chunk.size(), &written, error_, sizeof error_));
    ok(kpd_stream_decoder_feed(decoder, chunk.data(), written, error_, sizeof error_));
  } while (written > 0);
  EXPECT_EQ(kpd_stream_decoder_done(decoder), 1);
  EXPECT_EQ(out_, decoded());
  fails(kpd_stream_decoder_feed(decoder, chunk.data(), 1, error_, sizeof error_), 2, "after the message's end");
  const kpd_message_ids stale = {1, 7, 3, 4, 5};
  ok(kpd_stream_decoder_begin(decoder, &stale, 1.0f, out_pointers_, error_, sizeof error_));
  fails(kpd_stream_decoder_feed(decoder, message_.data(), message_.size(), error_, sizeof error_), 6, "round 2, expected 7");
  // Encoding something else gives a stream up.
  ok(kpd_stream_begin(encoder_, tensors, nullptr, &kIds, error_, sizeof error_));
  message_.resize(encode(kIds));
  fails(kpd_stream_next(encoder_, chunk.data(), chunk.size(), &written, error_, sizeof error_), 1, "given up");
  fails(kpd_stream_begin(nullptr, tensors, nullptr, &kIds, error_, sizeof error_), 1, "must not be NULL");
  kpd_stream_decoder_free(decoder);
  kpd_stream_decoder_free(nullptr);
  EXPECT_EQ(kpd_stream_decoder_done(nullptr), 0);
  EXPECT_EQ(kpd_stream_max_chunk_bytes(nullptr), 0u);
}

class CPackets : public CApi {
 protected:
  void SetUp() override {
    CApi::SetUp();
    ok(kpd_packetize(kCounts, kTensors, kSecret, message_.data(), message_.size(), 64, &packets_, error_, sizeof error_));
    ok(kpd_packet_decoder_new(kCounts, kTensors, kSecret, 1, &packet_decoder_, error_, sizeof error_));
    control_ = kpd_packets_control(packets_, &control_bytes_);
    for (uint64_t i = 0; i < kpd_packets_count(packets_); ++i) {
      uint64_t bytes = 0;
      data_.push_back(kpd_packets_packet(packets_, i, &bytes));
      sizes_.push_back(bytes);
    }
  }
  void TearDown() override {
    kpd_packets_free(packets_);
    kpd_packet_decoder_free(packet_decoder_);
    CApi::TearDown();
  }
  int add(size_t n, kpd_packet_report* report) {
    return kpd_packet_decode_add(packet_decoder_, control_, control_bytes_, data_.data(), sizes_.data(), n, &kIds, 1.0f,
                                 out_pointers_, report, error_, sizeof error_);
  }
  kpd_packets* packets_ = nullptr;
  kpd_packet_decoder* packet_decoder_ = nullptr;
  const uint8_t* control_ = nullptr;
  uint64_t control_bytes_ = 0;
  std::vector<const uint8_t*> data_;
  std::vector<uint64_t> sizes_;
};

TEST_F(CPackets, AllOfThemAreTheMessage) {
  ASSERT_GT(data_.size(), 30u);
  kpd_packet_report report = {};
  ok(add(data_.size(), &report));
  EXPECT_EQ(out_, decoded());
  EXPECT_EQ(report.expected, data_.size());
  EXPECT_EQ(report.received, data_.size());
  EXPECT_EQ(report.damaged + report.foreign + report.duplicate + report.groups_lost, 0u);
  EXPECT_EQ(report.lost, 0);
  EXPECT_EQ(report.groups, 2u);
}

TEST_F(CPackets, LossIsReported) {
  kpd_packet_report report = {};
  ok(add(0, &report));
  EXPECT_EQ(report.lost, 1);
  EXPECT_EQ(out_[0], std::vector<float>(kCounts[0]));
  data_.insert(data_.begin() + 10, data_[3]);
  sizes_.insert(sizes_.begin() + 10, sizes_[3]);
  ok(add(11, &report));
  EXPECT_EQ(report.received, 10u);
  EXPECT_EQ(report.duplicate, 1u);
  EXPECT_EQ(report.groups_lost, 0u);
  EXPECT_EQ(kpd_packet_lost_group(packet_decoder_, 0, nullptr, nullptr, nullptr), 1);
  // 64 elements at .1 bit have six codes, in six of 40 packets.
  const uint64_t counts[] = {200000, 64};
  const std::vector<float> big = normal_vector(200000, 1), small = normal_vector(64, 2);
  const float* tensors[] = {big.data(), small.data()};
  kpd_encoder* encoder = nullptr;
  kpd_packets* packets = nullptr;
  kpd_packet_decoder* decoder = nullptr;
  ok(kpd_encoder_new("eden:bits=0.1", counts, 2, kSecret, 1, &encoder, error_, sizeof error_));
  std::vector<uint8_t> message(kpd_encoder_max_bytes(encoder));
  uint64_t written = 0;
  ok(kpd_encode(encoder, tensors, &kIds, message.data(), message.size(), &written, nullptr, error_, sizeof error_));
  ok(kpd_packetize(counts, 2, kSecret, message.data(), written, 64, &packets, error_, sizeof error_));
  ok(kpd_packet_decoder_new(counts, 2, kSecret, 1, &decoder, error_, sizeof error_));
  ASSERT_EQ(kpd_packets_count(packets), 40u);
  std::vector<float> out_big(200000), out_small(64);
  float* const out[] = {out_big.data(), out_small.data()};
  uint64_t named = 0, control_bytes = 0, bytes = 0;
  const uint8_t* const control = kpd_packets_control(packets, &control_bytes);
  for (uint64_t i = 0; i < 40; ++i) {
    const uint8_t* const one = kpd_packets_packet(packets, i, &bytes);
    ok(kpd_packet_decode_add(decoder, control, control_bytes, &one, &bytes, 1, &kIds, 1, out, &report, error_, sizeof error_));
    ASSERT_LE(report.groups_lost, 1u);
    if (report.groups_lost == 0) continue;
    uint64_t tensor = 0, first = 0, elements = 0;
    ok(kpd_packet_lost_group(decoder, 0, &tensor, &first, &elements));
    EXPECT_EQ(tensor, 1u);
    EXPECT_EQ(first, 0u);
    EXPECT_EQ(elements, 64u);
    ++named;
  }
  EXPECT_EQ(named, 34u);
  kpd_encoder_free(encoder);
  kpd_packets_free(packets);
  kpd_packet_decoder_free(decoder);
}

TEST_F(CPackets, Errors) {
  kpd_packets* packets = nullptr;
  kpd_packet_report report = {};
  fails(kpd_packetize(kCounts, kTensors, kSecret, message_.data(), message_.size(), 63, &packets, error_, sizeof error_), 1,
        "packets of 63 bytes");
  fails(kpd_packetize(kCounts, kTensors, kSecret, message_.data(), 50, 0, &packets, error_, sizeof error_), 2, "byte");
  fails(kpd_packetize(kCounts, 2, kSecret, message_.data(), message_.size(), 0, &packets, error_, sizeof error_), 6,
        "another model");
  fails(kpd_packetize(kCounts, kTensors, nullptr, message_.data(), message_.size(), 0, &packets, error_, sizeof error_), 1,
        "NULL");
  EXPECT_EQ(packets, nullptr);
  --control_bytes_;
  fails(add(data_.size(), &report), 2, "byte");
  ++control_bytes_;
  fails(add(data_.size(), nullptr), 1, "NULL");
  data_[2] = nullptr;
  fails(add(data_.size(), &report), 1, "a packet");
  EXPECT_EQ(kpd_packets_packet(packets_, data_.size(), nullptr), nullptr);
  EXPECT_EQ(kpd_packets_count(nullptr), 0u);
  EXPECT_EQ(kpd_packets_control(nullptr, nullptr), nullptr);
  EXPECT_EQ(kpd_packet_lost_group(nullptr, 0, nullptr, nullptr, nullptr), 1);
  fails(kpd_packet_decoder_new(kCounts, kTensors, nullptr, 1, &packet_decoder_, error_, sizeof error_), 1, "NULL");
}

void xor_code(void* context, const uint8_t* message, uint64_t bytes, uint8_t code[16]) {
  for (uint64_t i = 0; i < bytes; ++i)
    code[i % 16] = static_cast<uint8_t>(code[i % 16] * 31 + (message[i] ^ *static_cast<uint8_t*>(context)));
}

class CAggregator : public CApi {
 protected:
  void make(const kpd_aggregator_options* options) {
    ok(kpd_aggregator_new(kCounts, kTensors, kSecret, options, &aggregator_, error_, sizeof error_));
    ok(kpd_aggregator_begin_round(aggregator_, &kIds, out_pointers_, error_, sizeof error_));
  }
  void TearDown() override {
    kpd_aggregator_free(aggregator_);
    CApi::TearDown();
  }
  kpd_verdict add(uint64_t client) {
    kpd_verdict verdict = {};
    ok(kpd_aggregator_add(aggregator_, client, message_.data(), message_.size(), &verdict, error_, sizeof error_));
    return verdict;
  }
  kpd_aggregator* aggregator_ = nullptr;
};

TEST_F(CAggregator, RoundIsThatOfTheAggregator) {
  const kpd_aggregator_options options = {.threads = 2,
                                          .sum_rotated = 0,
                                          .max_weight = 100,
                                          .max_norm = 1e6,
                                          .codec = "eden:bits=2",
                                          .mac = nullptr,
                                          .mac_context = nullptr};
  make(&options);
  Manifest manifest;
  std::vector<std::vector<float>> sum = out_;
  std::vector<std::span<float>> spans(sum.begin(), sum.end());
  for (size_t i = 0; i < kTensors; ++i) manifest.push_back({std::to_string(i), DType::kFloat32, {kCounts[i]}});
  RunSecret secret;
  std::copy(std::begin(kSecret), std::end(kSecret), secret.bytes.begin());
  Aggregator expected(manifest, secret, {.max_weight = 100});
  expected.begin_round({1, 2, 0, 4, 0}, spans);
  for (uint64_t client = 0; client < 3; ++client) {
    message_.resize(encode({1, 2, client, 4, 1 + client}));
    const kpd_verdict verdict = add(client);
    const Verdict wanted = expected.add(client, message_);
    EXPECT_EQ(verdict.refusal, KPD_ACCEPTED) << error_;
    EXPECT_EQ(verdict.norm, wanted.norm);
    EXPECT_EQ(verdict.weight, 1 + client);
    EXPECT_EQ(verdict.bytes, message_.size());
  }
  int has_mean = 0;
  ok(kpd_aggregator_finish_round(aggregator_, &has_mean, error_, sizeof error_));
  EXPECT_EQ(has_mean, 1);
  expected.finish_round();
  EXPECT_EQ(out_, sum);
  kpd_round_report report = {};
  kpd_aggregator_report(aggregator_, &report);
  EXPECT_EQ(report.accepted, 3u);
  EXPECT_EQ(report.total_weight, 6u);
  EXPECT_EQ(std::accumulate(std::begin(report.refused), std::end(report.refused), uint64_t{0}), 0u);
}

TEST_F(CAggregator, RefusalsAreVerdicts) {
  const kpd_aggregator_options options = {.threads = 0,
                                          .sum_rotated = 0,
                                          .max_weight = 7,
                                          .max_norm = 1000,
                                          .codec = "eden:bits=1",
                                          .mac = nullptr,
                                          .mac_context = nullptr};
  make(&options);
  EXPECT_EQ(add(3).refusal, KPD_REFUSED_OTHER_CODEC);
  EXPECT_NE(std::string(error_).find("is not compressed by eden:bits=1"), std::string::npos) << error_;
  EXPECT_EQ(add(4).refusal, KPD_REFUSED_OTHER_CLIENT);
  message_[200] ^= 1;
  EXPECT_EQ(add(3).refusal, KPD_REFUSED_DAMAGED);
  message_.resize(encode({1, 2, 3, 4, 8}));
  EXPECT_EQ(add(3).refusal, KPD_REFUSED_WEIGHT);
  message_.resize(encode({1, 1, 3, 4, 5}));
  EXPECT_EQ(add(3).refusal, KPD_REFUSED_OTHER_ROUND);
  ok(kpd_aggregator_refuse(aggregator_, KPD_REFUSED_LOST, error_, sizeof error_));
  fails(kpd_aggregator_refuse(aggregator_, 0, error_, sizeof error_), 1, "refusal 0");
  fails(kpd_aggregator_refuse(aggregator_, KPD_REFUSALS, error_, sizeof error_), 1, "refusal 13");
  kpd_round_report report = {};
  kpd_aggregator_report(aggregator_, &report);
  EXPECT_EQ(report.refused[KPD_REFUSED_LOST], 1u);
  EXPECT_EQ(report.accepted, 0u);
  int has_mean = 7;
  ok(kpd_aggregator_finish_round(aggregator_, &has_mean, error_, sizeof error_));
  EXPECT_EQ(has_mean, 0);
  fails(kpd_aggregator_finish_round(aggregator_, &has_mean, error_, sizeof error_), 1, "outside a round");
  kpd_verdict verdict = {};
  fails(kpd_aggregator_add(aggregator_, 3, message_.data(), message_.size(), &verdict, error_, sizeof error_), 1,
        "outside a round");
  EXPECT_STREQ(kpd_refusal_name(KPD_REFUSED_LOST), "lost");
  EXPECT_STREQ(kpd_refusal_name(KPD_REFUSALS), "");
}

TEST_F(CAggregator, MessagesAreAuthenticated) {
  uint8_t key = 77;
  kpd_aggregator_options options = {};
  options.mac = xor_code;
  options.mac_context = &key;
  options.max_weight = 5;
  make(&options);
  EXPECT_EQ(add(3).refusal, KPD_REFUSED_FORGED);
  fails(kpd_authenticate(message_.data(), message_.size(), xor_code, &key, error_, sizeof error_), 6, "no MAC field");
  kpd_encoder_free(encoder_);
  ok(kpd_encoder_new_authenticated("eden:bits=2", kCounts, kTensors, kSecret, 1, &encoder_, error_, sizeof error_));
  message_.resize(encode(kIds));
  EXPECT_EQ(add(3).refusal, KPD_REFUSED_FORGED);
  ok(kpd_authenticate(message_.data(), message_.size(), xor_code, &key, error_, sizeof error_));
  EXPECT_EQ(add(3).refusal, KPD_ACCEPTED) << error_;
  fails(kpd_authenticate(message_.data(), message_.size(), nullptr, &key, error_, sizeof error_), 1, "NULL");
}

TEST_F(CAggregator, WrongOptionsAreErrors) {
  kpd_aggregator_options options = {};
  options.codec = "edn";
  fails(kpd_aggregator_new(kCounts, kTensors, kSecret, &options, &aggregator_, error_, sizeof error_), 1, "edn");
  options.codec = nullptr;
  options.sum_rotated = 1;
  fails(kpd_aggregator_new(kCounts, kTensors, kSecret, &options, &aggregator_, error_, sizeof error_), 1, "sum_rotated");
  fails(kpd_aggregator_new(kCounts, kTensors, nullptr, nullptr, &aggregator_, error_, sizeof error_), 1, "NULL");
  fails(kpd_aggregator_begin_round(nullptr, &kIds, out_pointers_, error_, sizeof error_), 1, "NULL");
  fails(kpd_aggregator_finish_round(nullptr, nullptr, error_, sizeof error_), 1, "NULL");
  fails(kpd_encoder_new_authenticated("eden", kCounts, kTensors, nullptr, 1, &encoder_, error_, sizeof error_), 1, "NULL");
  kpd_round_report report = {};
  kpd_aggregator_report(nullptr, &report);
  EXPECT_EQ(report.accepted, 0u);
  make(nullptr);
}

}  // namespace
}  // namespace kpd::gradient
