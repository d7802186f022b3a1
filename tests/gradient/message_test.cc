// tests: the message layer: who may enter an average, many tensors, the size bound, reuse, threads, accumulation, declared
// sizes.
#include "kpd/gradient/message.h"
#include "kpd/gradient/stream_info.h"
#include "kpd/gradient/file_decoder.h"
#include "kpd/gradient/decoder.h"

#include <gtest/gtest.h>

#include <cfloat>
#include <cstring>
#include <limits>

#include "base/expect_error.h"
#include "gradient/round_trip.h"
#include "gradient/stream_format.h"
#include "kpd/base/crc32.h"

namespace kpd::gradient {
namespace {

using namespace testing;

// One spec of every kind of path.
const std::vector<std::string>& all_specs() {
  static const std::vector<std::string> specs = {"eden:bits=1",
                                                 "eden:bits=0.1",
                                                 "eden:bits=2.5,block=64",
                                                 "eden:bits=7,scale=biased",
                                                 "eden:bits=2,allocate=energy,block=256",
                                                 "eden:code=entropy,bits=0.25",
                                                 "eden:code=entropy,bits=3",
                                                 "eden:code=entropy,bits=8,scale=norm",
                                                 "eden:code=entropy,dither=shared,bits=1",
                                                 "eden:code=entropy,dither=shared,bits=4,block=1024",
                                                 "drive",
                                                 "drive+:scale=biased",
                                                 "sq:bits=0.3",
                                                 "sq:bits=3",
                                                 "hadamard-sq:bits=0.3",
                                                 "hadamard-sq:bits=2,block=64",
                                                 "kashin-sq:bits=2",
                                                 "qsgd:bits=4",
                                                 "qsgd:bits=3,norm=max,code=fixed",
                                                 "terngrad:block=64",
                                                 "randk:bits=2",
                                                 "float32",
                                                 "bf16"};
  return specs;
}

struct Model {
  Manifest manifest;
  std::vector<std::vector<float>> data;
  std::vector<TensorView> views() const {
    std::vector<TensorView> v;
    for (const std::vector<float>& d : data) v.emplace_back(std::span<const float>(d));
    return v;
  }
  std::vector<std::vector<float>> like(float value) const {
    std::vector<std::vector<float>> out;
    for (const std::vector<float>& d : data) out.emplace_back(d.size(), value);
    return out;
  }
};

std::vector<std::span<float>> spans(std::vector<std::vector<float>>& v) { return {v.begin(), v.end()}; }

Model make_model() {
  Model m;
  const std::vector<std::vector<uint64_t>> shapes = {{70, 90}, {1}, {}, {64}, {63}, {0}, {3, 0, 5}, {4097}, {9000}, {5}};
  for (size_t i = 0; i < shapes.size(); ++i) {
    m.manifest.push_back({str("layer.", i), i % 3 == 1 ? DType::kBFloat16 : DType::kFloat32, shapes[i]});
    m.data.push_back(normal_vector(m.manifest.back().count(), i + 1));
  }
  return m;
}

std::vector<uint8_t> encode(const Model& m, const std::string& spec, const MessageIds& ids, int threads = 1,
                            EncodeReport* report = nullptr) {
  Encoder e(m.manifest, Codec::parse(spec), RunSecret::from_seed(9), {threads, NonFinite::kRefuse});
  std::vector<uint8_t> bytes(e.max_bytes());
  bytes.resize(e.encode_message(m.views(), ids, bytes, report));
  return bytes;
}

constexpr MessageIds kIds{1, 2, 3, 4, 5};

double squared_distance(const std::vector<std::vector<float>>& a, const std::vector<std::vector<float>>& b) {
  double sum = 0;
  for (size_t t = 0; t < a.size(); ++t) {
    for (size_t i = 0; i < a[t].size(); ++i) {
      const double d = static_cast<double>(a[t][i]) - static_cast<double>(b[t][i]);
      sum += d * d;
    }
  }
  return sum;
}

TEST(Message, AnotherSenderNeverEntersAnAverage) {
  const Model m = make_model();
  const std::vector<uint8_t> bytes = encode(m, "eden:bits=2", kIds);
  Decoder d(m.manifest, RunSecret::from_seed(9));
  std::vector<std::vector<float>> out = m.like(-7.0f);
  const auto dst = spans(out);
  const auto refused = [&](MessageIds expected, const char* what) {
    EXPECT_KPD_ERROR(kMismatch, what, d.decode(bytes, expected, dst, nullptr, "client 3"));
    EXPECT_KPD_ERROR(kMismatch, "client 3: ", d.decode_add(bytes, expected, 1.0f, dst, nullptr, "client 3"));
    EXPECT_EQ(out, m.like(-7.0f)) << "touched";
  };
  refused({9, 2, 3, 4, 5}, "run 1, expected 9");
  refused({1, 3, 3, 4, 5}, "round 2, expected 3");  // stale
  refused({1, 1, 3, 4, 5}, "round 2, expected 1");
  refused({1, 2, 8, 4, 5}, "client 3, expected 8");
  refused({1, 2, 3, 0, 5}, "base model hash 4, expected 0");
  // The weight is the sender's to say.
  EXPECT_NO_THROW(d.decode(bytes, {1, 2, 3, 4, 99}, dst));
  EXPECT_EQ(d.peek(bytes).weight, 5u);

  Manifest renamed = m.manifest, reshaped = m.manifest, retyped = m.manifest, shorter = m.manifest;
  renamed[0].name = "other";
  reshaped[0].shape = {90, 70};
  retyped[0].dtype = DType::kFloat16;
  shorter.pop_back();
  for (const Manifest& other : {renamed, reshaped, retyped, shorter}) {
    Decoder stranger(other, RunSecret::from_seed(9));
    std::vector<std::span<float>> some(dst.begin(), dst.begin() + static_cast<ptrdiff_t>(other.size()));
    EXPECT_KPD_ERROR(kMismatch, "another model", stranger.decode(bytes, kIds, some));
    EXPECT_KPD_ERROR(kMismatch, "another model", stranger.peek(bytes));
  }
}

TEST(Message, FileAndMessageAreNotConfused) {
  const Model m = make_model();
  Encoder e(m.manifest, Codec::parse("eden"), RunSecret::from_seed(9));
  std::vector<uint8_t> file(e.max_bytes());
  file.resize(e.encode_file(m.views(), 4, file));
  Decoder d(m.manifest, RunSecret::from_seed(9));
  std::vector<std::vector<float>> out = m.like(0);
  EXPECT_KPD_ERROR(kMismatch, "expected a message", d.decode(file, kIds, spans(out)));
  const std::vector<uint8_t> message = encode(m, "eden", kIds);
  const StreamInfo info = read_stream_info(message);
  EXPECT_FALSE(info.is_file);
  EXPECT_EQ(info.ids.client, 3u);
  EXPECT_EQ(info.manifest_hash, manifest_hash(m.manifest));
  EXPECT_KPD_ERROR(kMismatch, "without its run secret", decode_file_tensor(message, info, 0, out[0]));
}

TEST(Message, FilesOfOneSeedDifferByRoundAndClient) {
  const Model m = make_model();
  Encoder e(m.manifest, Codec::parse("eden:bits=1"), RunSecret{});
  const auto file = [&](const FileIds& ids) {
    std::vector<uint8_t> bytes(e.max_bytes());
    bytes.resize(e.encode_file(m.views(), ids, bytes));
    return bytes;
  };
  // Mean of the decoded large tensor over 20 files; independent errors are a twentieth.
  const auto error_of_mean = [&](auto ids_of) {
    std::vector<double> sum(m.data[0].size());
    for (uint64_t i = 0; i < 20; ++i) {
      const std::vector<uint8_t> bytes = file(ids_of(i));
      const StreamInfo info = read_stream_info(bytes);
      std::vector<float> out(m.data[0].size());
      decode_file_tensor(bytes, info, 0, out);
      for (size_t k = 0; k < out.size(); ++k) sum[k] += double{out[k]} / 20;
    }
    double error2 = 0, norm2 = 0;
    for (size_t k = 0; k < sum.size(); ++k) {
      error2 += (sum[k] - m.data[0][k]) * (sum[k] - m.data[0][k]);
      norm2 += double{m.data[0][k]} * m.data[0][k];
    }
    return error2 / norm2;
  };
  EXPECT_NEAR(error_of_mean([](uint64_t i) { return FileIds(1, 0, i); }), .5708 / 20, .005);
  EXPECT_NEAR(error_of_mean([](uint64_t i) { return FileIds(1, i, 0); }), .5708 / 20, .005);
  EXPECT_NEAR(error_of_mean([](uint64_t) { return FileIds(1, 2, 3); }), .5708, .08);
  const std::vector<uint8_t> bytes = file({7, 8, 9});
  const StreamInfo info = read_stream_info(bytes);
  EXPECT_EQ(info.seed, 7u);
  EXPECT_EQ(info.ids.round, 8u);
  EXPECT_EQ(info.ids.client, 9u);
  EXPECT_EQ(info.ids.run, 0u);
}

TEST(Message, FilesCarryMetadata) {
  const Model m = make_model();
  EncodeOptions options;
  options.metadata = {{"format", "pt"}, {"", "line\nline"}, {"ключ", ""}};
  Encoder e(m.manifest, Codec::parse("eden"), RunSecret{}, options);
  std::vector<uint8_t> bytes(e.max_bytes());
  bytes.resize(e.encode_file(m.views(), 1, bytes));
  EXPECT_EQ(read_stream_info(bytes).metadata, options.metadata);
  EXPECT_EQ(read_stream_info(bytes).manifest_hash, manifest_hash(m.manifest)) << "not part of it";
  options.metadata = {{"a", "\xff"}};
  Encoder bad(m.manifest, Codec::parse("eden"), RunSecret{}, options);
  EXPECT_KPD_ERROR(kInvalidArgument, "is not UTF-8", bad.encode_file(m.views(), 1, bytes));
}

TEST(Message, DamagedMetadataIsRefused) {
  const Model m = make_model();
  EncodeOptions options;
  options.metadata = {{"key", "value"}};
  Encoder e(m.manifest, Codec::parse("eden"), RunSecret{}, options);
  std::vector<uint8_t> good(e.max_bytes());
  good.resize(e.encode_file(m.views(), 1, good));
  const uint64_t at = read_stream_info(good).header_bytes - metadata_bytes(options.metadata);
  const auto refused = [&](uint64_t offset, uint8_t value, const char* what) {
    std::vector<uint8_t> bad = good;
    bad[at + offset] = value;
    store_u32(bad.data() + bad.size() - 4, crc32(std::span(bad).first(bad.size() - 4)));
    EXPECT_KPD_ERROR(kCorruptData, what, read_stream_info(bad));
  };
  refused(6, 200, "a string of 200 bytes passes the end");  // the key's length
  refused(6, 14, "a string of 14 bytes passes the end");    // one byte more than there is
  refused(6, 12, "the metadata ends within a pair");        // the key takes the value's place
  refused(13, 4, "the metadata ends within a pair");        // a value one byte short leaves a rest
  refused(10, 0xff, "is not UTF-8");

  std::vector<uint8_t> twice = good;  // an empty one before it
  const uint8_t none[] = {1, 0, 0, 0, 0, 0};
  twice.insert(twice.begin() + static_cast<ptrdiff_t>(at), std::begin(none), std::end(none));
  store_u32(twice.data() + 8, load_u32(twice.data() + 8) + 6);
  store_u64(twice.data() + 16, twice.size());
  store_u32(twice.data() + twice.size() - 4, crc32(std::span(twice).first(twice.size() - 4)));
  EXPECT_KPD_ERROR(kCorruptData, "a second extension of metadata", read_stream_info(twice));
}

TEST(Message, AnotherSecretDecodesToNoise) {
  const Model m = make_model();
  const std::vector<uint8_t> bytes = encode(m, "eden:bits=4", kIds);
  Decoder d(m.manifest, RunSecret::from_seed(10));
  std::vector<std::vector<float>> out = m.like(0);
  d.decode(bytes, kIds, spans(out));
  EXPECT_GT(squared_distance(out, m.data), 10000.0);
}

TEST(Message, ManyTensorsOfEveryMethod) {
  const Model m = make_model();
  for (const std::string& spec : all_specs()) {
    SCOPED_TRACE(spec);
    EncodeReport report;
    const std::vector<uint8_t> bytes = encode(m, spec, kIds, 1, &report);
    Decoder d(m.manifest, RunSecret::from_seed(9));
    std::vector<std::vector<float>> out = m.like(FLT_MAX);
    DecodeReport decoded;
    d.decode(bytes, kIds, spans(out), &decoded);
    EXPECT_EQ(decoded.elements, report.elements);
    EXPECT_EQ(report.stream_bytes, bytes.size());
    const double error2 = squared_distance(out, m.data);
    EXPECT_NEAR(error2, report.error2, 1e-3 * report.norm2);
    // Fewer than 64 elements travel as they are.
    for (const size_t i : {1, 2, 4, 9}) EXPECT_EQ(out[i], m.data[i]);
  }
}

TEST(Message, EmptyManifest) {
  Model m;
  const std::vector<uint8_t> bytes = encode(m, "eden", kIds);
  EXPECT_EQ(bytes.size(), kMessageHeaderBytes + 2 + kChecksumBytes);
  Decoder d({}, RunSecret::from_seed(9));
  DecodeReport report{7, 7};
  d.decode(bytes, kIds, {}, &report);
  EXPECT_EQ(report.elements, 0u);
  EXPECT_KPD_ERROR(kMismatch, "round", d.decode(bytes, {1, 9, 3, 4, 5}, {}));
}

TEST(Message, SizeBoundHoldsForAnyInput) {
  Model m = make_model();
  for (const std::string& spec : all_specs()) {
    SCOPED_TRACE(spec);
    Encoder e(m.manifest, Codec::parse(spec), RunSecret::from_seed(9));
    const uint64_t bound = e.max_bytes();
    std::vector<uint8_t> bytes(bound + 64, 0xab);
    for (int kind = 0; kind < 4; ++kind) {
      for (std::vector<float>& d : m.data) {
        for (size_t i = 0; i < d.size(); ++i) {
          const float values[] = {0.0f, i == 0 ? FLT_MAX : 0.0f, (i % 2 != 0 ? -1.0f : 1.0f),
                                  1e-44f * static_cast<float>(i % 3)};
          d[i] = values[kind];
        }
      }
      EXPECT_LE(e.encode_message(m.views(), kIds, std::span(bytes).first(bound)), bound);
      EXPECT_LE(e.encode_file(m.views(), 1, std::span(bytes).first(bound)), bound);
    }
    EXPECT_EQ(std::count(bytes.begin() + static_cast<ptrdiff_t>(bound), bytes.end(), 0xab), 64);
    std::vector<uint8_t> little(100);
    EXPECT_KPD_ERROR(kInvalidArgument, "100 bytes of room", e.encode_message(m.views(), kIds, little));
  }
}

TEST(Message, SameBytesForAnyNumberOfThreadsAndAnyReuse) {
  Model m = make_model();
  m.manifest.push_back({"large", DType::kFloat32, {300000}});
  m.data.push_back(lognormal_vector(300000, 4));
  for (const char* spec : {"eden:bits=1,block=256", "eden:code=entropy,bits=2,block=256", "qsgd:bits=2"}) {
    SCOPED_TRACE(spec);
    const std::vector<uint8_t> one = encode(m, spec, kIds, 1);
    EXPECT_EQ(encode(m, spec, kIds, 3), one);
    Encoder e(m.manifest, Codec::parse(spec), RunSecret::from_seed(9), {2, NonFinite::kRefuse});
    std::vector<uint8_t> bytes(e.max_bytes());
    MessageIds other = kIds;
    other.round = 77;
    e.encode_message(m.views(), other, bytes);
    bytes.resize(e.encode_message(m.views(), kIds, bytes));
    EXPECT_EQ(bytes, one);

    std::vector<std::vector<float>> a = m.like(0), b = m.like(1), c = m.like(2);
    Decoder single(m.manifest, RunSecret::from_seed(9)), many(m.manifest, RunSecret::from_seed(9), {3, {}});
    single.decode(one, kIds, spans(a));
    many.decode(one, kIds, spans(b));
    EXPECT_EQ(a, b);
    // Another message, a refused one, then the first again.
    std::vector<uint8_t> damaged = one;
    damaged[200] ^= 1;
    single.decode(encode(m, "eden:bits=3", other), other, spans(c));
    EXPECT_KPD_ERROR(kCorruptData, "checksum", single.decode(damaged, kIds, spans(c)));
    single.decode(one, kIds, spans(c));
    EXPECT_EQ(a, c);
  }
}

TEST(Message, DecodeAddAccumulates) {
  const Model m = make_model();
  for (const std::string& spec : all_specs()) {
    SCOPED_TRACE(spec);
    const std::vector<uint8_t> bytes = encode(m, spec, kIds);
    Decoder d(m.manifest, RunSecret::from_seed(9));
    std::vector<std::vector<float>> once = m.like(0), sum = m.like(3);
    d.decode(bytes, kIds, spans(once));
    d.decode_add(bytes, kIds, 0.5f, spans(sum));
    d.decode_add(bytes, kIds, -2.0f, spans(sum));
    for (size_t t = 0; t < once.size(); ++t) {
      for (size_t i = 0; i < once[t].size(); ++i) {
        const double x = once[t][i];
        EXPECT_NEAR(sum[t][i], 3 + 0.5 * x - 2 * x, 1e-5 * (3 + std::abs(x))) << t << " " << i;
      }
    }
  }
}

// A receiver keeps the codecs it has met, but not so many that one sender's messages cost another anything.
TEST(Message, ManyCodecsDoNotFillAReceiver) {
  Model m;
  m.manifest = {{"x", DType::kFloat32, {333}}};
  m.data = {normal_vector(333, 2)};
  Decoder d(m.manifest, RunSecret::from_seed(9));
  std::vector<std::vector<float>> out = m.like(0);
  for (int i = 0; i < 100; ++i)
    EXPECT_NO_THROW(d.decode(encode(m, str("eden:bits=", 1 + 0.01 * i), kIds), kIds, spans(out))) << i;
  const std::vector<uint8_t> bytes = encode(m, "eden:bits=1", kIds);
  d.decode(bytes, kIds, spans(out));
  std::vector<std::vector<float>> fresh = m.like(0);
  Decoder(m.manifest, RunSecret::from_seed(9)).decode(bytes, kIds, spans(fresh));
  EXPECT_EQ(out, fresh);
}

// A sum of rotated codes cannot be saturated before its inverse transform: scales that could overflow it are refused, nothing
// becomes NaN.
TEST(Message, HugeScalesDoNotEnterARotatedSum) {
  Model m;
  m.manifest = {{"x", DType::kFloat32, {333}}};
  m.data = {normal_vector(333, 2)};
  std::vector<uint8_t> bytes = encode(m, "eden:code=entropy,dither=shared,bits=2", kIds);
  Decoder d(m.manifest, RunSecret::from_seed(9));
  std::vector<std::vector<float>> out = m.like(0);
  const auto seal = [&] { store_u32(bytes.data() + bytes.size() - 4, crc32({bytes.data(), bytes.size() - 4})); };
  store_u32(bytes.data() + kMessageHeaderBytes + 2 + kRecordBytes + 2 + 4, 0xfffffffcu);
  seal();
  EXPECT_KPD_ERROR(kUnsupported, "byte 0: scale word", d.decode_rotated_add(bytes, kIds, 1.0f, spans(out)));
  DecodeReport report;
  d.decode(bytes, kIds, spans(out), &report);
  EXPECT_GT(report.saturated, 0u);
  for (const float v : out[0]) EXPECT_TRUE(std::isfinite(v));
}

TEST(Message, WrongSizesAreTheCallersFault) {
  const Model m = make_model();
  Encoder e(m.manifest, Codec::parse("eden"), RunSecret::from_seed(9));
  std::vector<uint8_t> bytes(e.max_bytes());
  std::vector<TensorView> views = m.views();
  views[0].count -= 1;
  EXPECT_KPD_ERROR(kInvalidArgument, "'layer.0' has 6299 elements", e.encode_message(views, kIds, bytes));
  views.pop_back();
  EXPECT_KPD_ERROR(kInvalidArgument, "9 tensors given", e.encode_message(views, kIds, bytes));
  Decoder d(m.manifest, RunSecret::from_seed(9));
  std::vector<std::vector<float>> out = m.like(0);
  out[3].pop_back();
  const std::vector<uint8_t> message = encode(m, "eden", kIds);
  EXPECT_KPD_ERROR(kInvalidArgument, "'layer.3' has 63 floats, expected 64", d.decode(message, kIds, spans(out)));
  EXPECT_KPD_ERROR(kInvalidArgument, "0 destinations", d.decode(message, kIds, {}));
}

TEST(Message, DeclaredSizesBeyond32Bits) {
  constexpr uint64_t kMany = (uint64_t{1} << 32) + 5000;
  // Positions only: nothing of this size is touched.
  Encoder e({{"huge", DType::kFloat32, {kMany}}}, Codec::parse("eden:bits=1"), RunSecret::from_seed(1));
  EXPECT_GT(e.max_bytes(), kMany / 8);
  EXPECT_LT(e.max_bytes(), kMany / 8 + kMany / 500);
  const uint64_t n = segment_count(kMany, 4096);
  const SegmentShape last = segment_shape(kMany, 4096, n - 1);
  EXPECT_EQ(last.first_element + last.elements, kMany);
  EXPECT_EQ(last.first_block + last.n_blocks, kMany / 4096);
  EXPECT_EQ(last.block_length(last.n_blocks - 1), 4096 + kMany % 4096);
  EXPECT_EQ((TensorInfo{"x", DType::kFloat32, {1ull << 31, 1ull << 31}}).count(), 1ull << 62);
  EXPECT_KPD_ERROR(kLimitExceeded, "overflows", (void)(TensorInfo{"x", DType::kFloat32, {1ull << 32, 1ull << 32}}).count());

  // A stream that declares as many and brings a few bytes.
  Encoder small({{"x", DType::kFloat32, {64}}}, Codec::parse("eden:bits=1"), RunSecret::from_seed(1));
  const std::vector<float> x = normal_vector(64, 1);
  const TensorView view{std::span<const float>(x)};
  std::vector<uint8_t> bytes(small.max_bytes());
  bytes.resize(small.encode_file({&view, 1}, 1, bytes));
  bytes.resize(bytes.size() + 1000);
  store_u64(bytes.data() + kFileHeaderBytes + 5, kMany);
  store_u64(bytes.data() + 16, bytes.size());
  store_u32(bytes.data() + bytes.size() - 4, crc32({bytes.data(), bytes.size() - 4}));
  EXPECT_KPD_ERROR(kCorruptData, str("a tensor of ", kMany, " elements needs at least"), read_stream_info(bytes));
}

// A message whose first tensor fits a rotated sum and whose second does not leaves nothing behind.
TEST(Message, WhatDoesNotFitARotatedSumLeavesNoTrace) {
  Model m;
  m.manifest = {{"a", DType::kFloat32, {4096}}, {"b", DType::kFloat32, {4096}}};
  m.data = {normal_vector(4096, 2), normal_vector(4096, 3)};
  const std::vector<uint8_t> right = encode(m, "eden:code=entropy,dither=shared,bits=2", kIds);
  CodecPolicy mixed = Codec::parse("eden:code=entropy,dither=shared,bits=2");
  mixed.by_name.emplace_back("b", Codec::parse("eden:code=entropy,bits=2"));
  Encoder e(m.manifest, mixed, RunSecret::from_seed(9));
  std::vector<uint8_t> half(e.max_bytes());
  half.resize(e.encode_message(m.views(), kIds, half));
  Decoder d(m.manifest, RunSecret::from_seed(9));
  std::vector<std::vector<float>> out = m.like(0), want = m.like(0);
  EXPECT_KPD_ERROR(kUnsupported, "dither=shared", d.decode_rotated_add(half, kIds, 1.0f, spans(out)));
  EXPECT_EQ(out, want);
  d.decode_rotated_add(right, kIds, 1.0f, spans(out));
  d.finish_rotated(spans(out));
  d.decode(right, kIds, spans(want));
  for (size_t i = 0; i < 4096; ++i) ASSERT_NEAR(out[1][i], want[1][i], 1e-4) << i;
  // Another round's rotation joins after the sum was dropped, not before.
  MessageIds next = kIds;
  ++next.round;
  const std::vector<uint8_t> later = encode(m, "eden:code=entropy,dither=shared,bits=2", next);
  d.decode_rotated_add(right, kIds, 1.0f, spans(out));
  EXPECT_KPD_ERROR(kMismatch, "another rotation", d.decode_rotated_add(later, next, 1.0f, spans(out)));
  d.drop_rotated();
  d.decode_rotated_add(later, next, 1.0f, spans(out));
  out[1].pop_back();
  EXPECT_KPD_ERROR(kInvalidArgument, "'b' has 4095 floats", d.finish_rotated(spans(out)));
}

// The codecs of one message are counted, those of earlier ones are not.
TEST(Message, CodecsOfOneMessageAreLimited) {
  Model m;
  constexpr size_t kTensors = 65;
  for (size_t i = 0; i < kTensors; ++i) {
    m.manifest.push_back({str("t", i, "."), DType::kFloat32, {64}});
    m.data.push_back(normal_vector(64, i));
  }
  // Tensors `first` to `last` have rates of their own.
  const auto policy = [&](size_t first, size_t last) {
    CodecPolicy p = Codec::parse("eden:bits=4");
    for (size_t i = first; i < last; ++i) {
      p.by_name.emplace_back(str("t", i, "."), Codec::parse(str("eden:bits=", 1 + 0.01 * static_cast<double>(i))));
    }
    return p;
  };
  std::vector<std::vector<float>> out = m.like(0);
  Decoder d(m.manifest, RunSecret::from_seed(9));
  for (const auto& [first, last] : {std::pair<size_t, size_t>{0, 60}, {5, 65}, {0, 63}}) {
    Encoder e(m.manifest, policy(first, last), RunSecret::from_seed(9));
    std::vector<uint8_t> bytes(e.max_bytes());
    bytes.resize(e.encode_message(m.views(), kIds, bytes));
    EXPECT_NO_THROW(d.decode(bytes, kIds, spans(out)));
  }
  EXPECT_KPD_ERROR(kLimitExceeded, "more than 64", Encoder(m.manifest, policy(0, 65), RunSecret::from_seed(9)));
}

// The same numbers, read in place or through a copy.
TEST(Message, ReportsDoNotDependOnHowValuesAreRead) {
  std::vector<float> x = normal_vector(9000, 4);
  std::vector<uint8_t> halves(2 * x.size());
  store_floats(x, DType::kBFloat16, halves.data());
  load_floats({halves.data(), x.size(), DType::kBFloat16}, 0, x);
  for (const std::string& spec : all_specs()) {
    const auto report = [&](DType dtype, const void* data) {
      Encoder e({{"x", DType::kFloat32, {x.size()}}}, Codec::parse(spec), RunSecret::from_seed(9));
      std::vector<uint8_t> bytes(e.max_bytes());
      const TensorView view(data, x.size(), dtype);
      EncodeReport r;
      e.encode_message({&view, 1}, kIds, bytes, &r);
      return std::pair(r.norm2, r.error2);
    };
    EXPECT_EQ(report(DType::kFloat32, x.data()), report(DType::kBFloat16, halves.data())) << spec;
  }
}

}  // namespace
}  // namespace kpd::gradient
