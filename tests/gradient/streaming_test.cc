// tests: the streaming form, the rotated sum and the C interface agree with the plain message.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "base/expect_error.h"
#include "gradient/round_trip.h"
#include "gradient/stream_format.h"
#include "kpd/base/error.h"
#include "kpd/base/crc32.h"
#include "kpd/gradient/decoder.h"
#include "kpd/gradient/kpd_gradient.h"
#include "kpd/gradient/stream_info.h"
#include "kpd/gradient/streaming.h"

namespace kpd::gradient {
namespace {

using namespace testing;

const Manifest kModel = {{"a", DType::kFloat32, {70, 4096}},
                         {"bias", DType::kFloat32, {10}},
                         {"none", DType::kFloat32, {0}},
                         {"b", DType::kFloat32, {12345}}};

struct Model {
  std::vector<std::vector<float>> tensors;
  std::vector<TensorView> views;
  explicit Model(uint64_t seed) {
    for (const TensorInfo& t : kModel) tensors.push_back(normal_vector(t.count(), seed++));
    for (const auto& t : tensors) views.push_back(TensorView{std::span<const float>(t)});
  }
};

struct Sum {
  std::vector<std::vector<float>> tensors;
  std::vector<std::span<float>> spans;
  Sum() {
    for (const TensorInfo& t : kModel) tensors.emplace_back(t.count());
    for (auto& t : tensors) spans.emplace_back(t);
  }
};

std::vector<uint8_t> stream_of(Encoder& encoder, const Model& model, const MessageIds& ids, EncodeReport* report = nullptr) {
  std::vector<uint8_t> all, chunk(encoder.max_chunk_bytes());
  encoder.begin_stream(model.views, ids);
  while (const uint64_t n = encoder.next_chunk(chunk, report))
    all.insert(all.end(), chunk.begin(), chunk.begin() + static_cast<ptrdiff_t>(n));
  return all;
}

TEST(Streaming, ChunksJoinedDecodeLikeTheMessage) {
  const RunSecret secret = RunSecret::from_seed(4);
  const Model model(1);
  const MessageIds ids{1, 2, 3, 4, 5};
  for (const char* spec : {"eden:bits=2", "eden:bits=1.5,code=entropy", "qsgd:bits=2", "eden:bits=1,allocate=energy"}) {
    Encoder encoder(kModel, Codec::parse(spec), secret);
    std::vector<uint8_t> message(encoder.max_bytes());
    EncodeReport whole, streamed;
    message.resize(encoder.encode_message(model.views, ids, message, &whole));
    const std::vector<uint8_t> stream = stream_of(encoder, model, ids, &streamed);
    ASSERT_EQ(stream.size(), message.size()) << spec;
    EXPECT_EQ(streamed.stream_bytes, whole.stream_bytes);
    EXPECT_EQ(streamed.error2, whole.error2);
    // All but flags, total length and checksum are the same bytes.
    EXPECT_TRUE(std::equal(message.begin() + 24, message.end() - 4, stream.begin() + 24)) << spec;
    Sum a, b, c;
    Decoder decoder(kModel, secret);
    decoder.decode_add(message, ids, .5f, a.spans);
    decoder.decode_add(stream, ids, .5f, b.spans);
    EXPECT_EQ(a.tensors, b.tensors);
    StreamDecoder incremental(kModel, secret);
    for (const size_t portion : {1, 7, 5000, 1 << 20}) {
      for (auto& t : c.tensors) std::fill(t.begin(), t.end(), 0.0f);
      incremental.begin(ids, .5f, c.spans);
      for (size_t at = 0; at < stream.size(); at += portion) {
        EXPECT_FALSE(incremental.done());
        incremental.feed(std::span(stream).subspan(at, std::min(portion, stream.size() - at)));
      }
      EXPECT_TRUE(incremental.done()) << spec << " " << portion;
      EXPECT_EQ(a.tensors, c.tensors) << spec << " " << portion;
    }
    EXPECT_KPD_ERROR(kCorruptData, "bytes after the message's end", incremental.feed(stream));
  }
}

TEST(Streaming, DamageAndForeignIdsAreRefused) {
  const RunSecret secret = RunSecret::from_seed(4);
  const Model model(1);
  const MessageIds ids{1, 2, 3, 4, 5};
  Encoder encoder(kModel, Codec::parse("eden:bits=1"), secret);
  const std::vector<uint8_t> stream = stream_of(encoder, model, ids);
  Sum sum;
  StreamDecoder decoder(kModel, secret);
  for (size_t at = 0; at < stream.size(); at += 97) {
    std::vector<uint8_t> bad = stream;
    bad[at] ^= 0x10;
    decoder.begin(ids, 1, sum.spans);
    // A flipped length field of a stream or a MAC byte is caught by the checksum, all else earlier or there.
    SCOPED_TRACE(at);
    EXPECT_KPD_ERROR(kCorruptData, "message: byte ", decoder.feed(bad));
  }
  MessageIds stale = ids;
  stale.round = 1;
  decoder.begin(stale, 1, sum.spans);
  try {
    decoder.feed(stream);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kMismatch);
  }
}

// Every byte of the codec table changed: what the whole-message decoder refuses is refused in portions of a byte too.
TEST(Streaming, DamagedCodecTablesAreRefusedInPortions) {
  const RunSecret secret = RunSecret::from_seed(4);
  const Manifest manifest = {{"a", DType::kFloat32, {70}}, {"b", DType::kFloat32, {80}}, {"c", DType::kFloat32, {90}}};
  const std::vector<float> x = normal_vector(90, 1);
  const TensorView views[] = {TensorView(x.data(), 70, DType::kFloat32), TensorView(x.data(), 80, DType::kFloat32),
                              TensorView(x.data(), 90, DType::kFloat32)};
  const std::string texts[] = {"b=bf16", "eden:bits=2"};
  Encoder encoder(manifest, CodecPolicy::parse(texts), secret);
  std::vector<uint8_t> good(encoder.max_bytes());
  good.resize(encoder.encode_message(views, {}, good));
  const size_t table = kMessageHeaderBytes, segments = table + 2 + 2 * kRecordBytes + 3 * 2;
  std::vector<float> memory(240);
  const std::span<float> all(memory);
  const std::span<float> acc[] = {all.subspan(0, 70), all.subspan(70, 80), all.subspan(150, 90)};
  Decoder whole(manifest, secret);
  StreamDecoder portions(manifest, secret);
  size_t accepted = 0;
  for (size_t at = table; at < segments; ++at) {
    for (const int change : {0x01, 0x02, 0x80, 0xff}) {
      std::vector<uint8_t> bad = good;
      bad[at] ^= static_cast<uint8_t>(change);
      store_u32(bad.data() + bad.size() - 4, crc32({bad.data(), bad.size() - 4}));
      bool first = true, second = true;
      try {
        whole.decode(bad, {}, acc);
      } catch (const Error&) {
        first = false;
      }
      portions.begin({}, 1, acc);
      try {
        for (const uint8_t& b : bad) portions.feed({&b, 1});
        second = portions.done();
      } catch (const Error& e) {
        second = false;
        EXPECT_NE(std::string(e.what()).find("byte "), std::string::npos) << e.what();
      }
      EXPECT_EQ(first, second) << "byte " << at << " ^ " << change;
      accepted += first ? 1 : 0;
    }
  }
  EXPECT_GT(accepted, 0u);  // the rounds, e.g.
  EXPECT_LT(accepted, 4 * (segments - table) / 2);
}

TEST(RotatedSum, EqualsTheSumOfTheDecoded) {
  const RunSecret secret = RunSecret::from_seed(4);
  Encoder encoder(kModel, Codec::parse("eden:bits=2,code=entropy,dither=shared"), secret);
  Decoder decoder(kModel, secret, {2, {}});
  Sum plain, rotated;
  std::vector<uint8_t> message(encoder.max_bytes());
  for (uint64_t c = 0; c < 5; ++c) {
    const Model model(10 * c);
    const MessageIds ids{1, 2, c, 4, 5};
    const uint64_t n = encoder.encode_message(model.views, ids, message);
    decoder.decode_add(std::span(message).first(n), ids, .2f, plain.spans);
    decoder.decode_rotated_add(std::span(message).first(n), ids, .2f, rotated.spans);
  }
  decoder.finish_rotated(rotated.spans);
  for (size_t t = 0; t < kModel.size(); ++t) {
    for (size_t i = 0; i < plain.tensors[t].size(); ++i)
      ASSERT_NEAR(plain.tensors[t][i], rotated.tensors[t][i], 2e-6) << t << " " << i;
  }
}

TEST(RotatedSum, OtherRoundsAndOtherCodesAreRefused) {
  const RunSecret secret = RunSecret::from_seed(4);
  const Model model(1);
  Sum sum;
  Decoder decoder(kModel, secret);
  const auto encode = [&](const char* spec, const MessageIds& ids) {
    Encoder encoder(kModel, Codec::parse(spec), secret);
    std::vector<uint8_t> message(encoder.max_bytes());
    message.resize(encoder.encode_message(model.views, ids, message));
    return message;
  };
  const MessageIds first{1, 1, 0, 0, 1}, next{1, 2, 0, 0, 1};
  decoder.decode_rotated_add(encode("eden:bits=2,code=entropy,dither=shared", first), first, 1, sum.spans);
  EXPECT_KPD_ERROR(kMismatch, "another rotation",
                   decoder.decode_rotated_add(encode("eden:bits=2,code=entropy,dither=shared", next), next, 1, sum.spans));
  EXPECT_KPD_ERROR(kUnsupported, "dither=shared",
                   decoder.decode_rotated_add(encode("eden:bits=2,code=entropy", first), first, 1, sum.spans));
}

TEST(CApi, EncodesDecodesAndReports) {
  const uint64_t counts[] = {5000, 3};
  const uint8_t secret[32] = {9};
  char error[120] = "";
  kpd_encoder* encoder = nullptr;
  kpd_decoder* decoder = nullptr;
  EXPECT_EQ(kpd_encoder_new("edn:bits=1", counts, 2, secret, 1, &encoder, error, sizeof error), 1);
  EXPECT_NE(std::string(error).find("eden"), std::string::npos) << error;
  ASSERT_EQ(kpd_encoder_new("eden:bits=4", counts, 2, secret, 1, &encoder, error, sizeof error), 0) << error;
  ASSERT_EQ(kpd_decoder_new(counts, 2, secret, 1, &decoder, error, sizeof error), 0) << error;
  const std::vector<float> a = normal_vector(5000, 1), b = {1, 2, 3};
  const float* tensors[] = {a.data(), b.data()};
  std::vector<uint8_t> bytes(kpd_encoder_max_bytes(encoder));
  const kpd_message_ids ids = {1, 2, 3, 4, 5};
  uint64_t written = 0;
  double vnmse = 0;
  ASSERT_EQ(kpd_encode(encoder, tensors, &ids, bytes.data(), bytes.size(), &written, &vnmse, error, sizeof error), 0) << error;
  EXPECT_NEAR(vnmse, .0096, .002);
  kpd_message_ids got = {};
  ASSERT_EQ(kpd_peek(decoder, bytes.data(), written, &got, error, sizeof error), 0) << error;
  EXPECT_EQ(got.weight, 5u);
  std::vector<float> out_a(5000), out_b(3);
  float* out[] = {out_a.data(), out_b.data()};
  ASSERT_EQ(kpd_decode(decoder, bytes.data(), written, &ids, out, error, sizeof error), 0) << error;
  EXPECT_EQ(out_b, b);
  ASSERT_EQ(kpd_decode_add(decoder, bytes.data(), written, &ids, 2.0f, out, error, sizeof error), 0) << error;
  EXPECT_EQ(out_b[2], 9.0f);
  kpd_message_ids stale = ids;
  stale.round = 1;
  EXPECT_EQ(kpd_decode(decoder, bytes.data(), written, &stale, out, error, sizeof error), 6);
  EXPECT_EQ(kpd_decode(decoder, bytes.data(), written - 1, &ids, out, error, 8), 2);
  EXPECT_EQ(std::strlen(error), 7u);
  EXPECT_EQ(kpd_encode(nullptr, tensors, &ids, bytes.data(), bytes.size(), &written, nullptr, nullptr, 0), 1);
  kpd_encoder_free(encoder);
  kpd_decoder_free(decoder);
  kpd_encoder_free(nullptr);
}

TEST(Streaming, AStreamEndsWithAnotherMessageOfItsEncoder) {
  const Model model(1);
  Encoder encoder(kModel, Codec::parse("eden:bits=4"), RunSecret::from_seed(4));
  std::vector<uint8_t> chunk(encoder.max_chunk_bytes()), message(encoder.max_bytes());
  encoder.begin_stream(model.views, {1, 2, 3, 4, 5});
  encoder.next_chunk(chunk);
  encoder.next_chunk(chunk);
  encoder.encode_message(model.views, {1, 3, 3, 4, 5}, message);
  EXPECT_KPD_ERROR(kInvalidArgument, "the stream was given up", encoder.next_chunk(chunk));
  const std::vector<uint8_t> again = stream_of(encoder, model, {1, 2, 3, 4, 5});
  EXPECT_NO_THROW(read_stream_info(again));
  EXPECT_EQ(encoder.next_chunk(chunk), 0u) << "one that is complete stays so";
}

TEST(Streaming, AnErrorInAStreamEndsIt) {
  Model model(1);
  model.tensors[3][5] = std::numeric_limits<float>::quiet_NaN();
  Encoder encoder(kModel, Codec::parse("eden:bits=4"), RunSecret::from_seed(4));
  EXPECT_KPD_ERROR(kInvalidArgument, "'b': element 5 is not finite", stream_of(encoder, model, {}));
  std::vector<uint8_t> chunk(encoder.max_chunk_bytes());
  EXPECT_KPD_ERROR(kInvalidArgument, "the stream was given up", encoder.next_chunk(chunk));
}

TEST(Streaming, WeightsAreFinite) {
  StreamDecoder decoder(kModel, RunSecret::from_seed(4));
  Sum sum;
  EXPECT_KPD_ERROR(kInvalidArgument, "weight inf", decoder.begin({}, std::numeric_limits<float>::infinity(), sum.spans));
}

}  // namespace
}  // namespace kpd::gradient
