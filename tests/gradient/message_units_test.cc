// tests: units of a message: what is joined, what travels as it is, which tensor has which codec, what a block of zeros costs,
// and what a stream costs beside its codes.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cfloat>
#include <cstring>
#include <limits>

#include "base/counted_new.h"
#include "base/expect_error.h"
#include "gradient/baselines.h"
#include "gradient/round_trip.h"
#include "gradient/stream_format.h"
#include "kpd/gradient/message.h"
#include "kpd/gradient/stream_info.h"
#include "kpd/gradient/file_decoder.h"
#include "kpd/gradient/decoder.h"
#include "kpd/gradient/packets.h"
#include "kpd/gradient/streaming.h"

namespace kpd::gradient {
namespace {

using namespace testing;

constexpr MessageIds kIds{1, 2, 3, 4, 5};
const RunSecret kSecret = RunSecret::from_seed(9);

struct Model {
  Manifest manifest;
  std::vector<std::vector<float>> data;
  void add(const std::string& name, uint64_t n) {
    manifest.push_back({name, DType::kFloat32, {n}});
    data.push_back(normal_vector(n, data.size() + 1));
  }
  std::vector<TensorView> views() const {
    std::vector<TensorView> v;
    for (const std::vector<float>& d : data) v.emplace_back(std::span<const float>(d));
    return v;
  }
};

Model model_of(std::initializer_list<uint64_t> counts) {
  Model m;
  for (const uint64_t n : counts) m.add(str("t", m.data.size()), n);
  return m;
}

std::vector<uint8_t> message_of(const Model& m, const CodecPolicy& policy, EncodeReport* report = nullptr) {
  Encoder e(m.manifest, policy, kSecret);
  std::vector<uint8_t> bytes(e.max_bytes());
  bytes.resize(e.encode_message(m.views(), kIds, bytes, report));
  return bytes;
}

std::vector<std::vector<float>> decode(const Model& m, std::span<const uint8_t> bytes, float weight = 1, float start = 0) {
  std::vector<std::vector<float>> out;
  std::vector<std::span<float>> spans;
  for (const TensorInfo& t : m.manifest) out.emplace_back(t.count(), start);
  for (std::vector<float>& v : out) spans.emplace_back(v);
  Decoder d(m.manifest, kSecret, {2, {}});
  d.decode_add(bytes, kIds, weight, spans);
  return out;
}

double bits_of(const Model& m, const std::vector<uint8_t>& bytes) {
  uint64_t n = 0;
  for (const TensorInfo& t : m.manifest) n += t.count();
  return 8.0 * static_cast<double>(bytes.size()) / static_cast<double>(n);
}

// One block's scale word in 4096 is .0078 bit, the frame of a message 100 bytes.
TEST(Units, OneTensorCostsItsRate) {
  const Model m = model_of({65536});
  for (const int bits : {1, 2, 4}) EXPECT_LE(bits_of(m, message_of(m, Codec::parse(str("eden:bits=", bits)))), bits + .0205);
}

TEST(Units, ManySmallTensorsCostTheirRate) {
  Model m;
  for (int i = 0; i < 200; ++i) m.add(str("t", i), 100);
  const std::vector<uint8_t> joined = message_of(m, Codec::parse("eden:bits=1"));
  EXPECT_LE(bits_of(m, joined), 1.1);
  EXPECT_GT(bits_of(m, message_of(m, Codec::parse("eden:bits=1,join=0"))), 1.3);
  const StreamInfo info = read_stream_info(joined, "message", {}, &m.manifest);
  ASSERT_EQ(info.units.size(), 1u);
  EXPECT_EQ(info.units[0].members, 200u);
  EXPECT_EQ(info.units[0].count, 20000u);
  EXPECT_EQ(info.units[0].params.rounds, 2);
  EXPECT_EQ(info.tensors[7].start, 700u);
}

// 64 to B - 1 elements join, in the place of the first of them; what is shorter or longer does not.
TEST(Units, WhatIsJoined) {
  const Model m = model_of({5000, 63, 64, 4096, 4095, 0, 1, 200, 4097});
  const std::vector<uint8_t> bytes = message_of(m, Codec::parse("eden:bits=2"));
  const StreamInfo info = read_stream_info(bytes, "message", {}, &m.manifest);
  std::vector<std::pair<size_t, size_t>> units;
  for (const UnitRecord& u : info.units) units.emplace_back(u.tensor, u.members);
  const std::vector<std::pair<size_t, size_t>> want = {{0, 1}, {1, 1}, {2, 3}, {3, 1}, {5, 1}, {6, 1}, {8, 1}};
  EXPECT_EQ(units, want);
  EXPECT_EQ(info.units[2].count, 64u + 4095 + 200);
  EXPECT_EQ(info.tensors[7].start, 64u + 4095);
  const std::vector<std::vector<float>> out = decode(m, bytes);
  EXPECT_EQ(out[1], m.data[1]);
  double error2 = 0, norm2 = 0;
  for (size_t i = 0; i < 4095; ++i) {
    error2 += std::pow(static_cast<double>(out[4][i]) - static_cast<double>(m.data[4][i]), 2);
    norm2 += std::pow(static_cast<double>(m.data[4][i]), 2);
  }
  EXPECT_NEAR(error2 / norm2, .133, .03);
}

// Every way through a message gives the same values: whole, in portions, in packets, as a file, one tensor alone; several
// threads.
TEST(Units, JoinedTensorsAreTheSameEveryWay) {
  Model m = model_of({100, 300, 63, 5000, 200});
  for (int i = 0; i < 300; ++i) m.add(str("more", i), 90 + static_cast<uint64_t>(i));  // more than a segment of 64 blocks
  for (const char* spec :
       {"eden:bits=2,block=512", "eden:bits=3,block=512,code=entropy", "drive:block=512", "hadamard-sq:bits=2,block=512",
        "kashin-sq:bits=2,block=512", "eden:bits=2,block=512,allocate=energy"}) {
    SCOPED_TRACE(spec);
    EncodeReport report;
    const std::vector<uint8_t> bytes = message_of(m, Codec::parse(spec), &report);
    const std::vector<std::vector<float>> whole = decode(m, bytes, .5f, 1.0f);
    double error2 = 0;
    for (size_t t = 0; t < whole.size(); ++t) {
      for (size_t i = 0; i < whole[t].size(); ++i) {
        const double x = static_cast<double>(m.data[t][i]), got = 2 * (static_cast<double>(whole[t][i]) - 1);
        error2 += (got - x) * (got - x);
      }
    }
    EXPECT_NEAR(error2, report.error2, 1e-3 * report.norm2);

    Encoder e(m.manifest, Codec::parse(spec), kSecret, {.threads = 3});
    std::vector<uint8_t> again(e.max_bytes());
    again.resize(e.encode_message(m.views(), kIds, again));
    EXPECT_EQ(again, bytes) << "threads";

    std::vector<std::vector<float>> out;
    std::vector<std::span<float>> spans;
    for (const auto& v : whole) out.emplace_back(v.size(), 1.0f);
    for (auto& v : out) spans.emplace_back(v);
    StreamDecoder in_portions(m.manifest, kSecret);
    std::vector<uint8_t> chunk(e.max_chunk_bytes());
    in_portions.begin(kIds, .5f, spans);
    e.begin_stream(m.views(), kIds);
    while (const uint64_t n = e.next_chunk(chunk)) in_portions.feed(std::span(chunk).first(n));
    EXPECT_TRUE(in_portions.done());
    EXPECT_EQ(out, whole) << "in portions";

    if (std::string_view(spec).starts_with("eden") && !std::string_view(spec).ends_with("energy")) {
      const PacketSet set = packetize(bytes, m.manifest, kSecret, 100);
      for (auto& v : out) std::fill(v.begin(), v.end(), 1.0f);
      PacketDecoder packets(m.manifest, kSecret);
      const std::vector<std::span<const uint8_t>> all(set.packets.begin(), set.packets.end());
      packets.decode_add(set.control, all, kIds, .5f, spans);
      EXPECT_EQ(out, whole) << "in packets";
    }

    std::vector<uint8_t> file(e.max_bytes());
    file.resize(e.encode_file(m.views(), 4, file));
    const StreamInfo info = read_stream_info(file);
    FileDecoder decoder(file, info);
    for (size_t i = m.data.size(); i-- > 0;) {
      std::vector<float> one(m.data[i].size()), alone(one.size());
      decoder.decode(i, one);
      decode_file_tensor(file, info, i, alone);
      EXPECT_EQ(one, alone) << i;
    }
  }
}

TEST(Units, ErrorsAreReportedByUnit) {
  const Model m = model_of({100, 5000, 200, 10});
  Encoder e(m.manifest, Codec::parse("eden:bits=2"), kSecret);
  std::vector<uint8_t> bytes(e.max_bytes());
  EncodeReport report;
  bytes.resize(e.encode_message(m.views(), kIds, bytes, &report));
  const std::span<const UnitReport> units = e.unit_reports();
  ASSERT_EQ(units.size(), 3u);
  EXPECT_EQ(units[0].members, 2u);
  EXPECT_EQ(units[0].elements, 300u);
  EXPECT_EQ(units[1].tensor, 1u);
  EXPECT_NEAR(units[1].vnmse(), .133, .02);
  EXPECT_EQ(units[2].bytes, 40u);
  EXPECT_EQ(units[2].error2, 0);
  double error2 = 0;
  uint64_t total = 0;
  for (const UnitReport& u : units) error2 += u.error2, total += u.bytes;
  EXPECT_DOUBLE_EQ(error2, report.error2);
  EXPECT_EQ(report.coded_bytes + report.raw_bytes, total);
  EXPECT_EQ(report.stream_bytes, total + kMessageHeaderBytes + 2 + kRecordBytes + 2 + kChecksumBytes);
}

TEST(Units, CodecsByName) {
  Model m;
  m.add("encoder.norm.weight", 200);
  m.add("encoder.linear.weight", 5000);
  m.add("encoder.norm.bias", 200);
  m.add("head.bias", 300);
  const std::string texts[] = {"*norm*=float32", "head.?i?s=eden:bits=4", "eden:bits=1"};
  const CodecPolicy policy = CodecPolicy::parse(texts);
  EXPECT_EQ(policy.of("x").text(), "eden:bits=1");
  EXPECT_EQ(policy.of("head.bias").text(), "eden:bits=4");
  EXPECT_EQ(policy.of("head.bia").text(), "eden:bits=1");
  EXPECT_EQ(policy.of("norm").text(), "float32");
  const std::vector<uint8_t> bytes = message_of(m, policy);
  const StreamInfo info = read_stream_info(bytes, "message", {}, &m.manifest);
  EXPECT_EQ(info.codecs.size(), 3u);
  EXPECT_EQ(info.runs.size(), 4u);
  const std::vector<std::vector<float>> out = decode(m, bytes);
  EXPECT_EQ(out[0], m.data[0]);
  EXPECT_EQ(out[2], m.data[2]);
  EXPECT_NE(out[1], m.data[1]);
  EXPECT_EQ(policy.text(), "*norm*=float32 head.?i?s=eden:bits=4 eden:bits=1");

  const auto parse = [](std::vector<std::string> list) { return CodecPolicy::parse(list); };
  EXPECT_EQ(parse({"a*b*=bf16"}).of("aXbYb").text(), "bf16");
  EXPECT_EQ(parse({"a*b*c=bf16"}).of("abcbc").text(), "bf16");
  EXPECT_EQ(parse({"a*b*c=bf16"}).of("abcb").text(), "float32") << "the fallback";
  EXPECT_KPD_ERROR(kInvalidArgument, "two codecs for the same tensors", parse({"eden", "drive"}));
  EXPECT_KPD_ERROR(kInvalidArgument, "the pattern is empty", parse({"=eden"}));
  EXPECT_KPD_ERROR(kInvalidArgument, "did you mean 'eden'", parse({"*=edn"}));
  // Errors are one line, whatever the text.
  EXPECT_KPD_ERROR(kInvalidArgument, "codec '=a?b': expected", parse({"=a\nb"}));
  EXPECT_KPD_ERROR(kInvalidArgument, "'eden' and 'a?b'", parse({"eden", "a\nb"}));
  EXPECT_KPD_ERROR(kInvalidArgument, "dither=shared does not join", parse({"eden:code=entropy,dither=shared,join=1"}));
}

// NaN in one member: it travels as float32 by its run, the others stay joined.
TEST(Units, ATensorThatPassesLeavesItsUnit) {
  Model m = model_of({100, 200, 300});
  m.data[1][7] = std::numeric_limits<float>::quiet_NaN();
  EncodeOptions options;
  options.nonfinite = NonFinite::kPass;
  Encoder e(m.manifest, Codec::parse("eden:bits=4"), kSecret, options);
  std::vector<uint8_t> bytes(e.max_bytes());
  const auto encode = [&] {
    bytes.resize(e.max_bytes());
    bytes.resize(e.encode_message(m.views(), kIds, bytes));
    return read_stream_info(bytes, "message", {}, &m.manifest);
  };
  StreamInfo info = encode();
  EXPECT_EQ(info.codecs.size(), 2u);
  ASSERT_EQ(info.units.size(), 2u);
  EXPECT_EQ(info.units[0].members, 2u);
  EXPECT_EQ(info.units[1].params.method, 0);
  const std::vector<std::vector<float>> out = decode(m, bytes);
  EXPECT_EQ(out[1][8], m.data[1][8]);
  EXPECT_TRUE(std::isnan(out[1][7]));
  m.data[1][7] = 0;
  info = encode();
  EXPECT_EQ(info.units.size(), 1u);
  EXPECT_EQ(bytes, message_of(m, Codec::parse("eden:bits=4")));
  EXPECT_KPD_ERROR(kInvalidArgument, "tensor 't2': element 5 is not finite", [&] {
    m.data[2][5] = std::numeric_limits<float>::infinity();
    message_of(m, Codec::parse("eden:bits=4"));
  }());
}

TEST(Units, ProgressCountsEveryElementOnce) {
  const Model m = model_of({100, 300000, 40, 5000});
  for (const int threads : {1, 3}) {
    std::atomic<uint64_t> elements{0}, calls{0};
    EncodeOptions options;
    options.threads = threads;
    options.on_progress = [&](uint64_t n) { elements += n, ++calls; };
    Encoder e(m.manifest, Codec::parse("eden:bits=4"), kSecret, options);
    std::vector<uint8_t> bytes(e.max_bytes());
    bytes.resize(e.encode_message(m.views(), kIds, bytes));
    EXPECT_EQ(elements, 305140u);
    EXPECT_GT(calls, 1u);
    EXPECT_EQ(bytes, message_of(m, Codec::parse("eden:bits=4")));
  }
}

// The last segment of 64 blocks has the tail as well, in which whole tensors may lie.
TEST(Units, AFileDecodesTensorsInTheTail) {
  Model m;
  for (int i = 0; i < 129; ++i) m.add(str("t", i), 64);
  Encoder e(m.manifest, Codec::parse("eden:bits=8,block=128"), kSecret);
  std::vector<uint8_t> file(e.max_bytes());
  file.resize(e.encode_file(m.views(), 4, file));
  const StreamInfo info = read_stream_info(file);
  for (size_t i = 0; i < m.data.size(); ++i) {
    std::vector<float> got(64, 1e6f);
    decode_file_tensor(file, info, i, got);
    for (size_t k = 0; k < 64; ++k) ASSERT_NEAR(got[k], m.data[i][k], .2f) << "tensor " << i;
  }
}

// A joined unit of 65 blocks that loses half a block has one segment, longer than its first was.
TEST(Units, AChunkHoldsTheSegmentsOfAUnitThatATensorLeaves) {
  Model m;
  for (int i = 0; i < 130; ++i) m.add(str("t", i), 8192);
  m.data[5][0] = std::numeric_limits<float>::infinity();
  Encoder e(m.manifest, Codec::parse("eden:bits=8,block=16384"), kSecret, {.threads = 1, .nonfinite = NonFinite::kPass});
  std::vector<uint8_t> chunk(e.max_chunk_bytes());
  e.begin_stream(m.views(), kIds);
  uint64_t bytes = 0;
  for (uint64_t n = 1; n > 0;) bytes += n = e.next_chunk(chunk);
  EXPECT_GT(bytes, 129u * 8192);
}

// A tensor that passes needs a codec more than there may be: that message is refused, and the next is as before it.
TEST(Units, AnEncoderIsGoodAfterAPlanThatFailed) {
  Model m;
  CodecPolicy policy(Codec::parse("eden:bits=1,join=0"));
  for (int i = 0; i < 66; ++i) {
    const int rate = std::min(i, 63);
    m.add(str("t", i), 4096);
    policy.by_name.emplace_back(m.manifest.back().name, Codec::parse(str("eden:join=0,bits=", 1 + rate / 32.0)));
  }
  Encoder e(m.manifest, policy, kSecret, {.threads = 1, .nonfinite = NonFinite::kPass});
  std::vector<uint8_t> bytes(e.max_bytes());
  m.data[65][9] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_KPD_ERROR(kLimitExceeded, "more than 64 different codecs", e.encode_message(m.views(), kIds, bytes));
  m.data[65][9] = 0;
  bytes.resize(e.encode_message(m.views(), kIds, bytes));
  EXPECT_EQ(bytes, message_of(m, policy));
}

TEST(Units, ExactTypesTravelAsTheyAre) {
  const std::vector<int64_t> batches = {3, -4, int64_t{1} << 62};
  const std::vector<uint8_t> flags = {1, 0, 1, 1, 0};
  const std::vector<uint8_t> halves8 = {0x38, 0xb8, 0x01, 0x7e};  // 1, -1, 2^-9, 448 in e4m3
  std::vector<float> x = normal_vector(500, 1);
  const Manifest manifest = {{"x", DType::kFloat32, {500}},
                             {"batches", DType::kInt64, {3}},
                             {"flags", DType::kBool, {5}},
                             {"fp8", DType::kFloat8E4M3, {4}}};
  const TensorView views[] = {TensorView(std::span<const float>(x)), TensorView(batches.data(), 3, DType::kInt64),
                              TensorView(flags.data(), 5, DType::kBool), TensorView(halves8.data(), 4, DType::kFloat8E4M3)};
  Encoder e(manifest, Codec::parse("eden:bits=1"), kSecret);
  std::vector<uint8_t> bytes(e.max_bytes());
  EncodeReport report;
  bytes.resize(e.encode_message(views, kIds, bytes, &report));
  EXPECT_EQ(report.exact_elements, 12u);
  EXPECT_EQ(report.exact_bytes, 24u + 5 + 4);

  Decoder d(manifest, kSecret);
  std::vector<float> out(500), numbers(3, 1.0f), eights(4);
  const std::span<float> dst[] = {out, numbers, {}, eights};
  d.decode_add(bytes, kIds, .5f, dst);
  EXPECT_EQ(numbers, (std::vector<float>{2.5f, -1.0f, 0x1p61f}));
  EXPECT_EQ(eights, (std::vector<float>{.5f, -.5f, 0x1p-10f, 224}));
  const std::span<const uint8_t> raw = d.exact_bytes(bytes, kIds, 1);
  ASSERT_EQ(raw.size(), 24u);
  EXPECT_EQ(std::memcmp(raw.data(), batches.data(), 24), 0);
  EXPECT_KPD_ERROR(kInvalidArgument, "'x' is float32", d.exact_bytes(bytes, kIds, 0));
  StreamDecoder s(manifest, kSecret);
  s.begin(kIds, 1, dst);
  for (const uint8_t& b : bytes) s.feed({&b, 1});
  EXPECT_TRUE(s.done());

  std::vector<uint8_t> file(e.max_bytes());
  file.resize(e.encode_file(views, 4, file));
  const StreamInfo info = read_stream_info(file);
  EXPECT_EQ(decode_file_exact(file, info, 2)[3], 1);
  EXPECT_EQ(decode_file_exact(file, info, 2).size(), 5u);
  TensorView wrong[] = {views[0], TensorView(batches.data(), 3, DType::kUInt64), views[2], views[3]};
  EXPECT_KPD_ERROR(kInvalidArgument, "'batches' is uint64, the manifest says int64", e.encode_message(wrong, kIds, bytes));
}

TEST(Units, Float64IsCodedAsFloat32) {
  std::vector<double> x(300);
  for (size_t i = 0; i < x.size(); ++i) x[i] = 1 + static_cast<double>(i) * 0x1p-40;
  const Manifest manifest = {{"x", DType::kFloat64, {300}}};
  const TensorView view(x.data(), x.size(), DType::kFloat64);
  std::vector<float> out(300);
  const std::span<float> dst(out);
  Encoder e(manifest, Codec(), kSecret);
  std::vector<uint8_t> bytes(e.max_bytes());
  const uint64_t n = e.encode_message({&view, 1}, kIds, bytes);
  Decoder(manifest, kSecret).decode(std::span(bytes).first(n), kIds, {&dst, 1});
  for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(out[i], static_cast<float>(x[i]));
  x[17] = 1e39;
  for (const NonFinite policy : {NonFinite::kRefuse, NonFinite::kZero, NonFinite::kPass}) {
    for (const char* spec : {"eden:bits=4", "sq:bits=4"}) {
      Encoder other(manifest, Codec::parse(spec), kSecret, {.threads = 1, .nonfinite = policy});
      bytes.resize(other.max_bytes());
      EXPECT_KPD_ERROR(kInvalidArgument, "element 17 is 1e+39, beyond the range of float32",
                       other.encode_message({&view, 1}, kIds, bytes));
    }
  }
}

// A block without scale has no codes, whatever the method; what is decoded is 0, also where values are added.
TEST(Units, BlocksOfZerosHaveNoCodes) {
  constexpr size_t kBlock = 512, kBlocks = 100;
  for (const char* spec : {"eden:bits=4,block=512", "eden:bits=0.5,block=512", "eden:bits=2,block=512,allocate=energy",
                           "eden:bits=2,block=512,code=entropy", "drive:block=512", "drive+:block=512", "sq:bits=4,block=512",
                           "hadamard-sq:bits=4,block=512", "kashin-sq:bits=4,block=512", "terngrad:block=512",
                           "randk:bits=4,block=512", "qsgd:bits=4,block=512"}) {
    SCOPED_TRACE(spec);
    std::vector<float> x(kBlock * kBlocks + 100);
    const RoundTrip zero = round_trip(x, spec);
    // At most 8 bytes a block, and a flush a segment.
    EXPECT_LE(zero.bytes.size(), 100 + kBlocks * 9 + 2 * 44);
    EXPECT_EQ(zero.decoded, x);
    for (size_t i = 0; i < kBlock; ++i) x[3 * kBlock + i] = std::sin(static_cast<float>(i));
    x.back() = 1;
    const RoundTrip two = round_trip(x, spec);
    EXPECT_LE(two.bytes.size(), zero.bytes.size() + 2 * (kBlock + kBlock / 2) + 300);
    EXPECT_NEAR(two.error2, two.report.error2, 1e-3 * two.norm2 + 1e-12);
    for (size_t i = 0; i < 3 * kBlock; ++i) ASSERT_EQ(two.decoded[i], 0);
    // randk keeps an eighth of the elements.
    EXPECT_TRUE(std::any_of(&two.decoded[3 * kBlock], &two.decoded[4 * kBlock], [](float v) { return v != 0; }));
  }
  // The largest blocks of zeros are within the reader's limits.
  const RoundTrip large = round_trip(std::vector<float>(32767), "eden:bits=8,block=16384");
  EXPECT_EQ(large.bytes.size(), kMessageHeaderBytes + 2 + kRecordBytes + 2 + 4 + kChecksumBytes);
}

// A rate so low, or a tensor so short, that an entropy code would be its flush takes the fixed code.
TEST(Units, ShortEntropyCodesBecomeFixed) {
  const auto params = [](uint64_t n, const char* spec) { return resolve_params(Codec::parse(spec).params(), n); };
  EXPECT_EQ(params(287, "eden:code=entropy,bits=1").flags & kFlagEntropy, 0);
  EXPECT_EQ(params(287, "eden:code=entropy,bits=1").param, 0u);
  EXPECT_NE(params(288, "eden:code=entropy,bits=1").flags & kFlagEntropy, 0);
  EXPECT_EQ(params(2879, "eden:code=entropy,bits=0.1").flags & kFlagEntropy, 0);
  EXPECT_NE(params(64, "eden:code=entropy,dither=shared,bits=1").flags & kFlagEntropy, 0);
  EXPECT_EQ(params(1ull << 48, "eden:code=entropy,bits=0.1").rounds, 2);
  const std::vector<float> x = normal_vector(100, 1);
  EXPECT_EQ(round_trip(x, "eden:code=entropy,bits=2").bytes.size(), round_trip(x, "eden:bits=2").bytes.size());
}

TEST(Units, RoundsFollowTheSize) {
  for (const auto& [n, rounds] :
       {std::pair<uint64_t, int>{64, 5}, {127, 5}, {128, 4}, {511, 4}, {512, 3}, {4096, 3}, {4097, 2}}) {
    const WireParams p = resolve_params(Codec::parse("eden:bits=1").params(), n);
    EXPECT_EQ(p.rounds, rounds) << n;
    EXPECT_NE(p.flags & kFlagSizedRounds, 0);
    EXPECT_EQ(resolve_params(Codec::parse("eden:bits=1,rounds=6").params(), n).rounds, 6);
    EXPECT_EQ(resolve_params(Codec::parse("eden:bits=1,rounds=6").params(), n).flags, 0);
  }
  EXPECT_EQ(resolve_params(Codec::parse("sq:bits=1").params(), 100).rounds, 0);
}

// Shards of a rank have manifests of their own; a client with the largest id does not meet the rotation that all share.
TEST(Units, KeysDependOnTheManifest) {
  const WireParams own = Codec::parse("eden").params(), shared = Codec::parse("eden:code=entropy,dither=shared").params();
  const TensorKeys a = tensor_keys(kSecret, 1, kIds, 0, own), b = tensor_keys(kSecret, 2, kIds, 0, own);
  EXPECT_NE(a.rotation, b.rotation);
  EXPECT_NE(a.own, b.own);
  for (const uint64_t client : {uint64_t{0}, ~uint64_t{0}, ~uint64_t{0} - 1}) {
    MessageIds ids = kIds;
    ids.client = client;
    EXPECT_NE(tensor_keys(kSecret, 1, ids, 0, own).rotation, tensor_keys(kSecret, 1, kIds, 0, shared).rotation);
    EXPECT_EQ(tensor_keys(kSecret, 1, ids, 0, shared).rotation, tensor_keys(kSecret, 1, kIds, 0, shared).rotation);
    EXPECT_NE(tensor_keys(kSecret, 1, ids, 0, own).own, tensor_keys(kSecret, 1, ids, 0, own).rotation);
  }
}

TEST(Units, AMessageWithoutItsManifestTellsItsCodecs) {
  const Model m = model_of({5000, 100, 70});
  const std::vector<uint8_t> bytes = message_of(m, Codec::parse("eden:bits=2"));
  const StreamInfo info = read_stream_info(bytes);
  EXPECT_EQ(info.n_tensors, 3u);
  EXPECT_TRUE(info.tensors.empty());
  ASSERT_EQ(info.runs.size(), 1u);
  EXPECT_EQ(info.runs[0].tensors, 3u);
  EXPECT_EQ(info.codecs.at(0), Codec::parse("eden:bits=2").params());
  const Model other = model_of({5000, 100, 71});
  EXPECT_KPD_ERROR(kMismatch, "another model", read_stream_info(bytes, "message", {}, &other.manifest));
}

TEST(Units, SteadyStateAllocatesNothing) {
  Model m = model_of({100, 300, 63, 5000, 200, 400});
  const std::string texts[] = {"t5=eden:bits=2,code=entropy", "eden:bits=1,allocate=energy"};
  Encoder e(m.manifest, CodecPolicy::parse(texts), kSecret);
  Decoder d(m.manifest, kSecret);
  std::vector<uint8_t> bytes(e.max_bytes());
  std::vector<std::vector<float>> out;
  std::vector<std::span<float>> spans;
  for (const auto& v : m.data) out.emplace_back(v.size());
  for (auto& v : out) spans.emplace_back(v);
  const std::vector<TensorView> views = m.views();
  EncodeReport report;
  const auto round = [&] {
    const uint64_t n = e.encode_message(views, kIds, bytes, &report);
    (void)e.unit_reports();
    d.decode(std::span(bytes).first(n), kIds, spans);
    d.decode_add(std::span(bytes).first(n), kIds, 1, spans);
  };
  round();
  EXPECT_EQ(kpd::testing::peak_of(round), 0);
}

}  // namespace
}  // namespace kpd::gradient
