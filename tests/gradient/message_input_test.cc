// tests: what goes into a message: values and weights that are not finite, names of tensors, the codec nobody named.
#include <gtest/gtest.h>

#include <limits>

#include "base/expect_error.h"
#include "gradient/round_trip.h"
#include "kpd/gradient/message.h"
#include "kpd/gradient/stream_info.h"

namespace kpd::gradient {
namespace {

using namespace testing;

constexpr MessageIds kIds{1, 2, 3, 4, 5};

TEST(Message, ChunkBoundHoldsWhereNanTravels) {
  std::vector<float> x = normal_vector(100000, 4);
  x[3] = std::numeric_limits<float>::quiet_NaN();
  Encoder e(one_tensor(x.size()), Codec::parse("eden:block=64"), RunSecret::from_seed(9), {1, NonFinite::kPass});
  std::vector<uint8_t> chunk(e.max_chunk_bytes()), bytes;
  const TensorView view{std::span<const float>(x)};
  e.begin_stream({&view, 1}, kIds);
  for (uint64_t n = e.next_chunk(chunk); n > 0; n = e.next_chunk(chunk))
    bytes.insert(bytes.end(), chunk.begin(), chunk.begin() + static_cast<std::ptrdiff_t>(n));
  EXPECT_EQ(read_stream_info(bytes).codecs.at(0).method, 0);
}

TEST(Message, ATensorThatPassesNanDoesNotHideTheErrorOfOthers) {
  const std::vector<float> x = normal_vector(100000, 4);
  std::vector<float> y = normal_vector(100, 5);
  y[3] = std::numeric_limits<float>::quiet_NaN();
  const Manifest manifest = {{"x", DType::kFloat32, {x.size()}}, {"y", DType::kFloat32, {y.size()}}};
  Encoder e(manifest, Codec::parse("eden:bits=1"), RunSecret::from_seed(9), {1, NonFinite::kPass});
  std::vector<uint8_t> bytes(e.max_bytes());
  const TensorView views[] = {TensorView{std::span<const float>(x)}, TensorView{std::span<const float>(y)}};
  EncodeReport report;
  e.encode_message(views, kIds, bytes, &report);
  EXPECT_NEAR(report.vnmse(), .57, .02);
  EXPECT_EQ(report.nonfinite, 1u);
}

TEST(Message, ACodecIsFloat32UnlessItIsSaid) {
  const Codec codec;
  EXPECT_EQ(codec.text(), "float32");
  EXPECT_EQ(codec.row().name, "float32");
  EXPECT_EQ(codec.params(), Codec::parse("float32").params());
}

TEST(Message, NamesAreWellFormed) {
  const auto encoder_of = [](const std::string& name) {
    const Encoder e({{name, DType::kFloat32, {3}}}, Codec(), RunSecret::from_seed(9));
  };
  // A cut character, too many bytes for one, a surrogate, beyond U+10FFFF, control characters.
  for (const char* bad :
       {"a\xc3", "\xc0\xaf", "\xe0\x80\x8a", "\xf0\x80\x80\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "a\nb", "\x7f"}) {
    SCOPED_TRACE(bad);
    EXPECT_KPD_ERROR(kInvalidArgument, "expected a name in UTF-8", encoder_of(bad));
  }
  for (const char* good : {"layer.0", "\u00e9\u0416", "\ud7ff\ue000", "\U0001f600\U0010ffff", ""}) {
    EXPECT_NO_THROW(encoder_of(good)) << good;
  }
}

TEST(Message, EnergyOfTensorsThatTravelRawAndOfNanDoesNotCount) {
  using Data = std::vector<std::vector<float>>;
  const auto report = [&](const Manifest& manifest, const Data& data, NonFinite policy) {
    Encoder e(manifest, Codec::parse("eden:bits=2,allocate=energy"), RunSecret::from_seed(9), {1, policy});
    std::vector<uint8_t> bytes(e.max_bytes());
    std::vector<TensorView> views;
    for (const std::vector<float>& x : data) views.emplace_back(std::span<const float>(x));
    EncodeReport r;
    bytes.resize(e.encode_message(views, kIds, bytes, &r));
    std::vector<TensorRecord> records = read_stream_info(bytes, "message", {}, &manifest).tensors;
    return std::pair(r, records);
  };
  const Manifest one = {{"a", DType::kFloat32, {65536}}};
  Data data = {normal_vector(65536, 1)};
  const double clean = report(one, data, NonFinite::kZero).first.vnmse();
  data[0][5000] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_NEAR(report(one, data, NonFinite::kZero).first.vnmse(), clean, .01);
  const Manifest two = {{"a", DType::kFloat32, {65536}}, {"raw", DType::kFloat32, {65536}}};
  data = {normal_vector(65536, 1), std::vector<float>(65536, 1e-9f)};
  data[1][7] = std::numeric_limits<float>::quiet_NaN();
  const auto records = report(two, data, NonFinite::kPass).second;
  EXPECT_NEAR(8.0 * static_cast<double>(records[0].bytes) / 65536, 2, .05);
}

TEST(Message, WeightsAreFinite) {
  const std::vector<uint8_t> message = round_trip(normal_vector(5000, 1), "eden", kIds).bytes;
  Decoder d(one_tensor(5000), RunSecret::from_seed(1));
  std::vector<float> out(5000);
  const std::span<float> acc(out);
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_KPD_ERROR(kInvalidArgument, "weight inf", d.decode_add(message, kIds, inf, {&acc, 1}));
  EXPECT_KPD_ERROR(kInvalidArgument, "nan, expected a finite", d.decode_add(message, kIds, inf - inf, {&acc, 1}));
  EXPECT_EQ(out, std::vector<float>(5000)) << "nothing was added";
  d.decode_add(message, kIds, 1, {&acc, 1});
  EXPECT_NE(out, std::vector<float>(5000));
}

}  // namespace
}  // namespace kpd::gradient
