// tests: memory stays bounded by the bytes that are there, whatever they claim.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/counted_new.h"
#include "base/expect_error.h"
#include "corrupt/damages.h"
#include "kpd/base/crc32.h"
#include "kpd/gradient/packets.h"
#include "kpd/gradient/stream_info.h"

namespace kpd::gradient {
namespace {

using namespace testing;
using kpd::testing::peak_of;

constexpr int64_t kFixed = int64_t{2} << 20;  // tables of a method and one thread's scratch

TEST(Memory, TheCounterCounts) {
  const int64_t peak = peak_of([] { ASSERT_EQ(std::vector<char>(5 << 20, 'a')[7], 'a'); });
  EXPECT_GE(peak, 5 << 20);
  EXPECT_LT(peak, 6 << 20);
}

TEST(Memory, DamagedStreamsTakeLittle) {
  std::vector<Damage> all = frame_damages();
  for (Damage& d : table_damages()) all.push_back(std::move(d));
  for (Damage& d : record_damages()) all.push_back(std::move(d));
  for (Damage& d : payload_damages()) all.push_back(std::move(d));
  for (const Damage& d : all) EXPECT_LT(peak_of([&] { (void)read_all(d.bytes); }), kFixed) << d.name;
}

// The most packets that a control part may claim, none of which is there: no more than the tensors themselves take.
TEST(Memory, PacketsThatAreClaimedTakeLittle) {
  const Manifest manifest = {{"x", DType::kFloat32, {uint64_t{1} << 22}}};
  const RunSecret secret = RunSecret::from_seed(1);
  std::vector<float> x(manifest[0].count(), 1.0f);
  const TensorView view{std::span<const float>(x)};
  Encoder encoder(manifest, Codec::parse("eden:bits=1"), secret);
  Bytes message(encoder.max_bytes());
  message.resize(encoder.encode_message({&view, 1}, {}, message));
  Bytes control = packetize(message, manifest, secret).control;
  store_u32(control.data() + control.size() - 8, static_cast<uint32_t>(x.size() / 4));
  store_u32(control.data() + control.size() - 4, crc32(std::span<const uint8_t>(control).first(control.size() - 4)));
  PacketDecoder decoder(manifest, secret);
  const std::span<float> acc(x);
  const int64_t peak = peak_of([&] { EXPECT_FALSE(decoder.decode_add(control, {}, {}, 1, {&acc, 1})); });
  EXPECT_LT(peak, static_cast<int64_t>(4 * x.size()));
}

// Bytes that are there but mean little: as much structure as a byte can claim.
TEST(Memory, ListsGrowWithTheStreamOnly) {
  constexpr size_t kSize = 4 << 20;
  const auto inspect = [](const Bytes& b) { return peak_of([&] { (void)read_stream_info(b, "hostile.kpdg"); }); };
  // The most tensors: short names and shapes of no element.
  Bytes b(kFileHeaderBytes);
  std::copy(std::begin(kMagic), std::end(kMagic), b.begin());
  b[4] = kFormatMajor;
  const size_t tensors = kSize / 40;
  for (size_t i = 0; i < tensors; ++i) {
    b.insert(b.end(), {4, 0});
    for (int k = 0; k < 4; ++k) b.push_back(static_cast<uint8_t>('0' + ((i >> (6 * k)) & 63)));
    b.insert(b.end(), {0, 1, 0, 0, 0, 0, 0, 0, 0, 0});
  }
  store_u32(b.data() + 8, static_cast<uint32_t>(b.size()));
  store_u32(b.data() + 12, static_cast<uint32_t>(tensors));
  const CodecTable table{{raw_params()}, {{0, tensors}}};
  b.resize(b.size() + codec_table_bytes(table));
  ByteWriter w(std::span<uint8_t>(b).last(codec_table_bytes(table)));
  write_codec_table(w, table);
  b.resize(b.size() + kChecksumBytes);
  seal(b);
  EXPECT_NO_THROW(read_stream_info(b));
  EXPECT_LT(inspect(b), static_cast<int64_t>(32 * b.size()) + kFixed);  // a tensor is 16 bytes of a file

  // The most segments: one tensor of the smallest blocks, each of the fewest bytes.
  for (const char* spec : {"eden:bits=0.05,block=64", "qsgd:bits=1,block=64", "eden:code=entropy,bits=0.05,block=64"}) {
    Bytes s = encode_stream(spec);
    const size_t at = payload_at(s);
    s.resize(at);
    const bool fixed = std::string(spec) == "eden:bits=0.05,block=64";
    uint64_t segments = 0;
    while (s.size() < kSize) {
      if (!fixed) s.insert(s.end(), {0, 1, 0, 0});
      s.resize(s.size() + 256);  // blocks of zeros
      ++segments;
    }
    s.resize(s.size() + kChecksumBytes);
    const uint64_t count = segments * 64 * 64;
    store_u64(s.data() + kFileHeaderBytes + 5, count);
    seal(s);
    EXPECT_NO_THROW(read_stream_info(s)) << spec;
    EXPECT_LT(inspect(s), static_cast<int64_t>(2 * s.size()) + kFixed) << spec;
    // The same with more elements than there are bytes for.
    store_u64(s.data() + kFileHeaderBytes + 5, uint64_t{1} << 36);
    seal(s);
    EXPECT_KPD_ERROR(kCorruptData, "needs at least", read_stream_info(s));
    EXPECT_LT(inspect(s), kFixed) << spec;
  }
}

}  // namespace
}  // namespace kpd::gradient
